"""Opening traces: from paths to one stream of calls in scheduled order."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
_MOST_OPEN = 32  # files that are all opened at once


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
        """The calls of all files by time; of many files only those are open whose time has come."""
        owner: dict[str, int] = {}
        heads = [head for number, reader in enumerate(self._readers) if (head := self._head(number, reader))]
        absolute = [reader.absolute_times for reader in self._readers]
        starts = [head.latest_s for head in heads if absolute[head.number] and head.arrives]
        origin = min(starts, default=0.0)
        for head in heads:
            head.origin_s = origin if absolute[head.number] else 0.0
        queue = [(head.latest_s - head.origin_s, head.number, head) for head in heads]
        heapq.heapify(queue)
        while queue:
            _, number, head = queue[0]
            call = head.call
            if call is not None:
                if head.origin_s and call.arrival_s is not None:
                    call.arrival_s -= head.origin_s
                if call.task is not None and owner.setdefault(call.task, number) != number:
                    call.task = f"{call.task}#{number + 1}"
                    owner[call.task] = number
                yield call
            if head.advance():
                heapq.heapreplace(queue, (head.latest_s - head.origin_s, number, head))
            else:
                heapq.heappop(queue)

    def _head(self, number: int, reader: Reader) -> _Head | None:
        head = _Head(number, reader)
        if len(self._readers) > _MOST_OPEN:
            arrival = reader.peek_arrival_s()
            if arrival is not None:
                head.latest_s, head.arrives = arrival, True
                return head
        return head if head.advance() else None


@dataclass(slots=True)
class _Head:
    """One file of several: its next call, and the latest arrival so far, which never falls, so that a file keeps its
    own order whatever its clock does. Without a call it has not been opened."""

    number: int
    reader: Reader
    call: Call | None = None
    latest_s: float = float("-inf")
    arrives: bool = False  # the first call has an arrival
    origin_s: float = 0.0
    calls: Iterator[Call] | None = None

    def advance(self) -> bool:
        """Take the next call; False at the end."""
        first = self.calls is None
        if self.calls is None:
            self.calls = self.reader.calls()
        self.call = next(self.calls, None)
        if self.call is None:
            return False
        arrival = self.call.arrival_s
        if first:
            self.arrives = arrival is not None
        if arrival is not None and arrival > self.latest_s:
            self.latest_s = arrival
        return True


def _shifted(calls: Iterable[Call]) -> Iterator[Call]:
    origin: float | None = None
    for call in calls:
        if call.arrival_s is not None:
            origin = call.arrival_s if origin is None else origin
            call.arrival_s -= origin
        yield call
