"""LMCache's lookup-hash log: what its multi-process server was asked for, one JSON object per lookup.

Written with ``lmcache server --lookup-hash-log-dir DIR`` (LMCache 0.5.6,
``lmcache/v1/mp_observability/subscribers/logging/lookup_hash.py``) to ``lookup_hashes_<UTC time>_<number>.jsonl``,
rotated by age and size. Fields: ``timestamp`` (seconds since 1970, when the server got the lookup), ``request_id``,
``model_name``, ``chunk_size`` (tokens), ``seq_len`` (all tokens of the request), ``dtypes`` and ``shapes`` (one rank's
tensors per chunk), ``chunk_hashes``: ``"0x..."`` strings of chained hashes over full chunks (blake3 by default; eight
bytes where a 64-bit hash function is used), the same in every file of one server configuration.

What the log does not say: output lengths, cache salts (prompts of different salts look shared), and prompts shorter
than one chunk (their lookups are not logged). A preempted or retried request is looked up again under its old
``request_id``: the tier saw it, so each lookup counts as a call, and repeats are reported. The connector may keep a
request's last token out of the lookup; then a prompt of whole chunks lacks its last hash, and that chunk is taken as
unlike any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count, repeat
from math import prod
from typing import Any

import numpy as np

from eactl.errors import TraceError
from eactl.trace.call import Call, Ids
from eactl.trace.options import TraceOptions
from eactl.trace.readers import columns
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.clock import ClockWatch
from eactl.trace.readers.lines import LineReader
from eactl.trace.tracefile import Head, TraceFile

SCOPE = "lmcache"
_REMEMBERED_REQUESTS = 1 << 16
_ID_DIGITS = 16  # the last 64 bits of a hash, less the sign bit, make an id
_ID_MASK = (1 << 63) - 1
_OWN_IDS_FROM = 1 << 62
_DTYPE_BYTES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "half": 2, "int16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "uint8": 1, "int8": 1,
}  # fmt: skip


class LmcacheLookupReader(LineReader):
    """Calls of one lookup-hash log, in the order of the log."""

    name = "lmcache-lookup"
    local_ids = False
    scope = SCOPE
    absolute_times = True

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        size = file.head.record.get("chunk_size")
        if type(size) is not int or size < 1:
            raise TraceError(
                f"'chunk_size' is {columns.describe(size)}, not a number of tokens",
                where=self.at(1),
                hint="is this a lookup-hash log of LMCache?",
            )
        self.unit = self.block_tokens(size)
        self.source = self.make_source("blocks", self.unit, output_tokens=None, large_ids=True)
        self.source.kv_bytes_per_token_rank = _kv_bytes_per_token(file.head.record, size)
        self.warn(
            "salt-not-recorded",
            "LMCache's lookup log holds no cache salts: prompts of different salts count as sharing a prefix",
            "convert a trace that records salts where tenants are kept apart",
        )
        self._clock = ClockWatch()
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._repeats = 0
        self._own_ids = count(_OWN_IDS_FROM)

    @staticmethod
    def sniff(head: Head) -> str | None:
        for key in ("chunk_hashes", "seq_len"):
            if key not in head.record:
                return f"no {key!r}"
        return None

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        sizes = columns.token_counts(records, "chunk_size")
        if (sizes != self.unit).any():
            raise BadLineError(
                f"'chunk_size' is {int(sizes[sizes != self.unit][0])}, but the file began with {self.unit}"
            )
        prompt_tokens = columns.token_counts(records, "seq_len")
        ids = [_ids(hashes) for hashes in columns.lists(records, "chunk_hashes")]
        arrivals = columns.times_s(columns.required(records, "timestamp"), "timestamp", null=False)
        models = [model or None for model in columns.optional_texts(records, "model_name")]
        requests = columns.optional_texts(records, "request_id")
        full = (prompt_tokens // self.unit).tolist()
        for prompt, blocks in zip(ids, full, strict=True):
            if len(prompt) > blocks:
                raise BadLineError(
                    f"'chunk_hashes' lists {len(prompt)} chunks, but the request holds {blocks} full ones"
                )
        ids = [self._complete(prompt, blocks) for prompt, blocks in zip(ids, full, strict=True)]
        for request in requests:
            self._repeats += self._seen(request)
        self._clock.watch(arrivals)
        self.count(prompt_tokens, [None])
        return list(
            map(
                Call, repeat(None), prompt_tokens.tolist(), ids, repeat(self.unit), repeat(None), repeat(None),
                repeat(0), arrivals.tolist(), repeat(None), repeat(None), repeat(None), models, repeat(self.scope),
                repeat(0), numbers,
            )
        )  # fmt: skip

    def _complete(self, ids: Ids, blocks: int) -> Ids:
        """The prompt's ids, with one of its own for each full chunk that was not looked up."""
        if len(ids) == blocks:
            return ids
        own = [next(self._own_ids) for _ in range(blocks - len(ids))]
        return np.concatenate((ids, np.array(own, dtype=np.int64)))

    def _seen(self, request: str | None) -> bool:
        if not request:
            return False
        seen = request in self._recent
        self._recent[request] = None
        self._recent.move_to_end(request)
        if len(self._recent) > _REMEMBERED_REQUESTS:
            self._recent.popitem(last=False)
        return seen

    def finish(self) -> None:
        if self._repeats:
            self.warn(
                "repeated-lookups",
                f"{self._repeats} lookups carry the request id of an earlier one (preempted or "
                "retried requests, or ids chosen by clients); each counts as a call",
            )
        notice = self._clock.notice()
        if notice:
            self.warn(*notice)
        super().finish()


def _ids(hashes: list[Any]) -> Ids:
    """Chunk hashes as ids: their last 63 bits (two of ten million differ with a chance of 1 in 180,000)."""
    try:
        values = [int(text[2:][-_ID_DIGITS:], 16) & _ID_MASK for text in hashes]
    except (TypeError, ValueError):
        values = []
    if len(values) != len(hashes) or not all(map(_is_hash, hashes)):
        wrong = next((text for text in hashes if not _is_hash(text)), None)
        raise BadLineError(f"'chunk_hashes' holds {columns.describe(wrong)}, not a hash like \"0x1f\"")
    ids = np.array(values, dtype=np.int64)
    ids.setflags(write=False)
    return ids


def _is_hash(text: Any) -> bool:
    return type(text) is str and text.startswith("0x") and len(text) > 2 and text[2:].isalnum()


def _kv_bytes_per_token(record: dict[str, Any], chunk_tokens: int) -> int | None:
    """Bytes per token and rank, from the tensors that hold one chunk; None where they do not tell."""
    shapes, dtypes = record.get("shapes"), record.get("dtypes")
    if type(shapes) is not list or type(dtypes) is not list or not shapes or len(shapes) != len(dtypes):
        return None
    total = 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        width = _DTYPE_BYTES.get(str(dtype).removeprefix("torch."))
        if width is None or type(shape) is not list or not all(type(size) is int and size > 0 for size in shape):
            return None
        total += prod(shape) * width
    return total // chunk_tokens if total % chunk_tokens == 0 else None
