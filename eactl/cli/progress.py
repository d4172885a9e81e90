"""Progress and warnings on standard error; bars only where a person watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar


class ByteProgress:
    """A bar over the bytes of the input, silent unless standard error is a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._done = 0
        self._bar: ProgressBar[int] | None = None

    def total(self, total_bytes: int) -> None:
        """Draw the bar from here on, out of ``total_bytes``."""
        if sys.stderr.isatty() and total_bytes:
            self._bar = click.progressbar(
                length=total_bytes, label=self._label, file=sys.stderr, update_min_steps=1 << 20
            )
            self._bar.update(self._done)

    def __call__(self, read_bytes: int) -> None:
        """Count bytes just read."""
        self._done += read_bytes
        if self._bar is not None:
            self._bar.update(read_bytes)

    def close(self) -> None:
        """Leave the terminal clean for what follows."""
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None


@contextmanager
def byte_progress(label: str) -> Iterator[ByteProgress]:
    """Progress that is taken off the screen when the block ends, whatever ends it."""
    progress = ByteProgress(label)
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says what is being worked on, gone when the block ends; silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield lambda text: click.echo(f"\r\x1b[K{text} ...", err=True, nl=False)
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


def show_warnings(warnings: Sequence[Mapping[str, str]]) -> None:
    """Each warning once, with what to do about it."""
    for warning in warnings:
        hint = f" ({warning['hint']})" if warning.get("hint") else ""
        click.echo(f"eactl: warning: {warning['text']}{hint}", err=True)
