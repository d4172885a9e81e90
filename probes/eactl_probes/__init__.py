"""What touches hardware: transfers, prefill, host facts. torch is imported inside probe functions only."""
