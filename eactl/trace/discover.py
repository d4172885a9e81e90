"""From the paths a user names to the readers of the files behind them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from eactl.errors import TraceError
from eactl.trace.bytestream import OnBytes, is_stdin
from eactl.trace.call import Notice
from eactl.trace.options import TraceOptions
from eactl.trace.readers import by_name, detect
from eactl.trace.readers.base import Reader
from eactl.trace.tracefile import TraceFile

_NAMED_FILES = 10


def find_files(
    paths: Sequence[Path], options: TraceOptions, on_bytes: OnBytes | None
) -> tuple[list[Reader], list[Notice]]:
    """A reader for every trace file under ``paths``, in order, and notices about files passed over.

    A file named by the user must be readable; inside a directory, files of other kinds are passed over and named.
    Raises TraceError for the former, and for a directory without a single readable file.
    """
    if not paths:
        raise TraceError("no trace given", hint="name a file or a directory")
    forced = by_name(options.format) if options.format else None
    readers: list[Reader] = []
    notices: list[Notice] = []
    seen: dict[tuple[int, int], Path] = {}
    for path in paths:
        if not path.is_dir():
            if not _again(path, seen, notices):
                readers.append(_made(*_recognised(path, on_bytes, forced, sniffed=False), options))
            continue
        found, foreign = 0, []
        for file in _walk(path):
            if _again(file, seen, notices):
                found += 1
                continue
            try:
                opened, kind = _recognised(file, on_bytes, forced, sniffed=True)
            except TraceError as error:
                foreign.append((file, error))
                continue
            readers.append(_made(opened, kind, options))
            found += 1
        if not found:
            raise _nothing_readable(path, foreign)
        if foreign:
            notices.append(_passed_over(path, foreign))
    return readers, notices


def _recognised(
    path: Path, on_bytes: OnBytes | None, forced: type[Reader] | None, *, sniffed: bool
) -> tuple[TraceFile, type[Reader]]:
    """The file and its reader; TraceError if it is no trace. ``sniffed``: not even if the format was given."""
    file = TraceFile.open(path, on_bytes)
    kind = forced or detect(file.head, file.name)
    reason = kind.sniff(file.head) if forced and sniffed else None
    if reason is not None:
        raise TraceError(f"not {kind.name}: {reason}", where=file.name)
    if kind.refuses:
        kind(file, TraceOptions())  # which says why
    return file, kind


def _made(file: TraceFile, kind: type[Reader], options: TraceOptions) -> Reader:
    reader = kind(file, options)
    file.forget_head()
    return reader


def _walk(directory: Path) -> Iterator[Path]:
    """Files below ``directory`` in sorted order; hidden ones are left out."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder) / name
            if not name.startswith(".") and path.is_file():  # no pipes: opening one would wait for its writer
                yield path


def _again(path: Path, seen: dict[tuple[int, int], Path], notices: list[Notice]) -> bool:
    """Whether the very same file was met before (named twice, or inside a directory also named)."""
    if is_stdin(path):
        return False
    try:
        status = path.stat()
    except OSError:
        return False  # opening it gives the message
    key = (status.st_dev, status.st_ino)
    if key in seen:
        notices.append(Notice("same-file", f"{path} is the same file as {seen[key]} and was read once"))
        return True
    seen[key] = path
    return False


def _nothing_readable(directory: Path, foreign: list[tuple[Path, TraceError]]) -> TraceError:
    if not foreign:
        return TraceError("the directory holds no files", where=str(directory), hint="check the path")
    file, error = foreign[0]
    none = f"none of the {len(foreign)} files" if len(foreign) > 1 else "nothing"
    return TraceError(
        f"{none} in the directory can be read as a trace, {file.name}: {error.what}",
        where=str(directory), hint=error.hint,
    )  # fmt: skip


def _passed_over(directory: Path, foreign: list[tuple[Path, TraceError]]) -> Notice:
    named = ", ".join(
        f"{file.relative_to(directory)} ({error.what.partition(', as ')[0]})" for file, error in foreign[:_NAMED_FILES]
    )  # what each reader misses is said about a file that the user names
    more = f" and {len(foreign) - _NAMED_FILES} more" if len(foreign) > _NAMED_FILES else ""
    many = (
        f"{len(foreign)} files in {directory} are no traces"
        if len(foreign) > 1
        else f"1 file in {directory} is no trace"
    )
    return Notice("passed-over-files", f"{many}: {named}{more}")
