"""The readers, one module per format, in the order in which detection asks them."""

from __future__ import annotations

from eactl.errors import TraceError, UsageError
from eactl.trace.readers.base import Reader
from eactl.trace.readers.mooncake import MooncakeReader
from eactl.trace.readers.native import NativeReader
from eactl.trace.tracefile import Head

READERS: tuple[type[Reader], ...] = (
    NativeReader,
    MooncakeReader,
)


def by_name(name: str) -> type[Reader]:
    """The reader called ``name``; UsageError lists the known ones."""
    wanted = name.lower().replace("_", "-")
    for reader in READERS:
        if reader.name == wanted:
            return reader
    known = ", ".join(reader.name for reader in READERS)
    raise UsageError(f"no trace format {name!r}", where="--format", hint=f"known: {known}")


def detect(head: Head, shown: str) -> type[Reader]:
    """The first reader that recognises the head; TraceError says why each did not."""
    why: list[str] = []
    for reader in READERS:
        reason = reader.sniff(head)
        if reason is None:
            return reader
        why.append(f"{reader.name} ({reason})")
    raise TraceError(
        "no known trace format", where=shown, hint=f"known: {'; '.join(why)}; --format names one for certain"
    )
