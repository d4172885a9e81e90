"""Judging readings of a host link: lagging ranks, NUMA placement, a downgraded slot, hits that stayed on the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

# A rank this far below its peers is on a slower path (a shared switch, the far socket, a virtual machine's mapping).
LAGGING_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class LinkState:
    """PCIe generation and width (lanes) of one reading."""

    gen: int
    width: int


def lagging_ranks(rates: Sequence[float]) -> tuple[int, ...]:
    """Indices of the rates more than 20 % below the median of all; of two ranks, below the faster one."""
    if len(rates) < 2:
        return ()
    middle = max(rates) if len(rates) == 2 else median(rates)
    return tuple(index for index, rate in enumerate(rates) if rate < LAGGING_SHARE * middle)


@dataclass(frozen=True, slots=True)
class NumaChoice:
    """The best and the worst node for one device's host buffer and their ratio."""

    best_node: int
    worst_node: int
    ratio: float
    text: str


def numa_choice(rates: Mapping[int, float], device: str) -> NumaChoice | None:
    """Which node a device's host buffers belong on, from its rate to each (any unit); None for fewer than two nodes."""
    if len(rates) < 2:
        return None
    best, worst = max(rates, key=lambda node: rates[node]), min(rates, key=lambda node: rates[node])
    ratio = rates[best] / rates[worst]
    if ratio < 1.05:
        text = f"{device}: the NUMA node makes no difference ({ratio:.2f}x)"
    else:
        text = (
            f"{device}: host memory on NUMA node {best} is {ratio:.2f}x as fast as on node {worst}; "
            f"bind its worker with --numa-bind (vLLM) or numactl --cpunodebind={best} --membind={best}"
        )
    return NumaChoice(best, worst, ratio, text)


def link_text(
    busy: LinkState | None, maximum: LinkState | None, idle: LinkState | None = None
) -> tuple[bool | None, str]:
    """Whether the link runs at its maximum, and the finding in words; (None, …) when it was only read idle.

    Links clock down without traffic, so an idle reading below the maximum says nothing.
    """
    if busy is None:
        reading = f"gen {idle.gen} x{idle.width}" if idle else "nothing"
        return None, f"idle reading only ({reading}): links clock down without traffic, so this is no verdict"
    if maximum is None:
        return None, f"gen {busy.gen} x{busy.width} during a copy; the maximum is not known"
    faults = []
    if busy.width < maximum.width:
        faults.append(f"x{busy.width} of x{maximum.width} lanes (width downgrade: reseat the card or check the slot)")
    if busy.gen < maximum.gen:
        faults.append(f"gen {busy.gen} of gen {maximum.gen} during a copy (check the BIOS and the riser)")
    if not faults:
        return True, f"gen {busy.gen} x{busy.width}, the maximum"
    sound = [] if busy.gen < maximum.gen else [f"gen {busy.gen} ok"]
    sound += [] if busy.width < maximum.width else [f"x{busy.width} ok"]
    return False, "; ".join(faults + sound)


def hits_text(local_hit_tokens: float, external_hit_tokens: float) -> str | None:
    """Why cache hits say nothing about the host tier, None when they do."""
    if external_hit_tokens > 0:
        return None
    if local_hit_tokens > 0:
        return "inconclusive: all hits were on the GPU, the host tier restored nothing"
    return "inconclusive: there were no cache hits at all"
