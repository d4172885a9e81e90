"""Ids that are seldom looked at, in a temporary file: memory is for those in use."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from io import FileIO
from typing import Any

import numpy as np
import numpy.typing as npt

from eactl.errors import EactlError

_MOST_STRETCHES = 64  # an array in more pieces than this is written anew as one


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the first ``ids`` of an array lie: ``(first byte, ids)`` of each stretch."""

    stretches: tuple[tuple[int, int], ...] = ()
    ids: int = 0

    def part(self, start: int, stop: int, item_bytes: int) -> Stored:
        """Ids ``start`` to ``stop`` of them."""
        if start <= 0 and stop >= self.ids:
            return self
        found: list[tuple[int, int]] = []
        begin = 0
        for at, ids in self.stretches:
            first, last = max(start, begin), min(stop, begin + ids)
            if first < last:
                found.append((at + (first - begin) * item_bytes, last - first))
            begin += ids
        return Stored(tuple(found), sum(ids for _, ids in found))

    def followed_by(self, other: Stored) -> Stored:
        """Both, one behind the other."""
        return Stored(self.stretches + other.stretches, self.ids + other.ids)


NOWHERE = Stored()


class IdStore:
    """Arrays in a file without a name, made when first needed, that ends with the process.

    What was written stays: storing an array that grew writes what it grew by.
    """

    def __init__(self) -> None:
        self._file: FileIO | None = None
        self._size_bytes = 0

    def put(self, ids: npt.NDArray[Any], stored: Stored) -> Stored | None:
        """Store ``ids``, the first of which lie in ``stored`` already; None if no file takes them."""
        if len(stored.stretches) >= _MOST_STRETCHES:
            stored = NOWHERE
        added = np.ascontiguousarray(ids[stored.ids :])
        if not len(added):
            return stored
        at = self._size_bytes
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="eactl-", buffering=0)  # noqa: SIM115 - open to the end
            self._file.seek(at)
            rest = added.data.cast("B")
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            return None
        self._size_bytes += added.nbytes
        return stored.followed_by(Stored(((at, len(added)),), len(added)))

    def get(self, stored: Stored, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The array again. Raises EactlError if the file cannot be read."""
        ids = np.empty(stored.ids, dtype=dtype)
        into, filled = ids.data.cast("B"), 0
        try:
            for at, count in stored.stretches:
                end = filled + count * ids.itemsize
                self._read(at, into[filled:end])
                filled = end
        except OSError as error:
            raise EactlError(
                f"ids that were set aside cannot be read again ({error})",
                where=tempfile.gettempdir(),
                hint="set TMPDIR to a directory on a sound disk",
            ) from None
        return ids

    def _read(self, at: int, into: memoryview) -> None:
        if self._file is None:
            raise OSError("nothing was written")
        self._file.seek(at)
        while into:
            read = self._file.readinto(into)
            if not read:
                raise OSError("the file is cut")
            into = into[read:]
