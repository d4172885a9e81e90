"""What only a machine with a GPU can show. Skipped elsewhere; `python -m tests.gpu.measure DIR` makes the notes."""
