"""Heavy-tailed integers with an exact sum, from a frozen random stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eactl.trace.synth.settings import Published

Ints = npt.NDArray[np.int64]


def rounded(values: npt.NDArray[Any]) -> Ints:
    """Integers whose running sum never strays from that of ``values`` by more than a half."""
    return np.asarray(np.diff(np.rint(np.cumsum(values)), prepend=0.0), dtype=np.int64)


def with_total(rng: np.random.RandomState, count: int, total: int, sigma: float, least: int) -> Ints:
    """``count`` log-normal integers of at least ``least`` whose sum is ``total`` (or count·least if that is more)."""
    weights = np.exp(sigma * rng.standard_normal(count))
    spare = max(0, total - count * least)
    return least + rounded(weights * (spare / weights.sum())) if count else np.zeros(0, dtype=np.int64)


def call_counts(rng: np.random.RandomState, tasks: int, mean: float, sigma: float, published: Published | None) -> Ints:
    """Calls per task with an exact total of ``mean`` × ``tasks``; with ``published`` also its median and range."""
    total = round(mean * tasks)
    if published is None:
        return with_total(rng, tasks, total, sigma, 1)
    low, middle, high = published.min_calls, published.median_calls, published.max_calls
    below, above = (tasks - 1) // 2, tasks - 1 - (tasks - 1) // 2
    # Half of the tasks on either side of the median, denser near the low end on both sides.
    counts = np.concatenate(
        (
            middle - rounded((middle - low) * rng.random_sample(below)),
            [middle],
            middle + rounded((high - middle) * rng.random_sample(above) ** 1.2),
        )
    )
    least = np.concatenate((np.full(below, low), [middle], np.full(above, middle)))
    most = np.concatenate((np.full(below, middle), [middle], np.full(above, high)))
    counts = np.clip(counts, least, most)
    if below and above:
        least[-1] = counts[-1] = high
        most[0] = counts[0] = low
    counts = _move_to_total(rng, counts, least, most, total)
    return counts[rng.permutation(tasks)]


def _move_to_total(rng: np.random.RandomState, counts: Ints, least: Ints, most: Ints, total: int) -> Ints:
    """``counts`` changed one by one, in random order, until they sum to ``total`` or nothing can move."""
    counts = counts.astype(np.int64)
    while missing := total - int(counts.sum()):
        step = 1 if missing > 0 else -1
        movable = np.flatnonzero(counts < most if step > 0 else counts > least)
        if not len(movable):
            break
        counts[rng.permutation(movable)[: abs(missing)]] += step
    return counts
