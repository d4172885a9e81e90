"""Tier sizes worth showing when the user names none."""

from __future__ import annotations

import math
from collections.abc import Iterable

from eactl.units import GIB

_MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
_APART = 1.12  # sizes closer than this look the same


def default_capacities(
    working_set_bytes: float, saturation_bytes: float, telling_bytes: Iterable[float], recommended_bytes: int
) -> tuple[int, ...]:
    """About a dozen sizes per rank: around the working set, and where the curve itself has something to tell.

    ``telling_bytes`` are points of the curve (its knee, shares of the best recovery). Sizes are rounded up to two
    digits in GiB, but the recommended one is kept as it is and wins over a neighbour; the size that covers all
    there is to cover comes last.
    """
    scale = min((size for size in (working_set_bytes, saturation_bytes) if size > 0), default=0.0)
    wanted = [scale * multiple for multiple in _MULTIPLES] + list(telling_bytes)
    sizes = [recommended_bytes] if recommended_bytes else []
    last = two_digits_bytes(saturation_bytes)
    for size in [last, *sorted(two_digits_bytes(size) for size in wanted if size < saturation_bytes)]:
        if size > 0 and all(max(size, other) >= _APART * min(size, other) for other in sizes):
            sizes.append(size)
    return tuple(sorted(sizes))


def two_digits_bytes(size_bytes: float) -> int:
    """The size rounded up to two significant digits in GiB."""
    if size_bytes <= 0:
        return 0
    value = size_bytes / GIB
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(round(math.ceil(round(value / step, 6)) * step, 9) * GIB)
