"""The pipeline of ``eactl size``: workload → order → stack ranks → curve → recommendation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eactl.errors import TraceError
from eactl.model.bound import BestPolicy
from eactl.model.curve import CapacityCurve
from eactl.model.orders import closed_loop, recorded, round_robin, timing
from eactl.model.reuse import resident_tokens, stack_pieces
from eactl.model.summary import summarise
from eactl.model.workingset import gamma_gpu, gamma_host, tier_chunks, working_set_bytes
from eactl.model.workload import Workload
from eactl.sizing.advice import Available, obr_notices, recommend, round_up_bytes, saved_seconds
from eactl.sizing.grid import default_capacities
from eactl.sizing.result import Isolation, OrderCurve, Pool, SizePoint, SizeResult
from eactl.sizing.settings import GPU_BLOCK_TOKENS, SizeSettings

SHARES = (0.5, 0.8, 0.9, 0.95)
_DRAWN = 240


def size_trace(
    workload: Workload,
    settings: SizeSettings,
    available: Available,
    *,
    merged: Workload | None = None,
    sources: Iterable[dict[str, Any]] = (),
    warnings: Sequence[dict[str, str]] = (),
    on_stage: Callable[[str], None] = lambda _: None,
) -> SizeResult:
    """Size the host tier for ``workload``: exact for METHOD.md's reference model under each order asked for.

    ``merged`` is the same trace with all salts made one (None: it has only one). ``on_stage`` hears what is being
    worked on. Raises TraceError when the workload holds no call.
    """
    if not len(workload):
        raise TraceError("the trace holds no calls", where="--trace", hint="check 'eactl trace profile' on it")
    notices = list(warnings)
    pool = _pool(workload, settings)
    orders: list[OrderCurve] = []
    primary: _Evaluated | None = None
    isolation: Isolation | None = None
    for name in settings.order_names:
        on_stage(f"ranking chunks in {name} order")
        evaluated = _Evaluated(workload, _order(workload, name, pool, settings, notices), settings)
        if primary is None:
            primary = evaluated
            isolation = None if merged is None else _isolation(merged, evaluated)
            capacities = settings.capacities_bytes or _grid(evaluated, pool)
        on_stage(f"bounding what any policy could cover in {name} order" if settings.bound else f"{name} order")
        orders.append(_order_curve(name, evaluated, capacities, pool, settings))
    assert primary is not None  # noqa: S101 - order_names is never empty
    notices += obr_notices(settings)
    advice = recommend(primary.point, primary.curve, orders[0], pool, settings, available)
    return SizeResult(
        workload=summarise(workload),
        model=settings.weight.model,
        tp=settings.weight.tp,
        bytes_per_token_rank=settings.weight.bytes_per_token_rank,
        chunk_tokens=settings.chunk_tokens,
        chunk_bytes_rank=settings.chunk_bytes_rank,
        notes=settings.weight.notes,
        pool=pool,
        orders=tuple(orders),
        recommendation=advice,
        seconds=saved_seconds(advice, settings),
        isolation=isolation,
        sources=tuple(sources),
        warnings=tuple(notices),
    )


class _Evaluated:
    """One order's stretches and curve, and points of it in bytes."""

    def __init__(self, workload: Workload, order: list[int], settings: SizeSettings) -> None:
        self.order = order
        self.settings = settings
        pieces = stack_pieces(workload, order, settings.chunk_tokens, with_output=False)
        if settings.gpu_kv_tokens is None:
            resident = np.zeros(len(order), dtype=np.int64)
        else:
            resident = resident_tokens(
                workload, order, block_tokens=GPU_BLOCK_TOKENS, capacity_tokens=settings.gpu_kv_tokens
            )
        self.resident_tokens = int(resident.sum())
        self.distinct_chunks = int(pieces.chunks.sum() - pieces.length.sum())
        self.best = self.best_beyond = None
        if settings.bound:
            self.best = self.best_beyond = BestPolicy(pieces, settings.chunk_tokens)
            if self.resident_tokens:
                self.best_beyond = BestPolicy(pieces.beyond(resident, settings.chunk_tokens), settings.chunk_tokens)
        self.curve = CapacityCurve(pieces, workload.prompt_tokens[order], resident, settings.chunk_tokens)

    def point(self, host_bytes: int, working_set_bytes_rank: float) -> SizePoint:
        chunks = tier_chunks(host_bytes, self.settings.chunk_bytes_rank)
        [point] = self.curve.points([chunks])
        best = least = None
        if self.best is not None and self.best_beyond is not None:
            best = self.best.coverage_tokens(chunks)
            beyond = best if self.best_beyond is self.best else self.best_beyond.coverage_tokens(chunks)
            least = point.computed_tokens + point.restored_tokens - min(beyond, self.curve.best_restored_tokens)
        return SizePoint(
            host_bytes_rank=host_bytes,
            chunks=chunks,
            gamma_h=gamma_host(working_set_bytes_rank, host_bytes),
            coverage_tokens=point.coverage_tokens,
            restored_tokens=point.restored_tokens,
            computed_tokens=point.computed_tokens,
            restoring_calls=point.restoring_calls,
            best_coverage_tokens=best,
            least_computed_tokens=least,
        )


