"""The answer of ``eactl size`` as plain frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eactl.model.summary import WorkloadSummary
from eactl.units import gib


@dataclass(frozen=True)
class SizePoint:
    """One tier size: what it covers, restores and leaves to compute over the whole trace (METHOD.md)."""

    host_bytes_rank: int
    chunks: int
    gamma_h: float | None
    coverage_tokens: int
    restored_tokens: int
    computed_tokens: int
    restoring_calls: int
    best_coverage_tokens: int | None  # no policy covers more (Belady's MIN); None: not asked for
    least_computed_tokens: int | None  # no policy computes less

    def as_dict(self) -> dict[str, Any]:
        return {
            "host_gib": gib(self.host_bytes_rank),
            "chunks": self.chunks,
            "gamma_h": None if self.gamma_h is None else round(self.gamma_h, 3),
            "coverage_tokens": self.coverage_tokens,
            "restored_tokens": self.restored_tokens,
            "computed_tokens": self.computed_tokens,
            "restoring_calls": self.restoring_calls,
            "best_coverage_tokens": self.best_coverage_tokens,
            "least_computed_tokens": self.least_computed_tokens,
        }


@dataclass(frozen=True)
class OrderCurve:
    """The curve under one order of calls.

    ``coverage_shares`` and ``recovery_shares`` pair a share of the best coverage (of the best restored tokens)
    with the bytes per rank that reach it.
    """

    name: str
    curve: tuple[SizePoint, ...]
    knee_bytes_rank: int
    coverage_shares: tuple[tuple[float, int], ...]
    recovery_shares: tuple[tuple[float, int], ...]
    best_restored_tokens: int
    saturation_bytes_rank: int
    resident_tokens: int
    drawn: tuple[tuple[int, int], ...]  # (bytes per rank, computed tokens), densely from 0 to beyond saturation

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "curve": [point.as_dict() for point in self.curve],
            "knee_gib": gib(self.knee_bytes_rank),
            "coverage_shares": [{"share": share, "host_gib": gib(size)} for share, size in self.coverage_shares],
            "recovery_shares": [{"share": share, "host_gib": gib(size)} for share, size in self.recovery_shares],
            "best_restored_tokens": self.best_restored_tokens,
            "saturation_gib": gib(self.saturation_bytes_rank),
            "gpu_resident_tokens": self.resident_tokens,
        }


@dataclass(frozen=True)
class Pool:
    """The agent pool: how many, how much they reuse (Eq. 5), how it compares with the GPU's KV cache."""

    agents: float
    agents_given: bool
    working_set_bytes_rank: float
    gamma_g: float | None
    gpu_kv_tokens: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "agents": self.agents,
            "agents_given": self.agents_given,
            "working_set_bytes_rank": round(self.working_set_bytes_rank),
            "gamma_g": None if self.gamma_g is None else round(self.gamma_g, 3),
            "gpu_kv_tokens": self.gpu_kv_tokens,
        }


@dataclass(frozen=True)
class LmcacheSettings:
    """What to pass to LMCache for the recommended tier (sizes in GiB, LMCache's own unit)."""

    chunk_size: int
    max_local_cpu_size_gib: float  # in-process: per rank, all of it is kept
    l1_size_gib: float  # multi-process server: one pool for all ranks of an engine, of which a part is kept
    trigger_watermark: float
    eviction_ratio: float

    def as_dict(self) -> dict[str, Any]:
        return {
            "in_process": {
                "LMCACHE_CHUNK_SIZE": self.chunk_size,
                "LMCACHE_LOCAL_CPU": True,
                "LMCACHE_MAX_LOCAL_CPU_SIZE": self.max_local_cpu_size_gib,
            },
            "server": {
                "chunk_size": self.chunk_size,
                "l1_size_gb": self.l1_size_gib,
                "kept_share_at_worst": round(self.trigger_watermark * (1 - self.eviction_ratio), 4),
            },
        }


@dataclass(frozen=True)
class Recommendation:
    """The smallest tier that reaches the target, whether this host has it, and which lever to pull if not."""

    host_bytes_rank: int
    tiers: int
    point: SizePoint
    computed_without_tokens: int
    target: float
    reason: str
    lever: str  # "memory", "admission" or "none"
    available_bytes: int | None
    available_from: str
    fits: bool | None
    affordable: SizePoint | None
    lmcache: LmcacheSettings
    next_step: str

    @property
    def host_bytes_total(self) -> int:
        return self.host_bytes_rank * self.tiers

    def as_dict(self) -> dict[str, Any]:
        return {
            "host_gib_rank": gib(self.host_bytes_rank),
            "host_gib_total": gib(self.host_bytes_total),
            "computed_tokens": self.point.computed_tokens,
            "ranks": self.tiers,
            "reason": self.reason,
            "restored_tokens": self.point.restored_tokens,
            "computed_tokens_without": self.computed_without_tokens,
            "target": self.target,
            "lever": self.lever,
            "host_available_gib": None if self.available_bytes is None else gib(self.available_bytes),
            "host_available_from": self.available_from,
            "fits": self.fits,
            "affordable": None if self.affordable is None else self.affordable.as_dict(),
            "lmcache": self.lmcache.as_dict(),
            "next": self.next_step,
        }


@dataclass(frozen=True)
class Seconds:
    """Prefill seconds that the recommended tier saves, by a saved ``probe obr`` result."""

    recompute_s: float
    restore_s: float

    @property
    def saved_s(self) -> float:
        return self.recompute_s - self.restore_s

    def as_dict(self) -> dict[str, float]:
        return {
            "recompute_s": round(self.recompute_s, 3),
            "restore_s": round(self.restore_s, 3),
            "saved_s": round(self.saved_s, 3),
        }


@dataclass(frozen=True)
class Isolation:
    """What keeping the KV of different salts apart costs: copies of shared prefixes, and tokens computed again."""

    salts: int
    copies_bytes_rank: int
    lost_tokens: int  # restorable by an endless tier if all salts were one, but not now

    def as_dict(self) -> dict[str, Any]:
        return {"salts": self.salts, "copies_gib_rank": gib(self.copies_bytes_rank), "lost_tokens": self.lost_tokens}


@dataclass(frozen=True)
class SizeResult:
    """Everything ``eactl size`` knows when it is done."""

    workload: WorkloadSummary
    model: str | None
    tp: int
    bytes_per_token_rank: int
    chunk_tokens: int
    chunk_bytes_rank: int
    notes: tuple[str, ...]
    pool: Pool
    orders: tuple[OrderCurve, ...]
    recommendation: Recommendation
    seconds: Seconds | None
    isolation: Isolation | None
    sources: tuple[dict[str, Any], ...]
    warnings: tuple[dict[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields of ``eactl.size/1``."""
        return {
            "workload": self.workload.as_dict(),
            "footprint": {
                "bytes_per_token_rank": self.bytes_per_token_rank,
                "chunk_tokens": self.chunk_tokens,
                "chunk_bytes_rank": self.chunk_bytes_rank,
                "tp": self.tp,
                "model": self.model,
                "notes": list(self.notes),
            },
            "pool": self.pool.as_dict(),
            "orders": [order.as_dict() for order in self.orders],
            "recommendation": self.recommendation.as_dict(),
            "seconds": None if self.seconds is None else self.seconds.as_dict(),
            "isolation": None if self.isolation is None else self.isolation.as_dict(),
            "sources": list(self.sources),
            "warnings": list(self.warnings),
        }
