"""From the options of ``eactl trace convert`` to the trace on disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from eactl.cli.progress import byte_progress
from eactl.errors import UsageError
from eactl.report.files import atomic_writer, refuse_overwrite
from eactl.trace import TraceOptions, open_trace
from eactl.trace.compress import compressed
from eactl.trace.convert import ConvertSettings, convert


def run_convert(
    paths: Sequence[Path],
    options: TraceOptions,
    settings: ConvertSettings,
    output: Path,
    *,
    force: bool,
    as_json: bool,
) -> dict[str, Any]:
    """Convert, and say what was written (the fields of ``eactl.convert/1``)."""
    to_stdout = str(output) == "-"
    if to_stdout and as_json:
        raise UsageError("standard output holds the trace", where="--json", hint="write the trace to a file")
    if not settings.sessions and settings.to != "mooncake":
        raise UsageError("only Mooncake lines have sessions", where="--no-sessions", hint="add --to mooncake")
    if not to_stdout and not _is_special(output):
        refuse_overwrite(output, force=force)
    with byte_progress("converting") as progress:
        trace = open_trace(paths, options, on_bytes=progress)
        progress.total(trace.total_bytes)
        with _opened(output) as stream, compressed(stream, output) as packed:
            result = convert(trace, packed, settings)
    return {
        "output": str(output),
        "output_bytes": None if to_stdout or _is_special(output) else output.stat().st_size,
        "format": settings.to,
        "prompt": result.kind,
        "block_tokens": result.block_tokens,
        "calls": result.calls,
        "tasks": result.tasks,
        "prompt_tokens": result.prompt_tokens,
        "output_tokens": result.output_tokens,
        "sources": [source.as_dict() for source in trace.sources],
        "warnings": [notice.as_dict() for notice in result.warnings],
    }


@contextmanager
def _opened(output: Path) -> Iterator[IO[bytes]]:
    if str(output) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif _is_special(output):
        with output.open("wb") as stream:
            yield stream
    else:
        with atomic_writer(output) as stream:
            yield stream


def _is_special(output: Path) -> bool:
    """A pipe or a device: written to as it is, never replaced by a file."""
    return output.exists() and not output.is_file()
