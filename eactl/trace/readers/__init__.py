"""The readers, one module per format, in the order in which detection asks them."""

from __future__ import annotations

from eactl.errors import TraceError, UsageError
from eactl.trace.readers.bailian import BailianReader
from eactl.trace.readers.base import Reader
from eactl.trace.readers.counts import CountsOnlyReader
from eactl.trace.readers.kv_cache_tester import KvCacheTesterReader
from eactl.trace.readers.lmcache_lookup import LmcacheLookupReader
from eactl.trace.readers.mooncake import MooncakeReader
from eactl.trace.readers.mooncake_delta import MooncakeDeltaReader
from eactl.trace.readers.native import NativeReader
from eactl.trace.readers.texttable import TEXT_READERS
from eactl.trace.tracefile import Head

READERS: tuple[type[Reader], ...] = (
    NativeReader,
    MooncakeReader,
    BailianReader,
    KvCacheTesterReader,
    LmcacheLookupReader,
    MooncakeDeltaReader,
    *TEXT_READERS,
    CountsOnlyReader,
)


def names() -> list[str]:
    """The names that ``--format`` takes."""
    return [reader.name for reader in READERS if not reader.refuses]


def by_name(name: str) -> type[Reader]:
    """The reader called ``name``; UsageError lists the known ones."""
    wanted = name.lower().replace("_", "-")
    for reader in READERS:
        if reader.name == wanted and not reader.refuses:
            return reader
    raise UsageError(f"no trace format {name!r}", where="--format", hint=f"known are {', '.join(names())}")


def detect(head: Head, shown: str) -> type[Reader]:
    """The first reader that recognises the head; TraceError says why each did not."""
    reasons: dict[str, list[str]] = {}
    for reader in READERS:
        if reader.on_request:
            continue
        reason = reader.sniff(head)
        if reason is None:
            return reader
        if not reader.refuses:
            reasons.setdefault(reader.family, []).append(f"{reader.name} ({reason})")
    if not head.records and not head.data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        raise TraceError(
            "the format is not known, as the file holds no JSON and no request lines of a vLLM or SGLang log",
            where=shown, hint="logs are JSON: one object per request or line, or one document; --format names the kind",
        )  # fmt: skip
    known = "; ".join(f"as a {family}: {', '.join(why)}" for family, why in reasons.items())
    raise TraceError(f"the format is not known, {known}", where=shown, hint="--format names one for certain")
