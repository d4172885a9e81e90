"""From settings to processes: command lines, environments, the tier's size. Pure: starts and touches nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eactl.serving.settings import ServeSettings
from eactl.telemetry.statefile import state_dir
from eactl.units import GIB

_API_SERVERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers.api_server.entry")
_SHM_PREFIX = "/dev/shm/lmcache_l1_pool_"  # noqa: S108 - LMCache's name for --shm-name
_SERVER_TIMEOUT_S, _HEARTBEAT_S = 10.0, 2.0
_LMCACHE = "import sys; from lmcache.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Weight:
    """What a model's KV weighs in the tier. ``tier_ranks`` of the ``tp`` ranks store (1 for pure MLA).

    ``state_bytes_rank`` is the snapshot of its states that a chunk holds besides the tokens, 0 where not known.
    """

    bytes_per_token_rank: int
    tier_ranks: int
    source: str = ""
    state_bytes_rank: int = 0
    has_states: bool = False

    def chunk_bytes_rank(self, chunk_tokens: int) -> int:
        return chunk_tokens * self.bytes_per_token_rank + self.state_bytes_rank


_CPU_KV_GIB = "1"  # for trials; the variable itself asks for more


@dataclass(frozen=True, slots=True)
class Tier:
    """The tier in the operator's terms: what one rank is given, what the host has to have in all."""

    bytes_rank: int
    bytes_total: int
    ranks: int
    chunk_bytes_rank: int
    chunks: int  # per rank, at the configured size
    kept_gib_rank: tuple[float, float]  # what stays through LMCache's eviction cycle

    def as_dict(self) -> dict[str, Any]:
        return {
            "host_gib_rank": round(self.bytes_rank / GIB, 3),
            "host_gib_total": round(self.bytes_total / GIB, 3),
            "ranks": self.ranks,
            "chunks": self.chunks,
            "kept_gib_rank": [round(size, 3) for size in self.kept_gib_rank],
        }


@dataclass(frozen=True, slots=True)
class Process:
    """One process to start: ``env`` comes on top of ours, ``ready_url`` answers 200 when it is up.

    ``unless_set`` holds variables that the user's own environment may override.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    ready_url: str
    unless_set: Mapping[str, str] = field(default_factory=dict)

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """What the process is started with, on top of ``ours``."""
        return {**self.unless_set, **ours, **self.env}

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "argv": list(self.argv),
            "env": dict(self.env),
            "unless_set": dict(self.unless_set),
            "ready_url": self.ready_url,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Processes in the order in which they start, and what they are for."""

    processes: tuple[Process, ...]
    tier: Tier
    shm_file: str | None  # the LMCache server's segment, which stays behind when it is killed
    state_file: Path | None = None  # likewise; with several engines each adds its number to the name

    @property
    def vllm(self) -> Process:
        return self.processes[-1]


def tier_of(settings: ServeSettings, weight: Weight, host_bytes_rank: int) -> Tier:
    """One rank's tier and all of them: TP × PP × DP buffers, but one per engine and stage where ranks hold copies."""
    storing = weight.tier_ranks * settings.pp * settings.dp
    low = high = 1.0
    if settings.mode == "multi-process":
        low, high = settings.watermark * (1 - settings.eviction_ratio), settings.watermark
    return Tier(
        bytes_rank=host_bytes_rank,
        bytes_total=host_bytes_rank * storing,
        ranks=storing,
        chunk_bytes_rank=weight.chunk_bytes_rank(settings.chunk_tokens),
        chunks=host_bytes_rank // weight.chunk_bytes_rank(settings.chunk_tokens),
        kept_gib_rank=(host_bytes_rank * low / GIB, host_bytes_rank * high / GIB),
    )


def make_plan(
    settings: ServeSettings, weight: Weight, host_bytes_rank: int, *, api_server: str, ports: tuple[int, int]
) -> Plan:
    """The processes for ``settings``. ``ports`` are the LMCache server's two, ``api_server`` vLLM's module to run."""
    tier = tier_of(settings, weight, host_bytes_rank)
    port, http_port = settings.lmcache_port or ports[0], settings.lmcache_http_port or ports[1]
    multi = settings.mode == "multi-process"
    start_server = multi and not settings.lmcache_servers
    shm_name = f"eactl_{port}" if start_server and settings.device == "cpu" else None
    processes = []
    if start_server:
        processes.append(_lmcache_server(settings, weight, tier, port, http_port, shm_name))
    state_file = settings.state_file or state_dir() / f"tier-{settings.port}.json"
    extra = _connector_config(settings, weight, tier, state_file, port, http_port)
    processes.append(_vllm(settings, tier, extra, api_server))
    return Plan(tuple(processes), tier, f"{_SHM_PREFIX}{shm_name}" if shm_name else None, state_file)


