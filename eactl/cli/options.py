"""Options that several commands share, with one meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def output_options(command: F) -> F:
    """``--json``, ``--output FILE`` and ``--force``: see eactl.report.document.emit."""
    command = click.option("--force", is_flag=True, help="Let --output replace an existing file.")(command)
    command = click.option(
        "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help="Write the JSON document to FILE (atomically) instead of standard output.",
    )(command)  # fmt: skip
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")(command)


def trace_options(command: F) -> F:
    """``--format``, ``--block-tokens`` and ``--skip-bad-lines``: how input files are to be read."""
    command = click.option(
        "--skip-bad-lines", is_flag=True,
        help="Leave out lines that cannot be read; they are counted and named in the result.",
    )(command)  # fmt: skip
    command = click.option(
        "--block-tokens", type=click.IntRange(min=1), metavar="N",
        help="Tokens per block id, for formats that do not record it (Mooncake: 512).",
    )(command)  # fmt: skip
    return click.option(
        "--format", "format_name", metavar="NAME", help="Trace format (default: detected; an unknown name lists them)."
    )(command)
