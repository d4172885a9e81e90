"""LRU stack ranks per run of the prefix forest: the reference model of a tier, at every capacity at once.

METHOD.md "Reference model of a tier" (Eq. 4, 9, App. C). After a request all its chunks lie on top of the LRU
stack, head first, so what a request still owns of the stack is always one contiguous stretch of its path: later
requests share a *prefix* of the path and take it from the top. A request's prompt is therefore covered by a few
stretches of earlier requests, ranks rise by one along each, and from one stretch to the next by what was touched
in between: one prefix sum per stretch, whatever the context length or the chunk size. Because ranks rise along
the prompt, "leading chunks resident at capacity K" is "chunks with rank below K" (Mattson's inclusion).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eactl.model.workload import Int64s, Workload


@dataclass(frozen=True)
class Pieces:
    """Stretches of consecutive chunks that a request found in the stack; one array entry per stretch.

    ``request`` and ``owner`` are positions in the order (the owner touched the chunks last), ``first_chunk`` is
    the chunk's index in the prompt, ``rank`` the LRU stack rank of that chunk; the following ``length - 1``
    chunks have the following ranks.
    """

    request: Int64s
    owner: Int64s
    first_chunk: Int64s
    length: Int64s
    rank: Int64s
    chunks: Int64s  # per request: full chunks of its prompt

    def beyond(self, resident: Int64s, chunk_tokens: int) -> Pieces:
        """The stretches without the chunks that end within ``resident`` tokens (per request) of the prompt."""
        stop = self.first_chunk + self.length
        begin = np.clip(resident[self.request] // chunk_tokens, self.first_chunk, stop)
        some = begin < stop
        return Pieces(
            request=self.request[some],
            owner=self.owner[some],
            first_chunk=begin[some],
            length=(stop - begin)[some],
            rank=(self.rank + begin - self.first_chunk)[some],
            chunks=self.chunks,
        )


def stack_pieces(workload: Workload, order: Sequence[int], chunk_tokens: int, *, with_output: bool) -> Pieces:
    """All stretches of earlier KV that the calls of ``order`` find, with their LRU stack ranks.

    ``order`` holds call numbers in scheduling order. With ``with_output`` a call also touches its output blocks
    (the GPU tier); lookups always stop at the prompt's end. Time: O(stretches · log calls); the number of
    stretches is logarithmic per call, amortised.
    """
    calls = np.asarray(order, dtype=np.int64)
    prompt = workload.prompt_tokens[calls]
    touched = prompt + np.maximum(workload.output_tokens[calls], 0) if with_output else prompt
    weights = (touched // chunk_tokens).tolist()
    prompt_chunks = prompt // chunk_tokens
    nodes: list[int] = (workload.path_node if with_output else workload.prompt_node)[calls].tolist()
    limits: list[int] = prompt_chunks.tolist()

    paths = workload.paths
    meet, towards, end, first_below_root = paths.meet, paths.towards, paths.end, paths.first_below_root
    top_owner = [-1] * len(end)  # node at the top of a stretch -> position of the request that owns it
    stack = _Counts(len(nodes))
    requests, owners, firsts, lengths, ranks = (array("q") for _ in range(5))

    for position, node in enumerate(nodes):
        if end[node] > 0:
            limit = limits[position]
            top = first_top = first_below_root[node]
            taken = 0  # chunks of this path found so far
            while (owner := top_owner[top]) >= 0:
                split = meet(node, nodes[owner])
                upto = end[split] // chunk_tokens
                if upto > taken:
                    found = min(upto, limit) - taken
                    if found > 0:
                        requests.append(position)
                        owners.append(owner)
                        firsts.append(taken)
                        lengths.append(found)
                        ranks.append(stack.above(owner) + taken)
                    stack.add(owner, taken - upto)
                    taken = upto
                if nodes[owner] != split:
                    top_owner[towards(split, nodes[owner])] = owner
                if split == node:
                    break
                top = towards(split, node)
            top_owner[first_top] = position
        stack.add(position, weights[position])

    return Pieces(
        request=_int64s(requests),
        owner=_int64s(owners),
        first_chunk=_int64s(firsts),
        length=_int64s(lengths),
        rank=_int64s(ranks),
        chunks=prompt_chunks,
    )


def resident_tokens(workload: Workload, order: Sequence[int], *, block_tokens: int, capacity_tokens: int) -> Int64s:
    """G_j for each call of ``order``: tokens of its prompt that the GPU cache of ``capacity_tokens`` holds.

    Whole blocks, at most n_j - 1, because the engine always computes the last token.
    """
    pieces = stack_pieces(workload, order, block_tokens, with_output=True)
    capacity = capacity_tokens // block_tokens
    found = np.clip(capacity - pieces.rank, 0, pieces.length)
    blocks = np.zeros(len(order), dtype=np.int64)
    np.add.at(blocks, pieces.request, found)
    prompt = workload.prompt_tokens[np.asarray(order, dtype=np.int64)]
    at_most = np.maximum(prompt - 1, 0) // block_tokens
    tokens: Int64s = np.minimum(blocks, at_most) * block_tokens
    return tokens


class _Counts:
    """Chunks owned per request, with the number owned by all later requests (a Fenwick tree)."""

    __slots__ = ("size", "total", "tree")

    def __init__(self, size: int) -> None:
        self.size = size
        self.tree = [0] * (size + 1)
        self.total = 0

    def add(self, position: int, chunks: int) -> None:
        self.total += chunks
        tree, size = self.tree, self.size
        index = position + 1
        while index <= size:
            tree[index] += chunks
            index += index & -index

    def above(self, position: int) -> int:
        tree = self.tree
        index = position + 1
        below = 0
        while index:
            below += tree[index]
            index &= index - 1
        return self.total - below


def _int64s(values: array[int]) -> Int64s:
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.empty(0, dtype=np.int64)
