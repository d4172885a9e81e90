"""Opening traces: from paths to one stream of calls in scheduled order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from eactl.errors import TraceError
from eactl.trace.bytestream import OnBytes
from eactl.trace.call import Call, Notice, PromptKind, Source
from eactl.trace.discover import find_files
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import Reader

_BATCHES_BYTES = 32 << 20  # all files together hold about this much undecoded text
_LEAST_BATCH_BYTES = 1 << 16
_MOST_BATCH_BYTES = 1 << 19


def open_trace(
    paths: Sequence[Path], options: TraceOptions | None = None, *, on_bytes: OnBytes | None = None
) -> TraceStream:
    """Look at every file under ``paths`` and make ready to read their calls.

    ``paths`` are files, directories (walked) or ``-``. ``on_bytes`` hears how many bytes of the files each step
    took, out of ``TraceStream.total_bytes``. Raises TraceError for a path that cannot be read, UsageError for an
    unknown format name.
    """
    options = options or TraceOptions()
    readers, warnings = find_files(paths, options, on_bytes)
    return TraceStream(readers, options, warnings)


class TraceStream:
    """The calls of one or several files, lazily; iterate once.

    ``sources`` has one entry per file; their counters fill while calls are taken. One file keeps its own order;
    several are merged by arrival, ties by the order of the files. Tasks of different files never share a name,
    ids that mean something in one file only never share a scope.
    """

    def __init__(self, readers: Sequence[Reader], options: TraceOptions, warnings: list[Notice]) -> None:
        self._readers = readers
        self._options = options
        self.warnings = warnings
        self.total_bytes = sum(reader.file.size_bytes for reader in readers)
        local = sum(reader.local_ids for reader in readers)
        if local > 1:
            warnings.append(
                Notice(
                    "local-ids",
                    f"block ids of {local} files mean something within their file only: what files share is not seen",
                    "if they are parts of one recording, pipe them in as one: cat ... | eactl ... -",
                )
            )
        batch = _BATCHES_BYTES // len(readers)
        seen: dict[bytes, str] = {}
        for number, reader in enumerate(readers, 1):
            reader.seen_sessions = seen
            reader.file.batch_bytes = max(_LEAST_BATCH_BYTES, min(_MOST_BATCH_BYTES, batch))
            if reader.local_ids and len(readers) > 1:
                reader.scope = f"file {number}"
            reader.join(readers)

    @property
    def sources(self) -> list[Source]:
        """What was opened, file by file."""
        return [reader.source for reader in self._readers]

    @property
    def kind(self) -> PromptKind:
        """``tokens`` if every file holds token ids, else ``blocks``."""
        return "tokens" if all(source.kind == "tokens" for source in self.sources) else "blocks"

    @property
    def unit_tokens(self) -> int | None:
        """Tokens per id; None if the files differ."""
        units = {source.unit_tokens for source in self.sources}
        return units.pop() if len(units) == 1 else None

    def __iter__(self) -> Iterator[Call]:
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterable[Call]]:
        if len(self._readers) > 1:
            yield self._merged()
        elif self._readers[0].absolute_times:
            yield _shifted(self._readers[0].calls())
        else:
            yield from self._readers[0].batches()
        if not any(source.calls for source in self.sources):
            raise self._no_calls()

    def _no_calls(self) -> TraceError:
        where = self.sources[0].path if len(self.sources) == 1 else f"{len(self.sources)} files"
        for reader in self._readers:
            if reader.skipped_because:
                what = f"nothing could be read, the first {reader.skipped_because}"
                return TraceError(what, where=where, hint="this may be another format; --format names one")
        return TraceError("the trace holds no calls", where=where, hint="check that it was written completely")

    def _merged(self) -> Iterator[Call]:
        owner: dict[str, int] = {}
        streams = [_timed(number, reader) for number, reader in enumerate(self._readers)]
        first = [next(stream, None) for stream in streams]
        starts = [
            call.arrival_s
            for entry, reader in zip(first, self._readers, strict=True)
            if entry is not None and reader.absolute_times and (call := entry[2]).arrival_s is not None
        ]
        origin = min(starts, default=0.0)
        heap = [
            _starting_at(origin if reader.absolute_times else 0.0, entry, stream)
            for entry, stream, reader in zip(first, streams, self._readers, strict=True)
            if entry is not None
        ]
        for _, number, call in heapq.merge(*heap, key=lambda entry: entry[:2]):
            if call.task is not None and owner.setdefault(call.task, number) != number:
                call.task = f"{call.task}#{number + 1}"
                owner[call.task] = number
            yield call


_Entry = tuple[float, int, Call]


def _timed(number: int, reader: Reader) -> Iterator[_Entry]:
    """Calls with a sort key that never falls, so that a file keeps its own order whatever its clock does."""
    latest = float("-inf")
    for call in reader.calls():
        if call.arrival_s is not None and call.arrival_s > latest:
            latest = call.arrival_s
        yield latest, number, call


def _starting_at(origin: float, first: _Entry, rest: Iterator[_Entry]) -> Iterator[_Entry]:
    yield _moved(first, origin)
    if not origin:
        yield from rest
        return
    for entry in rest:
        yield _moved(entry, origin)


def _moved(entry: _Entry, origin: float) -> _Entry:
    latest, number, call = entry
    if origin and call.arrival_s is not None:
        call.arrival_s -= origin
    return latest - origin, number, call


def _shifted(calls: Iterable[Call]) -> Iterator[Call]:
    origin: float | None = None
    for call in calls:
        if call.arrival_s is not None:
            origin = call.arrival_s if origin is None else origin
            call.arrival_s -= origin
        yield call
