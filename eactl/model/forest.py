"""The prefix forest: which prompts share which prefix, without keeping the prompts.

A prompt is a path from a root (one root per scope, salt and model: KV is never shared across roots). The forest
is a radix tree over those paths; a node is a stretch of tokens between two branching points. It is built one
call at a time, and a call costs a few steps, not one per block: the path of the most recent call through any
point is kept as one contiguous *run* of ids, so a new prompt is compared with a handful of runs (the preferred
paths of a link-cut tree, whose number is logarithmic per call amortised), each comparison one vector operation.

Memory is proportional to the number of branching points, besides a fixed amount for ids: runs that no call came by
for longest are set aside in a temporary file, whose size is proportional to the distinct ids.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eactl.model.idstore import NOWHERE, IdStore, Stored

SUPER_ROOT = 0
HELD_BYTES = 32 << 20  # ids in memory
_LEAST_BYTES = 1 << 12  # a run this small is not worth a place in a file


class Placement(NamedTuple):
    """Where a call's prompt ends in the forest, and where prompt and output end together."""

    prompt_node: int
    path_node: int
    shared_units: int  # longest prefix shared with any earlier path under the same root


class _Run:
    """The stretch of one path that its latest call left contiguous, from ``start`` down to ``stop``.

    ``ids`` holds the path's ids from depth ``base`` on, maybe with room for more: the next call of an agent
    mostly appends, and then only what is new has to be copied. ``stored`` says where the first of them lie in a
    file; when all do, ``ids`` may be empty. ``path`` is the number of the insertion whose path it is.
    """

    __slots__ = ("base", "ends", "ids", "nodes", "path", "start", "stored")

    def __init__(
        self, ids: npt.NDArray[Any], base: int, start: int, nodes: list[int], ends: list[int], path: int,
        stored: Stored = NOWHERE,
    ) -> None:  # fmt: skip
        self.ids = ids
        self.base = base
        self.start = start
        self.nodes = nodes  # from top to bottom
        self.ends = ends  # their end depths, in units from the root
        self.path = path
        self.stored = stored

    @property
    def stop(self) -> int:
        return self.ends[-1]

    def common_with(self, ids: npt.NDArray[Any], known: int) -> int:
        """The depth down to which the path of ``ids`` runs along; both agree above ``start`` and above ``known``."""
        base, stop = self.base, min(self.ends[-1], len(ids))
        start = max(self.start, min(known, stop))
        if start == stop:
            return stop
        differs = self.ids[start - base : stop - base] != ids[start:stop]
        first = int(differs.argmax())
        return start + first if differs[first] else stop

    def id_at(self, depth: int) -> int:
        return int(self.ids[depth - self.base])

    def extended(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
        """An array that begins with ``ids``, which go on where this run stops; None if it holds less than that."""
        if self.base or self.ids.dtype != ids.dtype:
            return None
        kept, stop = self.ids, self.stop
        if len(kept) < len(ids):
            kept = np.empty(len(ids) + len(ids) // 2, dtype=ids.dtype)
            kept[:stop] = self.ids[:stop]
        kept[stop : len(ids)] = ids[stop:]
        return kept


class ForestBuilder:
    """Inserts paths of ids and hands out the nodes at which they end.

    Nodes keep their number and their end for ever: a split puts a new node above the old one. About ``held_bytes``
    of ids stay in memory.
    """

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self._parent = array("i", [SUPER_ROOT])
        self._end_units = array("q", [-1])
        self._unit_tokens = array("q", [1])
        self._first_id = array("q", [0])
        self._made_by = array("i", [-1])  # number of the insertion that brought the node's first block
        self._insertions = 0
        self._child: dict[int, int] = {}  # (node << 63) + first id -> child
        self._run_at: dict[int, _Run] = {}  # top node of a run -> run
        self._store = IdStore()
        self._limit_bytes = held_bytes
        self._held_bytes = 0
        self._held: dict[int, _Run] = {}  # those of the runs whose ids are in memory and might go, oldest use first
        self._roots: dict[object, int] = {}

    def __len__(self) -> int:
        return len(self._parent)

    def root(self, space: object, unit_tokens: int) -> int:
        """The root for one space of comparable prompts; ``unit_tokens`` tokens per id."""
        key = (space, unit_tokens)
        node = self._roots.get(key)
        if node is None:
            node = self._roots[key] = self._add_node(SUPER_ROOT, 0, 0, unit_tokens)
        return node

    def insert(
        self, root: int, ids: npt.NDArray[Any], prompt_units: int | None = None, like: tuple[int, int] = (-1, 0)
    ) -> Placement:
        """Put one path in; ``ids`` is the prompt, followed by the output where its ids are known.

        ``prompt_units`` says how many of them are prompt (default: all). ``like`` (i, k): the first k of them are
        those of insertion number i (from 0), so that they need not be compared with that path.
        """
        total = len(ids)
        self._insertions += 1
        mark = total if prompt_units is None else prompt_units
        nodes: list[int] = []
        ends: list[int] = []
        node, depth = root, 0
        kept: npt.NDArray[Any] | None = None
        stored = NOWHERE
        while depth < total:
            child = self._child.get((node << 63) + int(ids[depth]))
            if child is None:
                break
            run = self._pick(child)
            depth = run.common_with(ids, like[1] if run.path == like[0] else 0)
            kept = run.extended(ids) if depth == run.stop else None
            if run.ids.dtype == ids.dtype and stored.ids >= run.base:
                below = run.stored.part(0, depth - run.base, ids.itemsize)
                if run.base + below.ids > stored.ids:
                    stored = stored.part(0, run.base, ids.itemsize).followed_by(below)
            if not nodes and depth == run.stop:
                nodes, ends = run.nodes, run.ends
                node = nodes[-1]
            else:
                node = self._take(run, depth, nodes, ends)
        shared = depth
        if depth < total:
            first = int(ids[depth])
            leaf = self._add_node(node, total, first, self._unit_tokens[root])
            self._child[(node << 63) + first] = leaf
            nodes.append(leaf)
            ends.append(total)
            node = leaf
        if not nodes:
            return Placement(root, root, 0)
        # Unless an array is there to go on with, a copy: the caller's may be a view of a whole file.
        run = _Run(np.array(ids) if kept is None else kept, 0, 0, nodes, ends, self._insertions - 1, stored)
        prompt_node = root if mark == 0 else self._boundary(run, mark)
        self._lay_down(run)
        self._set_aside()
        return Placement(prompt_node, node, shared)

    def parent_of(self, node: int) -> int:
        """The node above ``node`` as the forest stands now."""
        return self._parent[node]

    def made_by(self, node: int) -> int:
        """Number of the insertion (from 0) that first reached ``node``."""
        return self._made_by[node]

    def freeze(self) -> Forest:
        """The finished forest; the builder can go on afterwards."""
        units = np.array(self._unit_tokens, dtype=np.int64)
        ends = np.array(self._end_units, dtype=np.int64) * units
        return Forest(parent=np.array(self._parent, dtype=np.int32), end_tokens=ends)

    def _add_node(self, parent: int, end: int, first: int, unit_tokens: int) -> int:
        self._parent.append(parent)
        self._end_units.append(end)
        self._first_id.append(first)
        self._unit_tokens.append(unit_tokens)
        self._made_by.append(self._insertions - 1)
        return len(self._parent) - 1

    def _pick(self, top: int) -> _Run:
        """Take the run at ``top`` away, its ids in memory."""
        run = self._run_at.pop(top)
        if self._held.pop(top, None) is not None:
            self._held_bytes -= run.ids.nbytes
        elif not len(run.ids):
            run.ids = self._store.get(run.stored, run.ids.dtype)
        return run

    def _lay_down(self, run: _Run) -> None:
        top = run.nodes[0]
        self._run_at[top] = run
        if run.ids.nbytes >= _LEAST_BYTES:
            self._held[top] = run
            self._held_bytes += run.ids.nbytes

    def _set_aside(self) -> None:
        """Store the ids of the runs of oldest use, but for the latest, while memory holds too many."""
        while self._held_bytes > self._limit_bytes and len(self._held) > 1:
            top = next(iter(self._held))
            run = self._held[top]
            stored = self._store.put(run.ids[: run.stop - run.base], run.stored)
            if stored is None:  # no place for a file: as if there were no limit
                self._limit_bytes = sys.maxsize
                return
            del self._held[top]
            self._held_bytes -= run.ids.nbytes
            run.stored, run.ids = stored, np.empty(0, dtype=run.ids.dtype)

    def _take(self, run: _Run, depth: int, nodes: list[int], ends: list[int]) -> int:
        """Move the part of ``run`` above ``depth`` to the new path; what is left stays a run of its own."""
        at = bisect_left(run.ends, depth)
        if run.ends[at] != depth:
            self._split(run, at, depth)
        nodes += run.nodes[: at + 1]
        ends += run.ends[: at + 1]
        if at + 1 < len(run.nodes):
            ids, base, stored = run.ids, run.base, run.stored
            if 2 * (run.stop - depth) <= len(ids):  # let go of the part that moved
                stored = stored.part(depth - base, run.stop - base, ids.itemsize)
                ids, base = ids[depth - base : run.stop - base].copy(), depth
            nodes_left, ends_left = run.nodes[at + 1 :], run.ends[at + 1 :]
            self._lay_down(_Run(ids, base, depth, nodes_left, ends_left, run.path, stored))
        return nodes[-1]

    def _boundary(self, run: _Run, depth: int) -> int:
        """The node of ``run`` that ends at ``depth``, made if need be."""
        at = bisect_left(run.ends, depth)
        if run.ends[at] != depth:
            self._split(run, at, depth)
        return run.nodes[at]

    def _split(self, run: _Run, at: int, depth: int) -> None:
        lower = run.nodes[at]
        parent, first = self._parent[lower], self._first_id[lower]
        upper = self._add_node(parent, depth, first, self._unit_tokens[lower])
        self._made_by[upper] = self._made_by[lower]
        self._child[(parent << 63) + first] = upper
        self._parent[lower] = upper
        self._first_id[lower] = first_below = run.id_at(depth)
        self._child[(upper << 63) + first_below] = lower
        run.nodes.insert(at, upper)
        run.ends.insert(at, depth)


@dataclass(frozen=True)
class Forest:
    """A finished prefix forest: ``parent`` and ``end_tokens`` by node number; node 0 joins all roots."""

    parent: npt.NDArray[np.int32]
    end_tokens: npt.NDArray[np.int64]

    def paths(self) -> PathIndex:
        """The index that answers common-ancestor questions."""
        return PathIndex(self)


class PathIndex:
    """Heavy paths of a forest: lowest common ancestors and steps towards a descendant in O(log nodes).

    Plain lists, because single reads dominate.
    """

    def __init__(self, forest: Forest) -> None:
        parent = forest.parent.tolist()
        order = np.argsort(forest.end_tokens, kind="stable").tolist()  # a parent ends before its children
        size = [1] * len(parent)
        for node in reversed(order):
            if node:
                size[parent[node]] += size[node]
        heavy = [-1] * len(parent)
        best = [0] * len(parent)
        for node in order:
            if node and size[node] > best[parent[node]]:
                best[parent[node]] = size[node]
                heavy[parent[node]] = node
        head = list(range(len(parent)))
        first_below_root = list(range(len(parent)))
        for node in order:
            above = parent[node]
            if node and heavy[above] == node:
                head[node] = head[above]
            if parent[above] != SUPER_ROOT or above == SUPER_ROOT:
                first_below_root[node] = first_below_root[above]
        self.parent: list[int] = parent
        self.end: list[int] = forest.end_tokens.tolist()
        self.head = head
        self.heavy = heavy
        self.first_below_root = first_below_root

    def meet(self, left: int, right: int) -> int:
        """The deepest node that both paths pass."""
        head, parent, end = self.head, self.parent, self.end
        while head[left] != head[right]:
            if end[head[left]] > end[head[right]]:
                left = parent[head[left]]
            else:
                right = parent[head[right]]
        return left if end[left] < end[right] else right

    def towards(self, ancestor: int, descendant: int) -> int:
        """The child of ``ancestor`` on the way to ``descendant`` (which lies strictly below it)."""
        head, parent = self.head, self.parent
        while head[descendant] != head[ancestor]:
            top = head[descendant]
            descendant = parent[top]
            if descendant == ancestor:
                return top
        return self.heavy[ancestor]
