"""Sampling and robust statistics: warm-up, median, MAD, outliers, a line fitted through noisy times. No torch here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

# Iglewicz and Hoaglin (1993): |0.6745·(x − median)/MAD| above 3.5 marks an outlier.
OUTLIER_Z = 3.5
# Share of samples on either side that the band leaves out: eight of ten single measurements lie inside.
BAND_TAIL = 0.1
# A measurement this far off its fit, relative to itself, says that the machine was disturbed or the model is wrong.
POOR_FIT = 0.25

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Samples:
    """Raw times of one measurement, in the order taken, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle time."""
        return median(self.seconds)

    @property
    def mad_s(self) -> float:
        """Median absolute deviation from the median: a spread that a few outliers cannot move."""
        middle = self.median_s
        return median(abs(value - middle) for value in self.seconds)

    @property
    def outliers(self) -> tuple[int, ...]:
        """Indices whose modified Z-score exceeds 3.5; none when at least half the samples are equal."""
        middle, spread = self.median_s, self.mad_s
        if spread == 0:
            return ()
        return tuple(i for i, x in enumerate(self.seconds) if abs(0.6745 * (x - middle) / spread) > OUTLIER_Z)

    @property
    def low_s(self) -> float:
        """The lower edge of the band: a tenth of the samples are faster."""
        return quantile(self.seconds, BAND_TAIL)

    @property
    def high_s(self) -> float:
        """The upper edge of the band: a tenth of the samples are slower."""
        return quantile(self.seconds, 1 - BAND_TAIL)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie, interpolated linearly between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often to measure one thing: at least ``least`` samples, at most ``most``, about ``seconds``."""

    seconds: float
    least: int = 5
    most: int = 200
    warm_ups: int = 10


@dataclass
class Budget:
    """Seconds left for a whole probe; steps ask for their share as they come."""

    total_s: float
    clock: Clock = time.perf_counter

    def __post_init__(self) -> None:
        self._end = self.clock() + self.total_s

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self.clock())

    def share(self, steps_left: int) -> float:
        """An even share of what is left among ``steps_left`` steps."""
        return self.left_s / max(1, steps_left)


def sample(measure: Callable[[], float], effort: Effort, clock: Clock = time.perf_counter) -> Samples:
    """Repeat ``measure`` (which returns seconds) after a warm-up, until the effort is spent.

    Warm-up ends when a time is no longer clearly faster than the one before (pages mapped, clocks up), after
    ``warm_ups`` runs, or when it would eat half the effort; its times are thrown away. ``clock`` bounds the effort.
    """
    start = clock()
    previous = measure()
    for _ in range(effort.warm_ups - 1):
        if clock() - start > effort.seconds / 2:
            break
        current = measure()
        settled = current > 0.9 * previous
        previous = current
        if settled:
            break
    taken: list[float] = []
    while len(taken) < effort.least or (len(taken) < effort.most and clock() - start < effort.seconds):
        taken.append(measure())
    return Samples(tuple(taken))


@dataclass(frozen=True, slots=True)
class LineFit:
    """t(x) = intercept + slope·x; ``residuals`` are relative, (measured − fitted)/measured, per x."""

    slope: float
    intercept: float
    residuals: tuple[float, ...]

    def at(self, x: float) -> float:
        """The fitted value."""
        return self.intercept + self.slope * x

    @property
    def worst_residual(self) -> float:
        """The largest relative residual."""
        return max((abs(value) for value in self.residuals), default=0.0)


def fit_line(xs: Sequence[float], times: Sequence[float]) -> LineFit:
    """A robust line through times that grow with x, over x that span orders of magnitude.

    The slope is the median of all pairwise slopes (Theil–Sen): with sizes spaced by a factor, most pairs contain a
    large one, so the rate is that of large transfers, and 29 % of the pairs may be arbitrary. The intercept is the
    median of what is left, weighted by 1/t, so that small transfers decide the overhead. Neither is ever negative.
    Raises ValueError for fewer than two distinct x.
    """
    points = sorted(zip(xs, times, strict=True))
    slopes = [(t2 - t1) / (x2 - x1) for (x1, t1), (x2, t2) in combinations(points, 2) if x1 != x2]
    if not slopes:
        raise ValueError("a line needs two distinct sizes")
    slope = max(0.0, median(slopes))
    rests = [t - slope * x for x, t in zip(xs, times, strict=True)]
    intercept = max(0.0, weighted_median(rests, [1 / t for t in times]))
    residuals = tuple((t - intercept - slope * x) / t for x, t in zip(xs, times, strict=True))
    return LineFit(slope, intercept, residuals)


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value at which half of the weight is reached; between two values, their mean."""
    pairs = sorted(zip(values, weights, strict=True))
    half = sum(weights) / 2
    reached = 0.0
    for index, (value, weight) in enumerate(pairs):
        reached += weight
        if math.isclose(reached, half, rel_tol=1e-12) and index + 1 < len(pairs):
            return (value + pairs[index + 1][0]) / 2
        if reached > half:
            return value
    return pairs[-1][0]


@dataclass(frozen=True, slots=True)
class PrefillFit:
    """t(n) = fixed + linear·n + quadratic·n² in seconds, none negative; ``residuals`` relative, per length."""

    fixed: float
    linear: float
    quadratic: float
    residuals: tuple[float, ...]

    def at(self, tokens: float) -> float:
        """The fitted seconds."""
        return self.fixed + self.linear * tokens + self.quadratic * tokens * tokens


def fit_prefill(tokens: Sequence[float], times: Sequence[float]) -> PrefillFit:
    """Least squares on relative errors with non-negative terms and a positive linear one.

    The times are medians, which is where the robustness lies; relative errors keep the longest length from deciding
    alone. With two lengths there is no quadratic term to be had, with one only the linear. Raises ValueError for none.
    """
    import numpy as np

    if not tokens:
        raise ValueError("prefill needs at least one length")
    n, t = np.asarray(tokens, dtype=float), np.asarray(times, dtype=float)
    distinct = len(set(tokens))
    # Every choice of terms that keeps the linear one; the linear term alone always fits positive times.
    choices = [[0, 1, 2], [1, 2], [0, 1], [1]] if distinct > 2 else [[0, 1], [1]] if distinct == 2 else [[1]]
    scale = float(n.max())
    columns = np.stack([np.ones_like(n), n / scale, (n / scale) ** 2], axis=1) / t[:, None]
    best_error, best = float("inf"), [0.0, 0.0, 0.0]
    for choice in choices:
        solution, *_ = np.linalg.lstsq(columns[:, choice], np.ones_like(t), rcond=None)
        if (solution < 0).any() or solution[choice.index(1)] <= 0:
            continue
        terms = [0.0, 0.0, 0.0]
        for index, value in zip(choice, solution, strict=True):
            terms[index] = float(value)
        error = float(((columns @ np.asarray(terms) - 1) ** 2).sum())
        if error < best_error - 1e-15:
            best_error, best = error, terms
    fixed, linear, quadratic = best[0], best[1] / scale, best[2] / scale**2
    fitted = fixed + linear * n + quadratic * n * n
    return PrefillFit(fixed, linear, quadratic, tuple(float(value) for value in (t - fitted) / t))
