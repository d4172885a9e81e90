"""Writing results so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eactl.errors import UsageError


def is_special(path: Path) -> bool:
    """Whether ``path`` is a pipe or a device: written to as it is, never replaced by a file."""
    return path.exists() and not path.is_file()


def refuse_overwrite(path: Path, *, force: bool, option: str = "--output") -> None:
    """Raise UsageError when ``path`` is a file and ``--force`` was not given: call before the expensive part."""
    if is_special(path):
        return
    if path.exists() and not force:
        raise UsageError(f"{path} exists", where=option, hint="choose another name or add --force")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory", where=option, hint="create it first")


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under ``path`` whole when the block ends, and not at all if it fails.

    A pipe or a device is written to directly.
    """
    if is_special(path):
        with path.open("wb") as stream:
            yield stream
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)  # mkstemp's 0600 would surprise whoever shares the folder
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
