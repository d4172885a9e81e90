"""Following sources over time: rates between readings, restarts, gaps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from eactl.telemetry.exported import COUNTERS
from eactl.telemetry.record import TierRecord
from eactl.telemetry.sources import Reading, Source


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one source. ``error`` says why there is no record; ``rates`` are counters per second."""

    source: str
    at_s: float
    reading: Reading | None
    error: str | None = None
    restarted: bool = False
    gap_s: float | None = None  # it could not be read for so long before this
    rates: dict[str, float] = field(default_factory=dict)


class Follower:
    """Reads one source again and again; remembers what the last record said."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._last: TierRecord | None = None
        self._last_read_s: float | None = None
        self._failing = False

    def look(self) -> Sample:
        """Read the source once. Never raises for a source that cannot be read now."""
        now_s = time.time()
        name = self._source.name
        try:
            reading = self._source.read()
        except (OSError, ValueError) as error:
            self._failing = True
            text = getattr(error, "strerror", None) or str(error)
            return Sample(name, now_s, None, text)
        record = reading.record
        gap_s = now_s - self._last_read_s if self._failing and self._last_read_s is not None else None
        restarted = record is not None and _restarted(self._last, record)
        rates = {} if restarted else _rates(self._last, record)
        self._last, self._last_read_s, self._failing = record, now_s, False
        return Sample(name, now_s, reading, None, restarted, gap_s, rates)


def follow(sources: Sequence[Source], interval_s: float, *, once: bool = False) -> Iterator[Sample]:
    """One sample of every source per interval, for ever or once."""
    followers = [Follower(source) for source in sources]
    while True:
        due_s = time.monotonic() + interval_s
        for follower in followers:
            yield follower.look()
        if once:
            return
        time.sleep(max(0.0, due_s - time.monotonic()))


def _restarted(before: TierRecord | None, now: TierRecord) -> bool:
    if before is None:
        return False
    if before.started_at_s is not None and now.started_at_s is not None:
        return abs(now.started_at_s - before.started_at_s) > 1
    return any((value := getattr(now, name)) is not None and value < (getattr(before, name) or 0) for name in COUNTERS)


def _rates(before: TierRecord | None, now: TierRecord | None) -> dict[str, float]:
    if before is None or now is None or now.at_s <= before.at_s:
        return {}
    seconds = now.at_s - before.at_s
    rates = {}
    for name in COUNTERS:
        first, last = getattr(before, name), getattr(now, name)
        if first is not None and last is not None and last >= first:
            rates[name] = (last - first) / seconds
    return rates
