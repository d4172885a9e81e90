"""Which edit breaks a prompt's prefix between two turns, what it costs, and what other edits would cost."""
