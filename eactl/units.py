"""Sizes as people write and read them. GiB is 2^30 bytes, always."""

from __future__ import annotations

import re

from eactl.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_SUFFIX_BYTES = {
    "": GIB, "b": 1,
    "k": KIB, "kib": KIB, "kb": 1000,
    "m": MIB, "mib": MIB, "mb": 1000**2,
    "g": GIB, "gib": GIB, "gb": 1000**3,
    "t": 1 << 40, "tib": 1 << 40, "tb": 1000**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*\Z")


def parse_size_bytes(text: str, *, where: str) -> int:
    """Bytes in ``5`` (GiB), ``5GiB``, ``512MiB``, ``24KiB`` or ``1.5TB``.

    ``where`` names the option for the message. Raises UsageError for anything else, negatives included.
    """
    match = _SIZE.match(text)
    factor = _SUFFIX_BYTES.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise UsageError(f"not a size: {text!r}", where=where, hint="write it as 5, 5GiB or 512MiB")
    return round(float(match.group(1)) * factor)


def gib(size_bytes: float) -> float:
    """A size in GiB for a ``_gib`` field, rounded to what a person could act on (three decimals)."""
    return round(size_bytes / GIB, 3)


def human_bytes(size_bytes: float) -> str:
    """``24 KiB``, ``1.5 MiB``, ``11.4 GiB``: three significant figures, binary units."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:.0f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def human_gib(size_bytes: float) -> str:
    """``0.25 GiB``, ``11.5 GiB``, ``1,140 GiB``: tier sizes are compared with each other, so never another unit."""
    value = size_bytes / GIB
    return f"{value:,.0f} GiB" if value >= 100 else f"{value:.3g} GiB"


def human_count(count: float) -> str:
    """``940``, ``12.3K``, ``147.1M``, ``2.1G``: token counts in a sentence."""
    value = float(count)
    for unit in ("", "K", "M", "G"):
        if abs(value) < 1000 or unit == "G":
            return f"{value:.0f}" if not unit else f"{value:.1f}{unit}"
        value /= 1000
    raise AssertionError("unreachable")


def human_many(count: int, what: str) -> str:
    """``1 task``, ``1,200 tasks``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
