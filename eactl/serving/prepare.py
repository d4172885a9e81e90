"""From the command line's values to a launch: the model's weight, the tier's size, the plan and its checks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eactl import hostinfo
from eactl.configs import ResolvedModel, resolve_model
from eactl.errors import CannotRunHereError, UsageError
from eactl.model.attention import INDEXER, MLA
from eactl.model.footprint import Footprint, footprint
from eactl.serving.detect import find_device, find_installed, free_ports, locks_past_limit, port_problem
from eactl.serving.plan import Plan, Weight, make_plan
from eactl.serving.preflight import Finding, HostFacts, ModelFacts, check
from eactl.serving.settings import ExternalServer, ServeSettings, block_tokens, default_chunk_tokens
from eactl.telemetry.statefile import state_dir
from eactl.units import GIB, human_bytes, parse_size_bytes

AUTO_SHARE = 0.5  # of free memory: page cache, model loading and other tenants need the rest


@dataclass(frozen=True, slots=True)
class Launch:
    """A plan that has been checked."""

    settings: ServeSettings
    plan: Plan
    footprint: Footprint
    findings: tuple[Finding, ...]
    size_reason: str

    @property
    def refusals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "refused"]

    @property
    def address(self) -> str:
        return f"http://{self.settings.host}:{self.settings.port}"

    def refuse_if_needed(self) -> None:
        """Raise CannotRunHereError with every remedy when a check has refused."""
        if self.refusals:
            what, *more = [finding.text for finding in self.refusals]
            raise CannotRunHereError("; ".join([what, *more]), hint="'--dry-run' shows all checks")


def prepare(
    *, model: str, host_gib: str, size_file: Path | None, device: str, servers: Sequence[str],
    vllm_args: Sequence[str], tp: int = 1, kv_dtype: str = "auto", chunk_tokens: int | None = None,
    **options: Any,
) -> Launch:  # fmt: skip
    """Everything ``eactl serve`` decides before it starts anything. Raises UsageError.

    ``chunk_tokens`` of None are chosen to hold whole attention blocks.
    """
    host_bytes = None if host_gib == "auto" else parse_size_bytes(host_gib, where="--host-gib")
    if size_file is not None and host_bytes is not None:
        raise UsageError("the size is given twice", where="--host-gib and --size", hint="leave one of them out")
    found = resolve_model(model)
    weight = footprint(found.config, tp=tp, kv_dtype=kv_dtype, model=found.name)
    device = find_device() if device == "auto" else device
    state_block = weight.attention_block_tokens
    settings = ServeSettings(
        model=model,
        tp=tp,
        kv_dtype=kv_dtype,
        device=device,
        chunk_tokens=chunk_tokens or default_chunk_tokens(block_tokens(device, vllm_args, state_block)),
        state_block_tokens=state_block,
        host_gib=None if host_bytes is None else host_bytes / GIB,
        lmcache_servers=tuple(ExternalServer.parse(server) for server in servers),
        vllm_args=tuple(vllm_args),
        **options,
    )
    installed = find_installed(settings.device)
    ranks = weight.tier_ranks * settings.pp * settings.dp
    if host_bytes is None:
        host_bytes, reason = _auto_size(size_file, ranks, settings)
    else:
        reason = "as given"
    plan = make_plan(
        settings, tier_weight(weight, settings.pp, found.source), host_bytes,
        api_server=installed.api_server, ports=free_ports(),
    )  # fmt: skip
    findings = check(settings, plan.tier, host_facts(settings), model_facts(weight, found, model), installed)
    return Launch(settings, plan, weight, tuple(findings), reason)


def tier_weight(weight: Footprint, pp: int, source: str = "") -> Weight:
    """What one rank stores: a pipeline stage holds its share of the layers (the fullest stage counts)."""
    return Weight(
        bytes_per_token_rank=-(-weight.tier_bytes_per_token_rank // pp),
        tier_ranks=weight.tier_ranks,
        source=source,
        has_states=any(layer.kind == "state" for layer in weight.layers),
        state_bytes_rank=-(-(weight.state_bytes_per_sequence_rank or 0) // pp),
    )


def host_facts(settings: ServeSettings) -> HostFacts:
    """This machine, as the checks need it."""
    shm = hostinfo.shared_memory()
    wanted = (("--port", settings.host, settings.port), ("--lmcache-port", "127.0.0.1", settings.lmcache_port),
              ("--lmcache-http-port", "127.0.0.1", settings.lmcache_http_port))  # fmt: skip
    problems = [
        (option, problem) for option, host, port in wanted if port and (problem := port_problem(host, port)) is not None
    ]
    return HostFacts(
        free_bytes=hostinfo.available_memory_bytes(),
        limit_bytes=hostinfo.memory_limit_bytes(),
        cgroup_limit_bytes=hostinfo.cgroup_memory().limit_bytes,
        shm_total_bytes=shm.total_bytes if shm else None,
        shm_free_bytes=shm.free_bytes if shm else None,
        shm_leftovers=shm.leftover_files if shm else (),
        memlock_bytes=None if locks_past_limit() else hostinfo.locked_memory_limit_bytes(),
        port_problems=tuple(problems),
        state_folder=_unwritable((settings.state_file or state_dir() / "tier.json").parent),
        devices=0 if settings.device == "cuda" and find_device() == "cpu" else None,
    )


def _unwritable(folder: Path) -> str | None:
    """``folder``, or what is in its way, where no file can be made in it."""
    for place in (folder, *folder.absolute().parents):
        if place.exists():
            return None if place.is_dir() and os.access(place, os.W_OK | os.X_OK) else str(place)
    return None


def model_facts(weight: Footprint, found: ResolvedModel, spec: str) -> ModelFacts:
    """The model, as the checks need it; ``spec`` is what vLLM will be given as its name."""
    return ModelFacts(
        mla=any(layer.kind == MLA for layer in weight.layers),
        hybrid=any(layer.kind == "state" for layer in weight.layers),
        indexer=any(layer.kind == INDEXER for layer in weight.layers),
        cache_groups=len({(layer.kind, layer.window_tokens) for layer in weight.layers}),
        block_tokens=weight.attention_block_tokens,
        notes=weight.notes,
        unservable=_why_unservable(found, spec),
    )


def _why_unservable(found: ResolvedModel, spec: str) -> str | None:
    loads_from = found.loads_from(spec)
    if loads_from == spec:
        return None
    if found.origin == "file":
        return f"vLLM takes a model's directory, not its config.json: give {loads_from}"
    return (
        f"{spec} is a name of eactl's own table, from which vLLM can load nothing: give the model's directory "
        "or its name with the organisation"
    )


def _auto_size(size_file: Path | None, ranks: int, settings: ServeSettings) -> tuple[int, str]:
    if size_file is not None:
        recommended = _recommendation(size_file)
        text = f"from {size_file}: 'eactl size' recommends {human_bytes(recommended)}"
        if settings.mode == "in-process":
            return recommended, text
        kept = settings.watermark * (1 - settings.eviction_ratio)
        return round(recommended / kept), f"{text}, and LMCache's server keeps {kept:.0%} of what it has at worst"
    free = hostinfo.available_memory_bytes()
    size = int(free * AUTO_SHARE) // ranks
    text = (
        f"half of the {human_bytes(free)} that are free, over {ranks} ranks: no workload was measured; "
        "'eactl size --trace' says what your agents need"
    )
    return size, text


def _recommendation(path: Path) -> int:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {error}", where=str(path), hint="save 'eactl size --json' to it") from None
    recommended = document.get("recommendation") if isinstance(document, Mapping) else None
    size = recommended.get("host_gib_rank") if isinstance(recommended, Mapping) else None
    if isinstance(size, bool) or not isinstance(size, int | float) or not size > 0:
        raise UsageError(
            f"no recommended size in it: recommendation.host_gib_rank is {size!r}", where=str(path),
            hint="save the result of 'eactl size --json', or give --host-gib",
        )  # fmt: skip
    return int(size * GIB)
