"""Opening text logs: from paths to one stream of chat requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from eactl.errors import TraceError
from eactl.trace.bytestream import OnBytes
from eactl.trace.call import Notice, Source
from eactl.trace.chat import ChatRequest
from eactl.trace.discover import find_files
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import Reader
from eactl.trace.readers.textbase import TextReader

_NAMED = 3


def open_chat(
    paths: Sequence[Path], options: TraceOptions | None = None, *, on_bytes: OnBytes | None = None
) -> ChatStream:
    """Look at every file under ``paths`` and make ready to read their requests.

    Paths and errors as in eactl.trace.open_trace. A trace of block ids holds no text and is refused with TraceError.
    """
    options = options or TraceOptions()
    readers, warnings = find_files(paths, options, on_bytes)
    texts = [reader for reader in readers if isinstance(reader, TextReader)]
    others = [reader for reader in readers if not isinstance(reader, TextReader)]
    if not texts:
        what = (
            f"a {others[0].name} trace holds" if len(others) == 1 else f"all {len(others)} files are traces that hold"
        )
        raise TraceError(
            f"{what} no text", where=others[0].file.name if len(others) == 1 else str(paths[0]),
            hint="eactl size and eactl trace profile read it; a log of messages is needed here",
        )  # fmt: skip
    if others:
        warnings.append(_left_out(others))
    return ChatStream(texts, warnings)


def _left_out(others: Sequence[Reader]) -> Notice:
    names = ", ".join(reader.file.name for reader in others[:_NAMED])
    more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
    kinds = " and ".join(dict.fromkeys(reader.name for reader in others))
    are = "traces without text, which were" if len(others) > 1 else "trace without text, which was"
    return Notice("no-text", f"{names}{more}: {kinds} {are} left out", "eactl size and eactl trace profile read them")


class ChatStream:
    """The requests of one or several logs, lazily; iterate once.

    Files come one after the other, parts of one log (rotated files) in the order of their first times; within a file,
    and within what belongs together (a folder of one file per request), requests come in the order in which they were
    sent. ``sources`` has one entry per file; their counters fill while requests are taken.
    """

    def __init__(self, readers: Sequence[TextReader], warnings: list[Notice]) -> None:
        self._readers = readers
        self.warnings = warnings
        self.total_bytes = sum(reader.file.size_bytes for reader in readers)
        for reader in readers:
            reader.join(readers)

    @property
    def sources(self) -> list[Source]:
        """What was opened, file by file."""
        return [reader.source for reader in self._readers]

    def __iter__(self) -> Iterator[ChatRequest]:
        readers = list(self._readers)
        starts = [reader.first_s for reader in readers]
        if len({type(reader) for reader in readers}) == 1 and None not in starts:
            readers.sort(key=lambda reader: reader.first_s or 0.0)
        for reader in readers:
            yield from reader.requests()
        if not any(source.calls for source in self.sources):
            where = self.sources[0].path if len(self.sources) == 1 else f"{len(self.sources)} files"
            raise TraceError("the log holds no requests", where=where, hint="check that it was written completely")
