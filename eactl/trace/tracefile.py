"""A trace file as readers get it: its first bytes for detection, then its bytes or lines, once, in order."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from eactl.errors import TraceError
from eactl.trace.bytestream import CutStreamError, OnBytes, is_stdin, open_bytes, plain_chunks, raw_chunks, shown

HEAD_BYTES = 1 << 18
HEAD_LINE_BYTES = 1 << 23  # a first line longer than this is no line of a trace
LINE_BYTES = 1 << 28
DOCUMENT_BYTES = 1 << 30
BATCH_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Head:
    """The beginning of a file: what detection may look at."""

    path: Path
    data: bytes
    whole: bool  # the file holds nothing more

    @cached_property
    def records(self) -> list[Any]:
        """The JSON values on the first lines, at most eight.

        Lines that are not JSON are passed over, but a text that begins otherwise and is mostly otherwise (a README
        with an example in it) has none.
        """
        lines = self.data.split(b"\n", 64)
        if not self.whole:
            del lines[-1:]
        found: list[Any] = []
        tried, begins_so = 0, False
        for line in lines[:64]:
            if len(found) == 8:
                break
            if line.strip():
                tried += 1
                try:
                    found.append(orjson.loads(line))
                    begins_so = begins_so or tried == 1
                except orjson.JSONDecodeError:
                    continue
        return found if begins_so or 2 * len(found) >= tried else []

    @cached_property
    def record(self) -> dict[str, Any]:
        """The first JSON object on a line of its own; empty when there is none."""
        return next((value for value in self.records if isinstance(value, dict)), {})


@dataclass
class LineBatch:
    """Lines of about a MiB together; ``numbers`` are their places in the file, from 1."""

    lines: list[bytes]
    numbers: list[int] | range
    cut: bool = False  # the last line has no line end: it may be half a line


@dataclass
class TraceFile:
    """One input file. ``head`` is read when it is made; the contents are read once, by the reader."""

    path: Path
    head: Head
    size_bytes: int
    on_bytes: OnBytes | None = None
    batch_bytes: int = BATCH_BYTES
    ended_early: TraceError | None = None  # compressed data ended in the middle and that was tolerated
    _pending: Iterator[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """How messages name the file."""
        return shown(self.path)

    @classmethod
    def open(cls, path: Path, on_bytes: OnBytes | None = None) -> TraceFile:
        """Look at the beginning of ``path``. Raises TraceError when it cannot be read or is empty."""
        regular, size = True, 0
        if is_stdin(path):
            regular = False
        else:
            try:
                status = path.stat()
            except OSError as error:
                what = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
                raise TraceError(what, where=str(path), hint="check the path") from None
            regular = stat.S_ISREG(status.st_mode)
            size = status.st_size if regular else 0
        stream = open_bytes(path)
        chunks = plain_chunks(raw_chunks(stream, path, None if regular else on_bytes), path)
        parts: list[bytes] = []
        size_read, line_ended, whole = 0, False, False
        try:
            while size_read < HEAD_BYTES or (not line_ended and size_read < HEAD_LINE_BYTES):
                chunk = next(chunks, b"")
                if not chunk:
                    whole = True
                    break
                parts.append(chunk)
                size_read += len(chunk)
                line_ended = line_ended or b"\n" in chunk
        except CutStreamError as error:
            if not parts:
                raise
            if not regular:
                chunks = _raising(error)
        finally:
            if regular:
                stream.close()
        data = b"".join(parts)
        if not data.strip():
            raise TraceError("the file is empty", where=shown(path), hint="check that it was written completely")
        head = Head(path, data.removeprefix(_BOM), whole)
        pending = None if regular else _chain(data, chunks)
        return cls(path, head, size, on_bytes, _pending=pending)

    @property
    def reads_again(self) -> bool:
        """Whether the contents can be read more than once; a pipe's cannot."""
        return self._pending is None and not is_stdin(self.path)

    def again(self) -> TraceFile:
        """The same file, to be read from its beginning without counting."""
        return TraceFile(self.path, self.head, self.size_bytes, batch_bytes=self.batch_bytes)

    def forget_head(self) -> None:
        """Let go of the head's bytes: thousands of files may wait to be read."""
        self.head = Head(self.path, b"", whole=self.head.whole)

    def chunks(self) -> Iterator[bytes]:
        """The decompressed contents in pieces."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            yield from pending
            return
        with open_bytes(self.path) as stream:
            yield from plain_chunks(raw_chunks(stream, self.path, self.on_bytes), self.path)

    def document(self) -> bytes:
        """The whole contents, for formats that are one JSON value. Raises TraceError beyond 1 GiB."""
        pieces, total = [], 0
        for chunk in self.chunks():
            total += len(chunk)
            if total > DOCUMENT_BYTES:
                raise TraceError("one JSON document of more than 1 GiB", where=self.name, hint="split the session")
            pieces.append(chunk)
        return b"".join(pieces).removeprefix(_BOM)

    def batches(self, *, tolerate_cut: bool) -> Iterator[LineBatch]:
        """The lines in batches, without line ends and without blank lines.

        With ``tolerate_cut`` compressed data that ends in the middle ends the lines (see ``ended_early``).
        """
        number = 1
        for block, last in self._whole_lines(tolerate_cut):
            cut = last and not block.endswith(b"\n")
            lines = block.split(b"\n")
            if not cut:
                del lines[-1]
            numbers: list[int] | range = range(number, number + len(lines))
            number += len(lines)
            if b"" in lines or any(map(bytes.isspace, lines)):
                kept = [(line, at) for line, at in zip(lines, numbers, strict=True) if line and not line.isspace()]
                lines, numbers = [line for line, _ in kept], [at for _, at in kept]
                cut = cut and bool(block.rpartition(b"\n")[2].strip())
            if lines:
                yield LineBatch(lines, numbers, cut)

    def _whole_lines(self, tolerate_cut: bool) -> Iterator[tuple[bytes, bool]]:
        """Blocks that end at a line end, the last one perhaps not; with each whether it is the last."""
        parts: list[bytes] = []
        size, first, ended_line = 0, True, False
        chunks = self.chunks()
        while True:
            try:
                chunk = next(chunks, b"")
            except CutStreamError as error:
                if not tolerate_cut:
                    raise
                self.ended_early = error
                chunk = b""
            if not chunk:
                break
            if first:
                chunk, first = chunk.removeprefix(_BOM), False
            parts.append(chunk)
            size += len(chunk)
            ended_line = ended_line or b"\n" in chunk
            if size > LINE_BYTES and not ended_line:
                raise TraceError("a line of more than 256 MiB", where=self.name, hint="this is not a line-based trace")
            if size >= self.batch_bytes and ended_line:
                block = b"".join(parts)
                end = block.rfind(b"\n") + 1
                yield block[:end], False
                parts, size, ended_line = [block[end:]], len(block) - end, False
        block = b"".join(parts)
        if block:
            yield block, True


def _chain(data: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield data
    yield from rest


def _raising(error: TraceError) -> Iterator[bytes]:
    raise error
    yield b""
