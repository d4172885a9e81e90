"""One series of timed copies: one device, one direction, one kind of host memory, several sizes; and its fit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from eactl.model.obr import Figure
from eactl_probes.copying import Copier, fill, same_bytes, time_copies
from eactl_probes.sampling import Effort, LineFit, Samples, fit_line, sample

if TYPE_CHECKING:
    import torch

Direction = Literal["h2d", "d2h"]

_ROUNDS = 5  # in which all ranks copy at once


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """All times of one size."""

    size_bytes: int
    samples: Samples


@dataclass
class Series:
    """Points grow while the series is measured; fits are made from whatever is there."""

    gpu: int | None
    direction: Direction
    memory: str  # "pinned" or "pageable"
    numa_node: int | None = None
    points: list[SeriesPoint] = field(default_factory=list)
    verified: bool = True

    def fit(self, edge: Literal["median", "low", "high"] = "median") -> LineFit | None:
        """Time over bytes through the medians, or through the fast or slow edge of each size's samples."""
        if len(self.points) < 2:
            return None
        times = [getattr(point.samples, f"{edge}_s") for point in self.points]
        fitted = fit_line([point.size_bytes for point in self.points], times)
        return fitted if fitted.slope > 0 else None

    @property
    def bandwidth(self) -> Figure | None:
        """Bytes/s from the slope, with the band of the samples; None before two sizes are measured."""
        fits = self._fits()
        if fits is None:
            return None
        rates = sorted(1 / fit.slope for fit in fits)
        return Figure(1 / fits[0].slope, rates[0], rates[-1], "measured")

    @property
    def overhead(self) -> Figure | None:
        """Seconds that every copy costs whatever its size, from the intercept."""
        fits = self._fits()
        if fits is None:
            return None
        seconds = sorted(fit.intercept for fit in fits)
        return Figure(fits[0].intercept, seconds[0], seconds[-1], "measured")

    def _fits(self) -> tuple[LineFit, LineFit, LineFit] | None:
        middle, low, high = self.fit(), self.fit("low"), self.fit("high")
        return (middle, low, high) if middle and low and high else None


@dataclass(frozen=True, slots=True)
class Buffers:
    """A host and a device buffer of the same size."""

    host: torch.Tensor
    device: torch.Tensor

    def ends(self, direction: Direction) -> tuple[torch.Tensor, torch.Tensor]:
        """(destination, source)."""
        return (self.device, self.host) if direction == "h2d" else (self.host, self.device)


def measure_series(
    copier: Copier, buffers: Buffers, series: Series, sizes: Sequence[int], effort: Effort
) -> Iterator[SeriesPoint]:
    """Measure each size in turn, adding to ``series`` and yielding as it goes; ``effort.seconds`` is per size.

    Successive copies use successive places of the buffers: what is restored has long left the processor's caches.
    """
    destination, source = buffers.ends(series.direction)
    fill(buffers.host)
    if series.direction == "d2h":
        buffers.device.copy_(buffers.host)
    for size in sizes:
        slots = _slots(source.numel(), size)

        def measure(size: int = size, slots: Iterator[int] = slots) -> float:
            at = next(slots)
            return time_copies(copier, [(destination[at : at + size], source[at : at + size])])

        point = SeriesPoint(size, sample(measure, effort))
        series.points.append(point)
        series.verified &= _verify(copier, destination[:size], source[:size])
        yield point


def _slots(total: int, size: int) -> Iterator[int]:
    """Offsets that walk through the buffer again and again."""
    count = max(1, total // size)
    position = 0
    while True:
        yield position * size
        position = (position + 1) % count


def _verify(copier: Copier, destination: torch.Tensor, source: torch.Tensor) -> bool:
    destination.zero_()
    time_copies(copier, [(destination, source)])
    return same_bytes(destination, source)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Copies as a tier makes them: chunks at random places of the host buffer, whole or one piece per layer."""

    name: str
    gpu: int | None
    piece_bytes: int
    pieces: int
    samples: Samples

    @property
    def bytes_per_s(self) -> float:
        """Rate over the whole restore, launches between the pieces included."""
        return self.bandwidth.value

    @property
    def bandwidth(self) -> Figure:
        """The same with the band of its samples."""
        total, samples = self.piece_bytes * self.pieces, self.samples
        return Figure(total / samples.median_s, total / samples.high_s, total / samples.low_s, "measured")


def measure_pattern(
    copier: Copier, buffers: Buffers, name: str, chunk_bytes: int, pieces_per_chunk: int, effort: Effort
) -> Pattern:
    """Restore up to 256 MiB of chunks (at most 512 copies) in one go, many times."""
    room = buffers.host.numel() // chunk_bytes
    chunks = max(1, min(room, (256 << 20) // chunk_bytes, 512 // pieces_per_chunk))
    places = random.Random(0).sample(range(room), chunks)  # noqa: S311 - placement, not a secret
    piece = chunk_bytes // pieces_per_chunk
    pairs = []
    for slot, place in enumerate(places):
        for part in range(pieces_per_chunk):
            to, at = slot * chunk_bytes + part * piece, place * chunk_bytes + part * piece
            pairs.append((buffers.device[to : to + piece], buffers.host[at : at + piece]))
    samples = sample(lambda: time_copies(copier, pairs), effort)
    return Pattern(name, copier.index, piece, len(pairs), samples)


@dataclass(frozen=True, slots=True)
class RankRate:
    """What one rank copied in each round in which all copied at once: as many bytes each time, and their seconds."""

    gpu: int | None
    copied_bytes: int
    samples: Samples

    @property
    def bandwidth(self) -> Figure:
        """Bytes/s of the median round, and the band of all."""
        total, samples = self.copied_bytes, self.samples
        return Figure(total / samples.median_s, total / samples.high_s, total / samples.low_s, "measured")


def measure_together(copiers: Sequence[Copier], buffers: Sequence[Buffers], seconds: float) -> list[RankRate]:
    """The rate of every rank while all copy host to device at once.

    A first round of equal work finds the rates; in those that count each rank gets work for the same time, so that
    none finishes early and leaves the others the link.
    """
    size = min(64 << 20, *(pair.host.numel() for pair in buffers))
    first = _together(copiers, buffers, size, [2] * len(copiers))
    # Each round's copies are bounded, as all of them are queued before the first is waited for.
    copies = [max(2, min(256, round(2 * seconds / _ROUNDS / took))) for took in first]
    rounds = [_together(copiers, buffers, size, copies) for _ in range(_ROUNDS)]
    return [
        RankRate(copier.index, count * size, Samples(times))
        for copier, count, times in zip(copiers, copies, zip(*rounds, strict=True), strict=True)
    ]


def _together(copiers: Sequence[Copier], buffers: Sequence[Buffers], size: int, copies: Sequence[int]) -> list[float]:
    """Seconds that each rank took for its number of copies."""
    waits = []
    for copier, pair, count in zip(copiers, buffers, copies, strict=True):
        slots = _slots(pair.host.numel(), size)
        offsets = [next(slots) for _ in range(count)]
        waits.append(copier.start([(pair.device[at : at + size], pair.host[at : at + size]) for at in offsets]))
    return [wait() for wait in waits]


def time_nothing(copier: Copier) -> Samples:
    """Seconds that the timing itself reports for no copy at all: what the overhead of a copy contains of it."""
    return Samples(tuple(time_copies(copier, []) for _ in range(20)))
