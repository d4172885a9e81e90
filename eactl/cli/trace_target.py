"""Where a command writes a trace: a file that appears whole, standard output, a pipe or a device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eactl.report.files import atomic_writer, is_special, refuse_overwrite
from eactl.trace.compress import compressed


def is_stdout(output: Path | None) -> bool:
    """Whether ``output`` is ``-``."""
    return str(output) == "-"


def check_target(output: Path, *, force: bool) -> None:
    """Raise UsageError where ``output`` may not be written; call before the expensive part."""
    if not is_stdout(output):
        refuse_overwrite(output, force=force)


@contextmanager
def open_target(output: Path) -> Iterator[IO[bytes]]:
    """A binary stream to ``output``, compressed as its suffix says."""
    with _opened(output) as stream, compressed(stream, output) as packed:
        yield packed


def written_bytes(output: Path) -> int | None:
    """Size of the file, None where there is no file."""
    return None if is_stdout(output) or is_special(output) else output.stat().st_size


@contextmanager
def _opened(output: Path) -> Iterator[IO[bytes]]:
    if is_stdout(output):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with atomic_writer(output) as stream:
            yield stream
