"""Reading figures that are given instead of measured: rates, times and lists, with their units."""

from __future__ import annotations

import math
import re

from eactl.errors import UsageError
from eactl.units import GIB, MIB, parse_size_bytes

MAX_TOKENS = 100_000_000

_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+)"
# Gb/s, with a capital and a small letter, is bits: refused, not read as eight times as much.
_RATE = re.compile(rf"\s*{_NUMBER}\s*(GiB/s|gib/s|GB/s|gb/s|MiB/s|mib/s|MB/s|mb/s|)\s*\Z")
_PREFILL = re.compile(rf"\s*{_NUMBER}\s*(us|µs|ms|tok/s|tokens/s|)\s*\Z", re.IGNORECASE)
_COUNT = re.compile(rf"\s*{_NUMBER}\s*([kmbt]?)\s*\Z", re.IGNORECASE)
_RATE_BYTES = {"": GIB, "gib/s": GIB, "gb/s": 10**9, "mib/s": MIB, "mb/s": 10**6}
_COUNT_FACTOR = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def parse_rates(text: str, *, where: str) -> tuple[float, ...]:
    """Bytes/s in ``26.6`` (GiB/s), ``57GB/s`` (10^9) or a list with one rate per rank. Raises UsageError."""
    return tuple(_rate(part, where) for part in text.split(","))


def parse_prefill_s(text: str, *, where: str) -> float:
    """Seconds per token in ``5.6`` (µs) or ``7009tok/s``. Raises UsageError."""
    match = _PREFILL.match(text)
    value = float(match.group(1)) if match else 0.0
    if match is None or not 0 < value < math.inf:
        raise UsageError(f"not a prefill cost: {text!r}", where=where, hint="write 5.6 (µs per token) or 7009tok/s")
    unit = match.group(2).lower()
    if unit in ("tok/s", "tokens/s"):
        return 1 / value
    return value * (1e-3 if unit == "ms" else 1e-6)


def parse_count(text: str, *, where: str) -> float:
    """A positive count in ``3.3e9``, ``3.3B`` or ``700M``. Raises UsageError."""
    match = _COUNT.match(text)
    value = float(match.group(1)) * _COUNT_FACTOR[match.group(2).lower()] if match else 0.0
    if not 0 < value < math.inf:
        raise UsageError(f"not a count: {text!r}", where=where, hint="write 3.3e9 or 3.3B")
    return value


def parse_tokens(text: str, *, where: str = "--tokens") -> tuple[int, ...]:
    """Lengths in ``1024,33000``, sorted and without repeats. Raises UsageError."""
    parts = [part.strip().replace("_", "") for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise UsageError(f"not a list of token counts: {text!r}", where=where, hint="write 1024,33000")
    lengths = sorted({int(part) for part in parts})
    if lengths[0] < 1 or lengths[-1] > MAX_TOKENS:
        raise UsageError(f"lengths must be 1 to {MAX_TOKENS}: {text!r}", where=where, hint="write 1024,33000")
    return tuple(lengths)


def parse_sizes(text: str, *, where: str = "--sizes") -> tuple[int, ...]:
    """Bytes in ``64KiB,1MiB,1GiB``, sorted and without repeats. Raises UsageError."""
    sizes = sorted({parse_size_bytes(part, where=where) for part in text.split(",")})
    if sizes[0] < 1:
        raise UsageError(f"a copy of no bytes: {text!r}", where=where, hint="write 64KiB,1MiB,1GiB")
    return tuple(sizes)


def parse_pair(text: str, *, where: str) -> tuple[float, float]:
    """Two positive seconds in ``98.99,152.62``. Raises UsageError."""
    parts = text.split(",")
    try:
        first, second = (float(part) for part in parts)
    except ValueError:
        first, second = 0.0, 0.0
    if not (0 < first < math.inf and 0 < second < math.inf):
        raise UsageError(f"not two times in seconds: {text!r}", where=where, hint="write COLD,HIT, for example 99,153")
    return first, second


def _rate(text: str, where: str) -> float:
    match = _RATE.match(text)
    value = float(match.group(1)) * _RATE_BYTES[match.group(2).lower()] if match else 0.0
    if not 0 < value < math.inf:
        raise UsageError(
            f"not a rate: {text!r}", where=where, hint="write 26.6 (GiB/s), 57GB/s, or one per rank: 57,14"
        )
    return value
