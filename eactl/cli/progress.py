"""Progress and warnings on standard error; bars only where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import click


@contextmanager
def byte_progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback ``(done, total)`` that draws a bar on a terminal, or None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield show


def show_warnings(warnings: Sequence[Mapping[str, str]]) -> None:
    """Each warning once, with what to do about it."""
    for warning in warnings:
        hint = f" ({warning['hint']})" if warning.get("hint") else ""
        click.echo(f"eactl: warning: {warning['text']}{hint}", err=True)
