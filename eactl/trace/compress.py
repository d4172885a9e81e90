"""Writing trace files compressed as their name says: ``.gz``, ``.zst`` or plain."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

_GZIP_LEVEL = 6
_ZSTD_LEVEL = 9


@contextmanager
def compressed(stream: IO[bytes], path: Path) -> Iterator[IO[bytes]]:
    """``stream`` behind the compressor that the suffix of ``path`` names.

    The bytes depend on the contents alone: no time and no file name is stored. ``stream`` stays open.
    """
    suffix = path.suffix.lower()
    if suffix == ".gz":
        with gzip.GzipFile("", "wb", _GZIP_LEVEL, stream, mtime=0) as zipped:
            yield cast(IO[bytes], zipped)
    elif suffix == ".zst":
        import zstandard

        with zstandard.ZstdCompressor(level=_ZSTD_LEVEL).stream_writer(stream, closefd=False) as packed:
            yield cast(IO[bytes], packed)
    else:
        yield stream
