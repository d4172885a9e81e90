"""Block ids for token prompts: keyed hashes, each chained to the block before it."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

import numpy as np

from eactl.trace.call import NO_IDS, Ids
from eactl.trace.salt import Salt

_DIGEST_BYTES = 8
_POSITIVE = (1 << 63) - 1  # ids of the native format are 0 <= id < 2^63
_REMEMBERED_TASKS = 64


class SaltedBlocks:
    """Names every prefix of whole blocks by 63 bits of a keyed BLAKE2b: equal id, equal prefix, to whoever reads it.

    A block's digest is made of the digest before it (8 bytes, zero before the first) and the block's tokens as
    little-endian 64-bit integers, so it depends on the salt, on ``block_tokens`` and on the prefix, and on nothing
    else: not on the order of the prompts, not on the machine. Among n distinct prefixes two agree by chance once in
    2^64 / n² traces: for ten million, once in 180,000. Without the salt an id can be neither computed from text nor
    turned back into it.

    Of each of the latest tasks the latest prompt is held, and only what the next one changes is hashed.
    """

    def __init__(self, salt: Salt, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._keyed = blake2b(key=salt.key("eactl blocks"), digest_size=_DIGEST_BYTES)
        self._latest: OrderedDict[str | None, tuple[Ids, bytes]] = OrderedDict()

    def of(self, task: str | None, tokens: Ids) -> Ids:
        """The ids of a prompt's full blocks."""
        size = self._block_tokens
        full = len(tokens) // size
        before, known = self._latest.get(task, (NO_IDS, b""))
        kept = min(common_prefix(before, tokens) // size, full)
        known = known[: kept * _DIGEST_BYTES]
        digests = known + self._hashed(known[-_DIGEST_BYTES:], tokens[kept * size : full * size])
        self._latest[task] = tokens, digests
        self._latest.move_to_end(task)
        if len(self._latest) > _REMEMBERED_TASKS:
            self._latest.popitem(last=False)
        return np.frombuffer(digests, dtype="<i8").astype(np.int64) & _POSITIVE

    def _hashed(self, before: bytes, tokens: Ids) -> bytes:
        """The digests of whole blocks that follow the one whose digest is ``before``."""
        raw = tokens.astype("<i8").tobytes()
        width = 8 * self._block_tokens
        keyed = self._keyed.copy
        digest = before or bytes(_DIGEST_BYTES)
        digests = []
        for start in range(0, len(raw), width):
            state = keyed()
            state.update(digest + raw[start : start + width])
            digest = state.digest()
            digests.append(digest)
        return b"".join(digests)


def common_prefix(left: Ids, right: Ids) -> int:
    """How many ids two prompts begin with alike."""
    length = min(len(left), len(right))
    differs = np.flatnonzero(left[:length] != right[:length])
    return int(differs[0]) if len(differs) else length
