"""Rendering of result values: JSON documents, tables, plots. Knows values only, never where they came from."""
