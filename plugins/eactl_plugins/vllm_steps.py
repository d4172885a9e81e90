"""What both connectors read of vLLM besides requests: β, the engine's name, what a scheduler step runs."""

from __future__ import annotations

import os
from typing import Any

from eactl_plugins.gate import AdmissionGate


def bytes_per_token(kv_cache_config: Any) -> int:
    """β of one rank from vLLM's resolved cache groups; 0 where it does not pass them."""
    total = 0
    for group in getattr(kv_cache_config, "kv_cache_groups", None) or ():
        spec = group.kv_cache_spec
        layers = 1 if hasattr(spec, "kv_cache_specs") else len(group.layer_names)
        total += layers * spec.page_size_bytes // spec.block_size
    return total


def gpu_kv_tokens(kv_cache_config: Any) -> int | None:
    """K_G of one engine, where vLLM says it; for a hybrid model the tokens of its attention blocks."""
    blocks = getattr(kv_cache_config, "num_blocks", None)
    groups = getattr(kv_cache_config, "kv_cache_groups", None)
    return blocks * groups[0].kv_cache_spec.block_size // len(groups) if blocks and groups else None


def engine_name(vllm_config: Any) -> str:
    """A short name, different for each engine on a machine."""
    name = str(getattr(vllm_config, "instance_id", "") or os.getpid())[:8]
    rank = dp_rank(vllm_config)
    return name if rank is None else f"{name}-dp{rank}"


def dp_rank(vllm_config: Any) -> int | None:
    """The engine's number among data-parallel ones, None where it is the only one."""
    parallel = vllm_config.parallel_config
    return int(parallel.data_parallel_rank) if parallel.data_parallel_size > 1 else None


def count_step(gate: AdmissionGate, scheduler_output: Any) -> None:
    """Tell the gate which requests (re)start and how many tokens each one runs in this step."""
    for new in scheduler_output.scheduled_new_reqs:
        gate.started(new.req_id, new.num_computed_tokens)
    cached = scheduler_output.scheduled_cached_reqs
    resumed = getattr(cached, "resumed_req_ids", None)
    if resumed:
        for index, request in enumerate(cached.req_ids):
            if request in resumed:
                gate.started(request, cached.num_computed_tokens[index])
    gate.stepped(scheduler_output.num_scheduled_tokens)