def _isolation(merged: Workload, apart: _Evaluated) -> Isolation:
    together = _Evaluated(merged, apart.order, replace(apart.settings, bound=False))
    return Isolation(
        salts=merged.salts,
        copies_bytes_rank=(apart.distinct_chunks - together.distinct_chunks) * apart.settings.chunk_bytes_rank,
        lost_tokens=together.curve.best_restored_tokens - apart.curve.best_restored_tokens,
    )


def _grid(evaluated: _Evaluated, pool: Pool) -> tuple[int, ...]:
    curve, settings = evaluated.curve, evaluated.settings
    wanted = curve.smallest_for_share(settings.target) * settings.chunk_bytes_rank
    telling = [curve.knee_chunks, *(curve.smallest_for_share(share) for share in SHARES)]
    return default_capacities(
        pool.working_set_bytes_rank,
        curve.saturation_chunks * settings.chunk_bytes_rank,
        [chunks * settings.chunk_bytes_rank for chunks in telling],
        round_up_bytes(wanted),
    )


def _order_curve(
    name: str, evaluated: _Evaluated, capacities: Iterable[int], pool: Pool, settings: SizeSettings
) -> OrderCurve:
    curve, chunk_bytes = evaluated.curve, settings.chunk_bytes_rank
    sizes = sorted({0, *capacities})
    return OrderCurve(
        name=name,
        curve=tuple(evaluated.point(size, pool.working_set_bytes_rank) for size in sizes),
        knee_bytes_rank=curve.knee_chunks * chunk_bytes,
        coverage_shares=tuple((share, curve.smallest_for_coverage(share) * chunk_bytes) for share in SHARES),
        recovery_shares=tuple((share, curve.smallest_for_share(share) * chunk_bytes) for share in SHARES),
        best_restored_tokens=curve.best_restored_tokens,
        saturation_bytes_rank=curve.saturation_chunks * chunk_bytes,
        resident_tokens=evaluated.resident_tokens,
        drawn=_drawn(curve, chunk_bytes),
    )


def _drawn(curve: CapacityCurve, chunk_bytes: int) -> tuple[tuple[int, int], ...]:
    """The curve as a picture needs it: evenly spaced capacities to a little beyond saturation."""
    chunks = np.unique(np.linspace(0, 1.1 * curve.saturation_chunks, _DRAWN).astype(np.int64))
    return tuple((point.chunks * chunk_bytes, point.computed_tokens) for point in curve.points(chunks))


def _pool(workload: Workload, settings: SizeSettings) -> Pool:
    given = settings.agents is not None
    agents = float(settings.agents) if settings.agents is not None else round(workload.active_tasks, 1)
    mean, gpu = workload.mean_prompt_tokens, settings.gpu_kv_tokens
    return Pool(
        agents=int(agents) if given else agents,
        agents_given=given,
        working_set_bytes_rank=working_set_bytes(agents, mean, settings.tier_bytes_per_token_rank),
        gamma_g=gamma_gpu(agents, mean, gpu) if gpu else None,
        gpu_kv_tokens=gpu,
    )


def _order(
    workload: Workload, name: str, pool: Pool, settings: SizeSettings, notices: list[dict[str, str]]
) -> list[int]:
    slots = max(1, round(pool.agents))
    if name == "recorded":
        return recorded(workload)
    if name == "round-robin":
        return round_robin(workload, slots)
    times = timing(workload, settings.rates)
    if times.assumed_service_calls:
        rates = settings.rates
        notices.append({
            "code": "service-assumed",
            "text": f"{times.assumed_service_calls} of {len(workload)} calls have no service time: assumed "
            f"{rates.prefill_us_per_token:g} µs per fresh prompt token and {rates.decode_ms_per_token:g} ms per "
            "output token in the closed loop",
            "hint": "set --prefill-us-per-token and --decode-ms-per-token, or give --obr",
        })  # fmt: skip
    if times.assumed_gap_calls:
        notices.append({
            "code": "gap-assumed",
            "text": f"{times.assumed_gap_calls} of {len(workload)} calls have neither a gap nor an arrival time: "
            "they follow their task's previous response at once in the closed loop",
            "hint": "the working set is then at its largest; record times for a closer figure",
        })  # fmt: skip
    return closed_loop(workload, slots, times)
