"""Starting vLLM with a host tier: the plan (pure), the checks before it, and running it."""
