"""The reuse model: pure arithmetic over prefix trees, no input or output."""
