"""The capacity curve: coverage, restored and computed tokens at every tier size, from one list of stretches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from eactl.model.reuse import Pieces
from eactl.model.workload import Int64s


class _Ramps:
    """The sum of many ramps: each rises by one per chunk of capacity from ``start`` to ``stop``, then stays."""

    def __init__(self, start: Int64s, stop: Int64s) -> None:
        self.start, self.start_sum = _sorted_sums(start)
        self.stop, self.stop_sum = _sorted_sums(stop)

    def at(self, capacity: Int64s) -> Int64s:
        return _rise(self.start, self.start_sum, capacity) - _rise(self.stop, self.stop_sum, capacity)


def _sorted_sums(values: Int64s) -> tuple[Int64s, Int64s]:
    ordered = np.sort(values)
    return ordered, np.concatenate(([0], np.cumsum(ordered, dtype=np.int64)))


def _rise(ordered: Int64s, sums: Int64s, capacity: Int64s) -> Int64s:
    """Σ max(0, capacity - value) over the values."""
    below = np.searchsorted(ordered, capacity)
    rise: Int64s = below * capacity - sums[below]
    return rise


class _Steps:
    """The sum of many steps: each adds ``height`` once the capacity exceeds ``at``."""

    def __init__(self, at: Int64s, height: Int64s) -> None:
        order = np.argsort(at, kind="stable")
        self.position = at[order]
        self.sums = np.concatenate(([0], np.cumsum(height[order], dtype=np.int64)))

    def at(self, capacity: Int64s) -> Int64s:
        heights: Int64s = self.sums[np.searchsorted(self.position, capacity)]
        return heights


@dataclass(frozen=True)
class CurvePoint:
    """What a tier of ``chunks`` chunks does for the whole trace (METHOD.md: Σ H·b, Σ R, Σ U; exact integers)."""

    chunks: int
    coverage_tokens: int
    restored_tokens: int
    computed_tokens: int
    restoring_calls: int  # requests with R_j > 0, each of which pays the fixed restore overhead


class CapacityCurve:
    """Coverage, restored and computed tokens as exact functions of the tier's capacity in chunks.

    ``resident`` is G_j per request of the order (0 everywhere: no GPU cache). Per request H'_j = min(H_j·b,
    n_j - 1) tokens can be restored, R_j = max(0, H'_j - G_j) are, U_j = n_j - max(G_j, H'_j) are computed.
    A chunk is resident once the capacity exceeds its rank, so every stretch of chunks adds a ramp, and the
    two chunks where the GPU's part ends and where the last token is always computed add a step each.
    """

    def __init__(self, pieces: Pieces, prompt_tokens: Int64s, resident: Int64s, chunk_tokens: int) -> None:
        self.chunk_tokens = chunk_tokens
        self.prompt_tokens = int(prompt_tokens.sum())
        self.resident_tokens = int(resident.sum())
        self._coverage = _Ramps(pieces.rank, pieces.rank + pieces.length)
        needed = pieces.beyond(resident, chunk_tokens)
        self._restored = _Ramps(needed.rank, needed.rank + needed.length)
        resident_of, whole = resident[needed.request], prompt_tokens[needed.request]
        partial = resident_of // chunk_tokens  # the chunk in which the GPU's part ends
        starts_here = needed.first_chunk == partial
        restores = starts_here & (np.minimum((partial + 1) * chunk_tokens, whole - 1) > resident_of)
        self._restoring = np.sort(needed.rank[restores])
        last = (needed.first_chunk + needed.length) * chunk_tokens == whole
        self._corrections = _Steps(
            np.concatenate((needed.rank[starts_here], (needed.rank + needed.length - 1)[last])),
            np.concatenate(
                ((partial * chunk_tokens - resident_of)[starts_here], np.full(int(last.sum()), -1, dtype=np.int64))
            ),
        )

    def coverage_tokens(self, chunks: npt.ArrayLike) -> Int64s:
        """Σ H_j·b at each capacity in ``chunks``."""
        return self._coverage.at(_capacities(chunks)) * self.chunk_tokens

    def restored_tokens(self, chunks: npt.ArrayLike) -> Int64s:
        """Σ R_j at each capacity in ``chunks``."""
        capacity = _capacities(chunks)
        return self._restored.at(capacity) * self.chunk_tokens + self._corrections.at(capacity)

    def restoring_calls(self, chunks: npt.ArrayLike) -> Int64s:
        """How many requests restore anything at each capacity in ``chunks``."""
        return np.searchsorted(self._restoring, _capacities(chunks))

    def points(self, chunks: npt.ArrayLike) -> list[CurvePoint]:
        """One point per capacity in ``chunks``, in the given order."""
        capacity = _capacities(chunks)
        computed_without = self.prompt_tokens - self.resident_tokens
        return [
            CurvePoint(size, coverage, restored, computed_without - restored, restoring)
            for size, coverage, restored, restoring in zip(
                capacity.tolist(),
                self.coverage_tokens(capacity).tolist(),
                self.restored_tokens(capacity).tolist(),
                self.restoring_calls(capacity).tolist(),
                strict=True,
            )
        ]

    @property
    def saturation_chunks(self) -> int:
        """The smallest capacity that covers all there is to cover."""
        return int(self._coverage.stop[-1]) if len(self._coverage.stop) else 0

    @property
    def best_restored_tokens(self) -> int:
        """Σ R_j of a tier that never evicts."""
        return int(self.restored_tokens([self.saturation_chunks])[0])

    def smallest_for_share(self, share: float) -> int:
        """The smallest capacity in chunks whose restored tokens reach ``share`` of the best (0: there are none)."""
        return self._smallest(lambda chunks: int(self.restored_tokens([chunks])[0]), share * self.best_restored_tokens)

    def smallest_for_coverage(self, share: float) -> int:
        """The smallest capacity in chunks whose coverage reaches ``share`` of the best (0: there is none)."""
        best = int(self.coverage_tokens([self.saturation_chunks])[0])
        return self._smallest(lambda chunks: int(self.coverage_tokens([chunks])[0]), share * best)

    def _smallest(self, tokens_at: Callable[[int], int], wanted: float) -> int:
        low, high = 0, self.saturation_chunks
        while low < high:
            middle = (low + high) // 2
            if tokens_at(middle) >= wanted:
                high = middle
            else:
                low = middle + 1
        return low

    @property
    def knee_chunks(self) -> int:
        """Where more stops paying: beyond it no step restores even half as much per chunk as the curve on average.

        Taken on the curve's concave hull, so that a flat stretch before a cliff is not mistaken for the end.
        """
        best, end = self.best_restored_tokens, self.saturation_chunks
        if not best:
            return 0
        sizes = np.unique(np.concatenate(([0, end], self._restored.start, self._restored.stop)))
        hull: list[tuple[int, int]] = []
        for size, tokens in zip(sizes.tolist(), self.restored_tokens(sizes).tolist(), strict=True):
            while len(hull) > 1 and _falls_below(hull[-2], hull[-1], (size, tokens)):
                hull.pop()
            hull.append((size, tokens))
        for (size, tokens), (next_size, next_tokens) in pairwise(hull):
            if 2 * (next_tokens - tokens) * end < best * (next_size - size):
                return size
        return end


def _falls_below(left: tuple[int, int], middle: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether ``middle`` lies on or below the line from ``left`` to ``right``."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])


def _capacities(chunks: npt.ArrayLike) -> Int64s:
    return np.asarray(chunks, dtype=np.int64)
