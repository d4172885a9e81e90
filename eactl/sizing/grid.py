"""Tier sizes worth showing when the user names none."""

from __future__ import annotations

import math

from eactl.units import GIB

_MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)


def default_capacities(working_set_bytes: float, saturation_bytes: float, recommended_bytes: int) -> tuple[int, ...]:
    """About ten sizes per rank around the working set, with the recommended one among them.

    Sizes are rounded to two digits in GiB. Those beyond the point where nothing more can be covered are dropped
    but for the first.
    """
    scale = min((size for size in (working_set_bytes, saturation_bytes) if size > 0), default=0.0)
    sizes = {two_digits_bytes(scale * multiple) for multiple in _MULTIPLES if scale}
    if saturation_bytes:
        sizes.add(two_digits_bytes(saturation_bytes))
    if recommended_bytes:
        sizes.add(recommended_bytes)
    useful = sorted(size for size in sizes if size > 0)
    enough = next((size for size in useful if size >= saturation_bytes), math.inf)
    return tuple(size for size in useful if size <= enough)


def two_digits_bytes(size_bytes: float) -> int:
    """The size rounded up to two significant digits in GiB."""
    if size_bytes <= 0:
        return 0
    value = size_bytes / GIB
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(round(math.ceil(round(value / step, 6)) * step, 9) * GIB)
