"""From ratios to what to do: the classes of Table 1, the guide of Table 12, and what would change the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from eactl.model.obr import ObrResult, Verdict
from eactl.units import GIB

Regime = Literal["low", "between", "high"]

# Table 1 has 2.2K and 2.3K (offloading paid) and 15.5K (it never did). Nothing was published in between, so a class
# reaches a factor of two beyond its own evidence and the rest is left open.
LOW_FLOP_PER_BYTE = 2 * 2_312.5
HIGH_FLOP_PER_BYTE = 15_461 / 2

REGIME_TEXT = {
    "low": "low, like RTX 3090 (2.2K) and H20 (2.3K), where offloading paid once hits survived",
    "between": "between the published classes (2.3K paid, 15.5K did not): the measured benefit decides",
    "high": "high, like H800 (15.5K), where offloading lengthened every published run (1.08 to 1.87 times)",
}


@dataclass(frozen=True, slots=True)
class Pressure:
    """γG (pool over GPU cache) and γH (reuse working set over host tier); None where it was not given."""

    gamma_g: float | None = None
    gamma_h: float | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, with a stable code for scripts."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """A changed machine or workload: factors on the figures of a result."""

    name: str
    bytes_factor: float = 1.0
    bandwidth_factor: float = 1.0
    prefill_factor: float = 1.0
    tokens_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Flip:
    """OBR under a scenario, and whether the verdict at the reference length changes."""

    name: str
    tokens: int
    obr: float
    verdict: Verdict
    flips: bool


def regime(flop_per_host_byte: float) -> Regime:
    """The class of Table 1."""
    if flop_per_host_byte <= LOW_FLOP_PER_BYTE:
        return "low"
    return "high" if flop_per_host_byte >= HIGH_FLOP_PER_BYTE else "between"


def advise(verdict: Verdict, regime: Regime | None, pressure: Pressure) -> tuple[Advice, ...]:
    """What Table 12 says to do, most important first; a negative benefit overrides the table."""
    if verdict == "recompute":
        return (
            Advice(
                "recompute",
                "Do not offload: computing a prefix again is faster here than copying it back. "
                "Keep GPU prefix caching on and spend memory on the GPU's KV cache.",
            ),
        )
    advice = []
    if verdict == "unclear":
        advice.append(
            Advice(
                "measure-again",
                "The samples allow both answers: measure again on a quiet machine, or measure prefill on the real "
                "server (--method server).",
            )
        )
    if regime == "high":
        advice.append(
            Advice(
                "favour-gpu-cache",
                "Even so, favour GPU prefix caching: this GPU computes so much per byte of its link that published "
                "runs of its class got slower with a host tier, although a single restore was cheaper than its "
                "prefill. Time a whole run with a tier and one without before you deploy one.",
            )
        )
        return tuple(advice)
    return (*advice, *_by_pressure(pressure))


def _by_pressure(pressure: Pressure) -> tuple[Advice, ...]:
    if pressure.gamma_g is not None and pressure.gamma_g <= 1:
        return (
            Advice(
                "no-pressure",
                f"No tier is needed at this load: the pool fits in the GPU's KV cache (γG {pressure.gamma_g:.2f}).",
            ),
        )
    if pressure.gamma_h is not None and pressure.gamma_h > 1:
        return (
            Advice(
                "condition-or-enlarge",
                f"Offload with conditioned admission (eactl serve --policy conditioned) or a larger tier: the working "
                f"set is {pressure.gamma_h:.2f} times the tier (γH).",
            ),
        )
    if pressure.gamma_h is not None:
        return (
            Advice(
                "admit-all",
                f"Offload and admit every write: the tier holds the working set (γH {pressure.gamma_h:.2f}).",
            ),
        )
    return (
        Advice(
            "size-the-tier",
            "Offload if the pool exceeds the GPU's KV cache, with a tier that holds the working set: eactl size "
            "--trace YOUR_TRACE --obr FILE says how many GiB that is.",
        ),
    )


def scenarios(
    *, fp8_bytes_factor: float | None = 0.5, double_tp_bytes_factor: float | None = None
) -> tuple[Scenario, ...]:
    """The changes operators ask about; fp8 KV and TP only where their effect on the KV per rank is given."""
    changes = [
        Scenario("host link at half the rate", bandwidth_factor=0.5),
        Scenario("host link at twice the rate", bandwidth_factor=2.0),
        Scenario("prefill twice as fast", prefill_factor=0.5),
        Scenario("prefill twice as slow (loaded engine)", prefill_factor=2.0),
        Scenario("prefixes four times as long", tokens_factor=4.0),
        Scenario("prefixes a quarter as long", tokens_factor=0.25),
    ]
    if fp8_bytes_factor is not None:
        changes.append(Scenario("fp8 KV instead of 16 bit", bytes_factor=fp8_bytes_factor))
    if double_tp_bytes_factor is not None:
        # Ideal scaling of prefill: real all-reduces leave it slower, which only raises the benefit.
        changes.append(Scenario("twice the TP", bytes_factor=double_tp_bytes_factor, prefill_factor=0.5))
    return tuple(changes)


def flips(result: ObrResult, tokens: int, changes: Sequence[Scenario]) -> tuple[Flip, ...]:
    """OBR at ``tokens`` under each change, and whether that turns the verdict."""
    now = result.point(tokens).verdict
    found = []
    for change in changes:
        length = max(1, round(tokens * change.tokens_factor))
        point = _under(result, change).point(length)
        found.append(Flip(change.name, length, point.obr, point.verdict, point.verdict != now))
    return tuple(found)


def turning_points(result: ObrResult, tokens: int) -> dict[str, float | None]:
    """The value of each figure at which OBR(tokens) is zero, in the units of the contract; None where none exists."""
    bandwidth, per_token = result.critical_bandwidth(tokens), result.critical_per_token_s(tokens)
    left = result.recompute_s(tokens) - result.overhead.value
    return {
        "bandwidth_gib_s": None if bandwidth is None else bandwidth / GIB,
        "us_per_token": None if per_token is None else per_token * 1e6,
        "bytes_per_token_rank": left * result.bandwidth.value / tokens if left > 0 else None,
        "tokens": result.break_even_tokens,
    }


def _under(result: ObrResult, change: Scenario) -> ObrResult:
    return replace(
        result,
        bytes_per_token=result.bytes_per_token * change.bytes_factor,
        bandwidth=result.bandwidth.scaled(change.bandwidth_factor),
        per_token=result.per_token.scaled(change.prefill_factor),
        quadratic=result.quadratic.scaled(change.prefill_factor),
    )
