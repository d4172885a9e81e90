"""What no policy can beat: Belady's MIN with bypass, on the same stretches as the LRU curve."""

from __future__ import annotations

import heapq

import numpy as np

from eactl.model.reuse import Pieces


class BestPolicy:
    """A tier that is told all future requests and may decline any write (the upper bound for admission).

    A stretch is one reuse interval per chunk, from its owner to the request that finds it. Kept intervals never
    exceed the capacity; when they would, the chunks needed farthest in the future go, deepest first, so what
    remains is always a prefix.
    """

    def __init__(self, pieces: Pieces, chunk_tokens: int) -> None:
        by_start = np.lexsort((pieces.first_chunk, pieces.owner))
        self._chunk_tokens = chunk_tokens
        self._requests = len(pieces.chunks)
        self._starts: list[int] = pieces.owner[by_start].tolist()
        self._stops: list[int] = pieces.request[by_start].tolist()
        self._lengths: list[int] = pieces.length[by_start].tolist()
        self._arrivals: list[int] = np.argsort(pieces.request[by_start], kind="stable").tolist()
        self._everything = int(pieces.length.sum())
        self._most_held = self._peak()

    def coverage_tokens(self, capacity_chunks: int) -> int:
        """Σ H_j·b at ``capacity_chunks``; O(stretches · log stretches).

        Made from stretches beyond what the GPU holds, it bounds Σ R_j instead.
        """
        if capacity_chunks >= self._most_held:
            return self._everything * self._chunk_tokens
        if capacity_chunks <= 0:
            return 0
        starts, stops, lengths, arrivals = self._starts, self._stops, self._lengths, self._arrivals
        kept = [0] * len(lengths)
        far: list[tuple[int, int, int]] = []  # needed last first; at equal need the longest untouched (deepest) first
        held = hits = begin = 0
        for piece in arrivals:
            request = stops[piece]
            while begin < len(starts) and starts[begin] < request:
                start = starts[begin]
                while begin < len(starts) and starts[begin] == start:
                    kept[begin] = lengths[begin]
                    held += lengths[begin]
                    heapq.heappush(far, (-stops[begin], start, begin))
                    begin += 1
                while held > capacity_chunks:
                    last = far[0][2]
                    drop = min(kept[last], held - capacity_chunks)
                    kept[last] -= drop
                    held -= drop
                    if not kept[last]:
                        heapq.heappop(far)
            hits += kept[piece]
            held -= kept[piece]
            kept[piece] = 0
        return hits * self._chunk_tokens

    def _peak(self) -> int:
        """The most chunks that are ever needed again at one time: a tier of that size covers everything."""
        change = np.zeros(self._requests + 1, dtype=np.int64)
        lengths = np.array(self._lengths, dtype=np.int64)
        np.add.at(change, np.array(self._starts, dtype=np.int64), lengths)
        np.add.at(change, np.array(self._stops, dtype=np.int64), -lengths)
        return int(np.cumsum(change).max(initial=0))
