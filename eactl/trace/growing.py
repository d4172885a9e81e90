"""Sequences that grow at their end and share what they have in common.

The prompts of a session are such sequences: each is the one before and a few messages. A turn then costs time in
what it adds, not in what the session holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, count, islice
from operator import is_not, ne
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Grown(Sequence[T]):
    """An unchanging sequence: the first ``len`` items of a list that sequences grown from it share.

    Growing costs a step per new item; items are copied only where the list has grown past this sequence already,
    so that another end is begun. Items are shared objects: read them, do not change them.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = list(items)
        self._length = len(self._items)

    @classmethod
    def of(cls, items: Sequence[T]) -> Grown[T]:
        """``items`` itself if it is one already, else a copy."""
        return items if isinstance(items, Grown) else cls(items)

    def grown(self, added: Sequence[T]) -> Grown[T]:
        """This sequence followed by ``added``."""
        if not added:
            return self
        items = self._items
        if self._length < len(items):
            items = items[: self._length]
        items.extend(added)
        return self._view(items, len(items))

    def upto(self, length: int) -> Grown[T]:
        """The first ``length`` items, or all if there are fewer."""
        return self if length >= self._length else self._view(self._items, length)

    def shares_with(self, other: object) -> bool:
        """Whether both are views of one list, so that the shorter one begins the longer one."""
        return isinstance(other, Grown) and other._items is self._items

    @staticmethod
    def _view(items: list[T], length: int) -> Grown[T]:
        view: Grown[T] = Grown.__new__(Grown)
        view._items, view._length = items, length
        return view

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._items[start:stop:step] if step > 0 else list(self)[index]
        if -self._length <= index < 0:
            return self._items[self._length + index]
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        if self.shares_with(other) and len(self) == len(other):  # type: ignore[arg-type]
            return True
        return list(self) == list(other) if isinstance(other, (Grown, list)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Grown({list(self)!r})"


def first_difference(old: Sequence[Any], new: Sequence[Any]) -> int:
    """Index of the first object that is not the same in both, or the shorter length."""
    limit = min(len(old), len(new))
    if isinstance(old, Grown) and old.shares_with(new):
        return limit
    return next(compress(count(), map(is_not, old, new)), limit)


def first_unequal(old: Sequence[Any], new: Sequence[Any], start: int = 0) -> int:
    """Index, from ``start`` on, of the first item that is not equal in both, or the shorter length."""
    limit = min(len(old), len(new))
    if isinstance(old, Grown) and old.shares_with(new):
        return limit
    differ = map(ne, islice(old, start, None), islice(new, start, None))
    return next(compress(count(start), differ), limit)