def _lmcache_server(
    settings: ServeSettings, weight: Weight, tier: Tier, port: int, http_port: int, shm_name: str | None
) -> Process:
    argv = [
        sys.executable, "-c", _LMCACHE, "server", "--host", "127.0.0.1", "--port", str(port),
        "--http-host", "127.0.0.1", "--http-port", str(http_port),
        "--chunk-size", str(settings.chunk_tokens), "--l1-size-gb", _number(tier.bytes_total / GIB),
        "--eviction-policy", "LRU", "--eviction-trigger-watermark", _number(settings.watermark),
        "--eviction-ratio", _number(settings.eviction_ratio),
    ]  # fmt: skip
    if settings.ranks > 1:  # with fewer threads the ranks' stores and loads wait for each other
        argv += ["--max-gpu-workers", str(settings.ranks), "--max-cpu-workers", str(settings.dp)]
    if weight.has_states:  # or a chunk without a snapshot would be kept, and restored with another's state
        argv.append("--separate-object-groups")
    if shm_name is not None:
        argv += ["--supported-transfer-mode", "engine_driven", "--shm-name", shm_name, "--no-l1-use-lazy"]
    return Process("lmcache", tuple(argv), _environment(settings), f"http://127.0.0.1:{http_port}/healthcheck")


def _vllm(settings: ServeSettings, tier: Tier, extra: dict[str, Any], api_server: str) -> Process:
    multi = settings.mode == "multi-process"
    transfer = {
        "kv_connector": "EactlMPConnector" if multi else "EactlInProcessConnector",
        "kv_connector_module_path": f"eactl_plugins.{'mp' if multi else 'inprocess'}_connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }
    argv = [
        sys.executable, "-m", api_server, "--model", settings.model, "--host", settings.host,
        "--port", str(settings.port), "--kv-transfer-config", json.dumps(transfer, separators=(",", ":")),
    ]  # fmt: skip
    for option, value in (("--tensor-parallel-size", settings.tp), ("--pipeline-parallel-size", settings.pp),
                          ("--data-parallel-size", settings.dp)):  # fmt: skip
        if value > 1:
            argv += [option, str(value)]
    if settings.kv_dtype != "auto":
        argv += ["--kv-cache-dtype", settings.kv_dtype]
    if (block := settings.given_block_tokens) is not None:
        argv += ["--block-size", str(block)]
    argv += settings.vllm_args
    env = _environment(settings)
    if settings.device == "cpu":
        env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    if not multi:
        env |= {
            "LMCACHE_CHUNK_SIZE": str(settings.chunk_tokens),
            "LMCACHE_LOCAL_CPU": "True",
            "LMCACHE_MAX_LOCAL_CPU_SIZE": _number(tier.bytes_rank / GIB),  # LMCache's unit is GiB per rank
        }
    host = settings.host if settings.host not in ("0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - compared, not bound
    # Left to itself vLLM on a CPU wants 92 % of the memory for its own KV cache, and refuses to start without it.
    unless_set = {"VLLM_CPU_KVCACHE_SPACE": _CPU_KV_GIB} if settings.device == "cpu" else {}
    return Process("vllm", tuple(argv), env, f"http://{host}:{settings.port}/health", unless_set)


def _connector_config(
    settings: ServeSettings, weight: Weight, tier: Tier, state_file: Path, port: int, http_port: int
) -> dict[str, Any]:
    extra: dict[str, Any] = {"eactl.policy": settings.policy, "eactl.theta": settings.theta,
                             "eactl.window_s": settings.window_s, "eactl.state_file": str(state_file)}  # fmt: skip
    if settings.kappa_chunks is not None:
        extra["eactl.kappa_chunks"] = settings.kappa_chunks
    if settings.mode == "in-process":
        return extra | {"eactl.host_bytes": tier.bytes_rank, "eactl.bytes_per_token": weight.bytes_per_token_rank}
    extra["eactl.host_bytes"] = tier.bytes_total
    if settings.lmcache_servers:
        extra["lmcache.mp.server_urls"] = [f"tcp://{server.host}:{server.port}" for server in settings.lmcache_servers]
        extra["eactl.status_urls"] = [f"http://{server.host}:{server.http_port}" for server in settings.lmcache_servers]
    else:
        extra["lmcache.mp.host"] = "tcp://127.0.0.1"
        extra["lmcache.mp.port"] = port
        extra["eactl.status_urls"] = [f"http://127.0.0.1:{http_port}"]
    # Upstream waits 300 s for a server that has died, and every request with it.
    extra |= {"lmcache.mp.mq_timeout": _SERVER_TIMEOUT_S, "lmcache.mp.heartbeat_interval": _HEARTBEAT_S}
    if settings.policy == "lazy":
        extra["lmcache.mp.lazy_offload"] = True
    return extra


def _environment(settings: ServeSettings) -> dict[str, str]:
    # Every process must hash blocks alike, or what one stores no other finds.
    return {"PYTHONHASHSEED": "0"}


def api_server_modules() -> tuple[str, ...]:
    """Modules that run vLLM's OpenAI server, in the order of preference."""
    return _API_SERVERS


def _number(value: float) -> str:
    return f"{value:.6g}"
