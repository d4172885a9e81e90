"""Bytes of a trace file, whatever it is wrapped in: plain, gzip or zstd, told by the first bytes, not the name."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Protocol, cast

from eactl.errors import TraceError

CHUNK_BYTES = 1 << 18
# A zstd block of a few bytes can stand for 128 KiB: small pieces keep what one call can produce small.
_ZSTD_PIECE_BYTES = 1 << 12
_INFLATE_BYTES = 1 << 22
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_OTHER_ARCHIVES = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf": "7-Zip",
}

OnBytes = Callable[[int], None]


class CutStreamError(TraceError):
    """The compressed data ends in the middle; what came before it was handed out."""


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def is_stdin(path: Path) -> bool:
    """Whether ``path`` is ``-``."""
    return str(path) == "-"


def shown(path: Path) -> str:
    """The path as messages name it."""
    return "standard input" if is_stdin(path) else str(path)


def open_bytes(path: Path) -> BufferedReader:
    """The raw bytes of ``path`` (``-``: standard input). Raises TraceError when it cannot be opened."""
    if is_stdin(path):
        return cast(BufferedReader, sys.stdin.buffer)
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise TraceError("no such file", where=str(path), hint="check the path") from None
    except OSError as error:
        raise TraceError(error.strerror or str(error), where=str(path), hint="check the path") from None


def raw_chunks(stream: BufferedReader, path: Path, on_bytes: OnBytes | None) -> Iterator[bytes]:
    """The file in pieces; ``on_bytes`` hears how many bytes of the file each piece took."""
    while True:
        try:
            chunk = stream.read1(CHUNK_BYTES)  # what a pipe has now: waiting for a full chunk defers Ctrl-C
        except OSError as error:
            raise TraceError(error.strerror or str(error), where=shown(path), hint="check the disk") from None
        if not chunk:
            return
        if on_bytes is not None:
            on_bytes(len(chunk))
        yield chunk


def plain_chunks(chunks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    """Decompressed pieces, each at most a few MiB. Raises TraceError for damaged data, CutStreamError for a cut end."""
    first = next(chunks, b"")
    while len(first) < 8:
        more = next(chunks, b"")
        if not more:
            break
        first += more
    if first.startswith(_GZIP):
        return _gunzip(_put_back(first, chunks), path)
    if first.startswith(_ZSTD):
        return _unzstd(_put_back(first, chunks), path)
    for magic, name in _OTHER_ARCHIVES.items():
        if first.startswith(magic):
            raise TraceError(
                f"{name} compression is not read here", where=shown(path), hint="decompress it, or use gzip or zstd"
            )
    return _put_back(first, chunks)


def _put_back(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _gunzip(chunks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    decoder = None
    for chunk in chunks:
        data = chunk
        while data:
            if decoder is None:
                if not data.strip(b"\x00"):  # padding after the last member (tar, tape)
                    break
                decoder = zlib.decompressobj(wbits=31)
            try:
                plain = decoder.decompress(data, _INFLATE_BYTES)
            except zlib.error as error:
                raise _damaged("gzip", path, error) from None
            if plain:
                yield plain
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            if decoder.eof:
                decoder = None
    if decoder is not None:
        plain = decoder.flush()
        if plain:
            yield plain
        raise _cut("gzip", path)


def _unzstd(chunks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    decoder: _Decoder | None = None
    for chunk in chunks:
        for start in range(0, len(chunk), _ZSTD_PIECE_BYTES):
            data = chunk[start : start + _ZSTD_PIECE_BYTES]
            while data:
                if decoder is None:
                    decoder = _zstd_decoder()
                try:
                    plain = decoder.decompress(data)
                except Exception as error:  # the two bindings have unrelated error classes
                    raise _damaged("zstd", path, error) from None
                if plain:
                    yield plain
                data = b""
                if decoder.eof:
                    data = decoder.unused_data
                    decoder = None
    if decoder is not None:
        raise _cut("zstd", path)


def _zstd_decoder() -> _Decoder:
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdDecompressor()
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


def _damaged(kind: str, path: Path, error: Exception) -> TraceError:
    return TraceError(
        f"damaged {kind} data ({error})", where=shown(path), hint="copy the file again, or test it with the archiver"
    )


def _cut(kind: str, path: Path) -> CutStreamError:
    return CutStreamError(
        f"the {kind} data is cut at its end",
        where=shown(path),
        hint="the file may still be being written; --skip-bad-lines reads what is there",
    )
