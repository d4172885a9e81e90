"""From the options of ``eactl trace convert`` to the trace on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eactl.cli.progress import byte_progress
from eactl.cli.trace_target import check_target, is_stdout, open_target, written_bytes
from eactl.errors import UsageError
from eactl.trace import TraceOptions, open_trace
from eactl.trace.convert import convert
from eactl.trace.convert_plan import ConvertSettings
from eactl.trace.salt import Salt

SALT_VARIABLE = "EACTL_TRACE_SALT"


def read_salt(file: Path | None) -> Salt | None:
    """The user's salt, from ``file`` or else from the environment; None where there is none.

    Raises UsageError where it cannot be read or is too short. An empty one is refused too, not taken for none: it is
    mostly a script's mistake, and traces hashed with random salts can never be joined.
    """
    if file is not None:
        try:
            return Salt.given(file.read_bytes(), where="--salt-file")
        except OSError as error:
            what = f"{file} cannot be read ({error.strerror})"
            raise UsageError(what, where="--salt-file", hint="name a file that holds the salt") from None
    secret = os.environ.get(SALT_VARIABLE)
    return None if secret is None else Salt.given(os.fsencode(secret), where=SALT_VARIABLE)


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
        "ids": result.ids,
        "salt": None if not result.salted else "random" if settings.salt is None else "given",
        "calls": result.calls,
        "tasks": result.tasks,
        "prompt_tokens": result.prompt_tokens,
        "output_tokens": result.output_tokens,
        "sources": [source.as_dict() for source in trace.sources],
        "warnings": [notice.as_dict() for notice in result.warnings],
    }
