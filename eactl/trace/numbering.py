"""Chained block ids for prompts whose own ids are local, unchained, huge or of several spaces."""

from __future__ import annotations

from array import array

import numpy as np

from eactl.model.forest import ForestBuilder
from eactl.trace.call import Ids


class ChainedNumbering:
    """Gives every distinct prefix of whole blocks one small number: equal number, equal space and equal prefix.

    Numbers count up from 0 in the order in which blocks are first seen. Memory is that of the prefix forest, about
    eight bytes per distinct block. A node's blocks were all brought by the same insertion, so its numbers are the
    depths of its blocks plus a constant of that insertion.
    """

    def __init__(self) -> None:
        self._forest = ForestBuilder()
        self._end = [0]  # depth at which each node ends, in blocks
        self._offset = array("q")  # by insertion: number of a block it brought, less the block's depth
        self._next = 0

    def number(self, space: object, ids: Ids) -> Ids:
        """The chained numbers of a prompt's blocks."""
        forest = self._forest
        root = forest.root(space, 1)
        place = forest.insert(root, ids)
        shared, total = place.shared_units, len(ids)
        self._offset.append(self._next - shared)
        self._next += total - shared
        self._end.extend([0] * (len(forest) - len(self._end)))
        if not total:
            return ids
        node = place.path_node
        self._end[node] = total
        if shared < total:
            self._end[forest.parent_of(node)] = shared
        numbers = np.arange(total, dtype=np.int64)
        while node != root:
            parent = forest.parent_of(node)
            numbers[self._end[parent] : self._end[node]] += self._offset[forest.made_by(node)]
            node = parent
        return numbers

    def fresh(self) -> int:
        """A number that no block has."""
        self._next += 1
        return self._next - 1
