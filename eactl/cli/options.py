"""Options that several commands share, with one meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
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


_READING = (
    click.option(
        "--format", "format_name", metavar="NAME", help="Trace format (default: detected; an unknown name lists them)."
    ),
    click.option(
        "--block-tokens", type=click.IntRange(min=1), metavar="N",
        help="Tokens per block id, for formats that do not record it (Mooncake: 512).",
    ),
    click.option(
        "--skip-bad-lines", is_flag=True,
        help="Leave out lines that cannot be read; they are counted and named in the result.",
    ),
    click.option(
        "--drop-duplicates", is_flag=True, help="Leave out sessions that repeat an earlier one under another id."
    ),
    click.option(
        "--tokenizer", metavar="PATH",
        help="Text logs: tokenizer.json or model directory (default: an approximation).",
    ),
    click.option(
        "--chat-template", metavar="FILE",
        help="Text logs: template to render prompts with (default: the one beside --tokenizer).",
    ),
)  # fmt: skip


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How input files are to be read: the options together become the argument ``reading``, a TraceOptions."""

    @wraps(command)
    def with_reading(
        *args: Any,
        format_name: str | None,
        block_tokens: int | None,
        skip_bad_lines: bool,
        drop_duplicates: bool,
        tokenizer: str | None,
        chat_template: str | None,
        **kwargs: Any,
    ) -> Any:
        from eactl.trace.options import TraceOptions

        reading = TraceOptions(format_name, block_tokens, skip_bad_lines, drop_duplicates, tokenizer, chat_template)
        return command(*args, reading=reading, **kwargs)

    decorated: Callable[..., Any] = with_reading
    for option in reversed(_READING):
        decorated = option(decorated)
    return decorated
