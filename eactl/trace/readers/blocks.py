"""Cutting one array of block ids into the prompts of a batch."""

from __future__ import annotations

import numpy as np

from eactl.trace.call import Ids
from eactl.trace.readers.base import SKIP_HINT, BadLineError

_COMMON_SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048)


def cut(flat: Ids, listed: list[int], full: Ids) -> list[Ids]:
    """Views of each prompt's full blocks; ``listed`` ids belong to each, of which the first ``full`` are kept."""
    counts = np.array(listed, dtype=np.int64)
    starts = np.cumsum(counts) - counts
    return [flat[start:end] for start, end in zip(starts.tolist(), (starts + full).tolist(), strict=True)]


def full_blocks(
    prompt_tokens: Ids, listed: list[int], unit: int, key: str, *, partial_listed: bool | None, hint: str = SKIP_HINT
) -> Ids:
    """How many full blocks each prompt has, after checking the number of ids listed.

    ``partial_listed``: whether a partial last block has an id (True: ceil, False: floor, None: either).
    """
    floor = prompt_tokens // unit
    ceil = -(-prompt_tokens // unit)
    counts = np.array(listed, dtype=np.int64)
    expected = floor if partial_listed is False else ceil
    wrong = (counts != expected) if partial_listed is not None else (counts != floor) & (counts != ceil)
    if wrong.any():
        at = int(wrong.argmax())
        tokens, length, made = int(prompt_tokens[at]), listed[at], int(expected[at])
        blocks = f"{made} {'full ' if partial_listed is False else ''}block{'s' if made != 1 else ''}"
        raise BadLineError(
            f"{key!r} lists {length} where {tokens} tokens make {blocks} of {unit}",
            f"{_fitting(tokens, length, partial_listed)}{hint}",
        )
    return floor


def _fitting(tokens: int, listed: int, partial_listed: bool | None) -> str:
    for size in _COMMON_SIZES:
        if listed == (tokens // size if partial_listed is False else -(-tokens // size)):
            return f"blocks of {size} tokens would fit this line (--block-tokens {size}); "
    return ""
