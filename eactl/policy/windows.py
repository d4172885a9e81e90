"""Sliding windows in constant time and bounded memory. Times are seconds on any one clock."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from math import isfinite


class SteadyClock:
    """Turns a clock that may be set back into one that never runs backwards.

    A step back counts as no time at all and later times go on from there; without this, entries stamped before
    the step would stay in their window for as long as the step was wide. Readings that are no number are ignored.
    """

    def __init__(self) -> None:
        self._last_reading = float("-inf")
        self._offset_s = 0.0

    def __call__(self, reading_s: float) -> float:
        if reading_s < self._last_reading:
            self._offset_s += self._last_reading - reading_s
        elif not isfinite(reading_s):
            return self._last_reading + self._offset_s
        self._last_reading = reading_s
        return reading_s + self._offset_s


class RecentKeys:
    """How many different keys were seen in the last ``window_s`` seconds, both ends included.

    Holds at most ``limit`` keys: beyond it the longest unseen are forgotten first, so the count saturates.
    """

    def __init__(self, window_s: float, limit: int) -> None:
        self._window_s = window_s
        self._limit = limit
        self._seen_s: OrderedDict[Hashable, float] = OrderedDict()

    def add(self, key: Hashable, now_s: float) -> None:
        self._seen_s[key] = now_s
        self._seen_s.move_to_end(key)
        if len(self._seen_s) > self._limit:
            self._seen_s.popitem(last=False)

    def count(self, now_s: float) -> int:
        seen = self._seen_s
        horizon_s = now_s - self._window_s
        while seen and next(iter(seen.values())) < horizon_s:
            seen.popitem(last=False)
        return len(seen)


class RecentMean:
    """The mean of the last ``size`` whole numbers, kept as an exact sum."""

    def __init__(self, size: int) -> None:
        self._values: deque[int] = deque(maxlen=size)
        self.total = 0

    def add(self, value: int) -> None:
        values = self._values
        if len(values) == values.maxlen:
            self.total -= values[0]
        values.append(value)
        self.total += value

    @property
    def count(self) -> int:
        return len(self._values)

    @property
    def mean(self) -> float:
        return self.total / len(self._values) if self._values else 0.0


class RecentIncrease:
    """By how much a counter rose in the last ``window_s`` seconds, both ends included.

    The first reading is the baseline. A fall means the counter started again from 0. At most ``limit`` rises are
    kept; beyond it the two oldest become one, at the later of their times.
    """

    def __init__(self, window_s: float, limit: int = 1024) -> None:
        self._window_s = window_s
        self._limit = limit
        self._rises: deque[tuple[float, int]] = deque()
        self._sum = 0
        self._last: int | None = None

    def observe(self, counter: int, now_s: float) -> None:
        rise = 0 if self._last is None else counter - self._last if counter >= self._last else counter
        self._last = counter
        if rise:
            self._rises.append((now_s, rise))
            self._sum += rise
            if len(self._rises) > self._limit:
                (_, oldest), (at_s, older) = self._rises.popleft(), self._rises.popleft()
                self._rises.appendleft((at_s, oldest + older))

    def value(self, now_s: float) -> int:
        rises = self._rises
        horizon_s = now_s - self._window_s
        while rises and rises[0][0] < horizon_s:
            self._sum -= rises.popleft()[1]
        return self._sum
