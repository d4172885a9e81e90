"""Traces of agent requests: reading every known format into one stream of calls, and writing them back."""
