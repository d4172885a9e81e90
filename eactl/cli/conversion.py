"""From the options of ``eactl trace convert`` to the trace on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eactl.cli.progress import byte_progress
from eactl.cli.trace_target import check_target, is_stdout, open_target, written_bytes
from eactl.errors import UsageError
from eactl.trace import TraceOptions, open_trace
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
    if is_stdout(output) and as_json:
        raise UsageError("standard output holds the trace", where="--json", hint="write the trace to a file")
    if not settings.sessions and settings.to != "mooncake":
        raise UsageError("only Mooncake lines have sessions", where="--no-sessions", hint="add --to mooncake")
    check_target(output, force=force)
    with byte_progress("converting") as progress:
        trace = open_trace(paths, options, on_bytes=progress)
        progress.total(trace.total_bytes)
        with open_target(output) as packed:
            result = convert(trace, packed, settings)
    return {
        "output": str(output),
        "output_bytes": written_bytes(output),
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
