"""Size, check and serve host-memory KV cache tiers for concurrent LLM agents."""

__version__ = "0.1.0"
