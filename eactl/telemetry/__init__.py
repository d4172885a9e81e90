"""The tier's record, where it can be read, and what it means in words."""
