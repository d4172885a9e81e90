"""What runs inside vLLM. vllm and lmcache are imported here and nowhere else."""
