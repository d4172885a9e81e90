"""What our connectors take from vLLM and LMCache, checked in their sources: classes, their members, their arguments.

Nothing is imported, so versions that cannot run here can be checked too:
``python -m tests.engine.interfaces VLLM_FOLDER LMCACHE_FOLDER`` with the packages of two unpacked wheels.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_V1 = "distributed/kv_transfer/kv_connector/v1"
_SCHEDULED = "v1/core/sched/output.py"
_CONNECTOR = {
    "get_num_new_matched_tokens": ("request", "num_computed_tokens"),
    "update_state_after_alloc": ("request", "blocks", "num_external_tokens"),
    "build_connector_meta": ("scheduler_output",), "request_finished": ("request", "block_ids"),
    "update_connector_output": ("connector_output",), "get_kv_connector_stats": (), "shutdown": (),
    "build_kv_connector_stats": ("data",),
    "build_prom_metrics": ("vllm_config", "metric_types", "labelnames", "per_engine_labelvalues"),
    "start_load_kv": ("forward_context",),
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """Members of one class: a method with its arguments, or None for anything of that name."""

    file: str
    name: str
    members: dict[str, tuple[str, ...] | None]


def _any(*names: str) -> dict[str, tuple[str, ...] | None]:
    return dict.fromkeys(names)


VLLM = (
    Wanted(f"{_V1}/base.py", "KVConnectorBase_V1", dict(_CONNECTOR)),
    Wanted(f"{_V1}/lmcache_connector.py", "LMCacheConnectorV1", {
        "__init__": ("vllm_config", "role", "kv_cache_config"),
    }),
    Wanted(f"{_V1}/metrics.py", "KVConnectorStats", _any("data", "reset", "aggregate", "reduce", "is_empty")),
    Wanted(f"{_V1}/metrics.py", "KVConnectorPromMetrics", {
        "__init__": ("vllm_config", "metric_types", "labelnames", "per_engine_labelvalues"),
        "observe": ("transfer_stats_data", "engine_idx"), "_gauge_cls": None, "_counter_cls": None,
    }),
    Wanted(_SCHEDULED, "NewRequestData", _any("req_id", "num_computed_tokens")),
    Wanted(_SCHEDULED, "CachedRequestData", _any("req_ids", "resumed_req_ids", "num_computed_tokens")),
    Wanted(_SCHEDULED, "SchedulerOutput", _any("scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens")),
    Wanted("v1/kv_cache_interface.py", "KVCacheConfig", _any("num_blocks", "kv_cache_groups")),
    Wanted("v1/kv_cache_interface.py", "KVCacheGroupSpec", _any("layer_names", "kv_cache_spec")),
    Wanted("v1/outputs.py", "KVConnectorOutput", _any("kv_connector_stats")),
    Wanted("v1/request.py", "Request", _any(
        "request_id", "num_tokens", "num_prompt_tokens", "prompt_token_ids", "kv_transfer_params", "block_hashes",
        "num_preemptions", "sampling_params",
    )),
)  # fmt: skip
IN_PROCESS = (
    Wanted("integration/vllm/vllm_v1_adapter.py", "LMCacheConnectorV1Impl", _any(
        "config", "load_specs", "lmcache_engine",
    )),
    Wanted("integration/vllm/vllm_v1_adapter.py", "LoadSpec", _any("lmcache_cached_tokens")),
    Wanted("v1/storage_backend/local_cpu_backend.py", "LocalCPUBackend", _any(
        "hot_cache", "stats_monitor", "contains",
    )),
    Wanted("v1/token_database.py", "ChunkedTokenDatabase", _any("process_tokens")),
    Wanted("v1/cache_engine.py", "LMCacheEngine", _any("storage_manager", "token_database", "store")),
)  # fmt: skip
MULTI_PROCESS = (
    Wanted("integration/vllm/lmcache_mp_connector.py", "LMCacheMPConnector", {
        "__init__": ("vllm_config", "role", "kv_cache_config"), "request_trackers": None, "scheduler_adapter": None,
        "worker_adapter": None,
    }),
    Wanted("integration/vllm/lmcache_mp_metadata.py", "LMCacheMPRequestTracker", _any(
        "num_lmcache_hit_tokens", "max_offload_tokens",
    )),
    Wanted("integration/vllm/lmcache_mp_metrics.py", "LMCacheMPConnectorStats", _any("aggregate", "is_empty")),
    Wanted("integration/vllm/lmcache_mp_metrics.py", "LMCacheMPPromMetrics", _any("observe")),
    Wanted("integration/vllm/vllm_multi_process_adapter.py", "LMCacheMPSchedulerAdapter", _any(
        "lmcache_tokens_per_chunk", "parallel_strategy",
    )),
    Wanted("integration/vllm/vllm_multi_process_adapter.py", "LMCacheMPWorkerAdapter", _any(
        "submit_store_request", "submit_retrieve_request", "error_block_ids", "lazy_offload", "_health_event",
        "_failed_request_ids", "_dropped_retrieves", "_completed_store_requests", "_failed_store_requests",
    )),
)  # fmt: skip


def missing(vllm: Path, lmcache: Path, *, multi_process: bool) -> list[str]:
    """What is not there, or has other arguments, as sentences."""
    wanted = [(vllm, want) for want in VLLM]
    wanted += [(lmcache, want) for want in (*IN_PROCESS, *(MULTI_PROCESS if multi_process else ()))]
    return [problem for folder, want in wanted for problem in _problems(folder, want)]


def _problems(folder: Path, want: Wanted) -> Iterator[str]:
    path = folder / want.file
    if not path.exists():
        yield f"{want.file} is not there"
        return
    classes = {node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}
    if want.name not in classes:
        yield f"{want.file} has no class {want.name}"
        return
    found: dict[str, tuple[str, ...]] = {}
    for base in reversed(_with_bases(want.name, classes)):
        found |= dict(_members(base))
    for member, arguments in want.members.items():
        if member not in found:
            yield f"{want.name} has no {member}"
        elif arguments is not None and found[member][: len(arguments)] != arguments:
            yield f"{want.name}.{member} takes {found[member]}, not {arguments}"


def _with_bases(name: str, classes: dict[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """A class and those of its bases that stand in the same file, nearest first."""
    node = classes[name]
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return [node, *(ancestor for base in bases for ancestor in _with_bases(base, classes))]


def _members(node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name, tuple(arg.arg for arg in part.args.args[1:])
        elif isinstance(part, ast.AnnAssign | ast.Assign):
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(name, ast.Attribute):
                        yield name.attr, ()
                    elif isinstance(name, ast.Name):
                        yield name.id, ()


def main() -> int:
    vllm, lmcache = map(Path, sys.argv[1:3])
    problems = missing(vllm, lmcache, multi_process=(lmcache / "integration/vllm/lmcache_mp_connector.py").exists())
    print("\n".join(problems) or "all there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
