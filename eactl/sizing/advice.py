"""From the curve to a recommendation: how much, whether this host has it, and what to do where it has not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from eactl.model.curve import CapacityCurve
from eactl.sizing.result import LmcacheSettings, OrderCurve, Pool, Recommendation, Seconds, SizePoint
from eactl.sizing.settings import SizeSettings
from eactl.units import GIB, human_count

# LMCache's multi-process server evicts the oldest 20 % of its keys once 80 % of the configured size is used
# (lmcache 0.5.6, --eviction-trigger-watermark and --eviction-ratio): at worst 64 % of it holds KV.
TRIGGER_WATERMARK = 0.8
EVICTION_RATIO = 0.2
_LMCACHE_CHUNK_TOKENS = 256
HEADROOM = 0.9  # share of the host's available memory that a tier may take: the engine needs some too
ADMISSION_PAYS = 1.25  # the best policy must save this much more than LRU before admission is the lever


@dataclass(frozen=True)
class Available:
    """Host memory for all tiers together, and where the figure comes from."""

    bytes: int | None
    source: str


def round_up_bytes(size_bytes: float) -> int:
    """A size somebody would configure: up to the next 0.01, 0.1, 0.5 or 1 GiB, by magnitude."""
    value = size_bytes / GIB
    step = next(step for limit, step in ((1, 0.01), (10, 0.1), (50, 0.5), (math.inf, 1.0)) if value <= limit)
    return math.ceil(round(math.ceil(round(value / step, 6)) * step, 6) * GIB)


def lmcache_settings(host_bytes_rank: int, settings: SizeSettings) -> LmcacheSettings:
    """LMCache's own options for a tier that really keeps ``host_bytes_rank`` per rank."""
    pooled = host_bytes_rank * settings.weight.tier_ranks / (TRIGGER_WATERMARK * (1 - EVICTION_RATIO))
    return LmcacheSettings(
        chunk_size=settings.chunk_tokens,
        max_local_cpu_size_gib=round(host_bytes_rank / GIB, 3),
        l1_size_gib=round(round_up_bytes(pooled) / GIB, 3),
        trigger_watermark=TRIGGER_WATERMARK,
        eviction_ratio=EVICTION_RATIO,
    )


def recommend(
    point_at: Callable[[int, float], SizePoint],
    curve: CapacityCurve,
    order: OrderCurve,
    pool: Pool,
    settings: SizeSettings,
    available: Available,
) -> Recommendation:
    """The smallest configurable tier that reaches ``settings.target`` of the best recovery under ``order``."""
    wanted = round_up_bytes(curve.smallest_for_share(settings.target) * settings.chunk_bytes_rank)
    point = point_at(wanted, pool.working_set_bytes_rank)
    without = order.curve[0].computed_tokens
    usable = None if available.bytes is None else int(available.bytes * HEADROOM)
    fits = None if usable is None else wanted * settings.tiers <= usable
    affordable = None
    if fits is False and usable is not None:
        affordable = point_at(_round_down_bytes(usable / settings.tiers), pool.working_set_bytes_rank)
    return Recommendation(
        host_bytes_rank=wanted,
        tiers=settings.tiers,
        point=point,
        computed_without_tokens=without,
        target=settings.target,
        reason=_reason(point, order, settings, without),
        lever=_lever(wanted, affordable, without),
        available_bytes=available.bytes,
        available_from=available.source,
        fits=fits,
        affordable=affordable,
        lmcache=lmcache_settings(wanted, settings),
        next_step=_next_step(wanted, affordable, settings),
    )


def saved_seconds(advice: Recommendation, settings: SizeSettings) -> Seconds | None:
    """Eq. 3 without its last term: what the restored tokens would have cost to compute, and cost to load.

    Every request that restores is taken at the mean restored length.
    """
    calls = advice.point.restoring_calls
    if settings.obr is None or not calls:
        return None
    mean = advice.point.restored_tokens / calls
    return Seconds(recompute_s=calls * settings.obr.recompute_s(mean), restore_s=calls * settings.obr.load_s(mean))


def obr_notices(settings: SizeSettings) -> list[dict[str, str]]:
    """A warning where the saved OBR is about another KV size than this sizing."""
    weight = settings.weight.bytes_per_token_rank
    if settings.obr is None or math.isclose(settings.obr.bytes_per_token, weight, rel_tol=0.01):
        return []
    other = settings.obr.bytes_per_token
    return [{
        "code": "obr-other-footprint",
        "text": f"the saved OBR is for {other:g} bytes of KV per token and rank, this sizing for {weight}: "
        "its seconds are not this model's",
        "hint": "run 'eactl probe obr' with the same --model and --tp",
    }]  # fmt: skip


def _round_down_bytes(size_bytes: float) -> int:
    return math.floor(math.floor(size_bytes / GIB * 10) / 10 * GIB)


def _lever(wanted: int, affordable: SizePoint | None, without: int) -> str:
    if not wanted:
        return "none"
    if affordable is None or affordable.least_computed_tokens is None:
        return "memory"
    could_save = without - affordable.least_computed_tokens
    return "admission" if could_save > ADMISSION_PAYS * (without - affordable.computed_tokens) else "memory"


def _reason(point: SizePoint, order: OrderCurve, settings: SizeSettings, without: int) -> str:
    if not order.best_restored_tokens:
        what = "beyond what the GPU cache holds" if settings.gpu_kv_tokens else "at this chunk size"
        return f"no prompt of this trace repeats an earlier prefix {what}, so a host tier would restore nothing"
    share = point.restored_tokens / order.best_restored_tokens
    saved = 1 - point.computed_tokens / without
    return (
        f"smallest tier that restores {settings.target:.0%} of what an endless one would ({order.name} order): "
        f"{human_count(point.restored_tokens)} tokens ({share:.1%}), computed prefill falls from "
        f"{human_count(without)} to {human_count(point.computed_tokens)} tokens ({saved:.1%} less)"
    )


def _next_step(wanted: int, affordable: SizePoint | None, settings: SizeSettings) -> str:
    """The serve command: what is affordable, else enough that LMCache's server keeps the wanted size at its worst."""
    if not wanted:
        return "eactl trace profile PATH"
    kept_share = TRIGGER_WATERMARK * (1 - EVICTION_RATIO)
    size = affordable.host_bytes_rank if affordable is not None else round_up_bytes(wanted / kept_share)
    weight = settings.weight
    tp = f" --tp {weight.tp}" if weight.tp > 1 else ""
    chunk = f" --chunk-tokens {settings.chunk_tokens}" if settings.chunk_tokens != _LMCACHE_CHUNK_TOKENS else ""
    model = weight.loads_from or weight.model or "MODEL"
    return f"eactl serve --model {model}{tp}{chunk} --host-gib {round(size / GIB, 3):g}"
