"""Block ids for token prompts: equal tokens, equal id."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from eactl.trace.call import Ids


class TokenBlocks:
    """Numbers blocks of ``block_tokens`` tokens by their content alone (not chained).

    Contents are told apart by a 128-bit digest, so memory does not grow with the block size.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._numbers: dict[bytes, int] = {}

    def of(self, tokens: Ids) -> Ids:
        """The numbers of a prompt's full blocks."""
        size = self._block_tokens
        full = len(tokens) // size
        raw = np.ascontiguousarray(tokens[: full * size]).tobytes()
        width = size * tokens.itemsize
        numbers = self._numbers
        found = [
            numbers.setdefault(blake2b(raw[start : start + width], digest_size=16).digest(), len(numbers))
            for start in range(0, len(raw), width)
        ]
        return np.array(found, dtype=np.int64)
