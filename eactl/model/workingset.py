"""The reuse working set and the two pressure ratios (Eq. 5 of the paper)."""

from __future__ import annotations


def working_set_bytes(agents: float, mean_prompt_tokens: float, bytes_per_token: float) -> float:
    """C_reuse ≈ (A - 1)·N̄·β: the other agents' contexts, per rank when β is; 0 below two agents (Eq. 5)."""
    return max(0.0, agents - 1) * mean_prompt_tokens * bytes_per_token


def gamma_gpu(agents: float, mean_prompt_tokens: float, gpu_kv_tokens: int) -> float:
    """γG = A·N̄/K_G: above one the pool's context does not fit in the GPU's KV cache."""
    return agents * mean_prompt_tokens / gpu_kv_tokens


def gamma_host(reuse_bytes: float, host_bytes: float) -> float | None:
    """γH = C_reuse/C_H: above one the host tier cannot hold what the pool reuses; None without a tier."""
    return reuse_bytes / host_bytes if host_bytes else None


def tier_chunks(host_bytes: float, chunk_bytes: int) -> int:
    """K_H = floor(C_H / (b·β)): whole chunks that fit."""
    return int(host_bytes // chunk_bytes)
