"""What a classifier found, and the causes' names, which scripts rely on (the contract's list)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "first-call", "append", "changing-value", "tools-reordered", "tools-changed", "render-order", "same-json",
    "reasoning-stripped", "generation-prompt", "boundary-merge", "sliding-window", "truncated", "masked", "summary",
    "memory-block", "attachment", "salt", "model-switch", "adapter-switch", "edited", "unknown",
]  # fmt: skip

NOT_A_BREAK: frozenset[str] = frozenset({"first-call", "append"})
# Causes that make the history shorter on purpose: they have a ledger with two sides.
EDITS: frozenset[str] = frozenset({"sliding-window", "truncated", "masked", "summary", "edited"})
TOO_LITTLE = "the prompts have too little in common to say"


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, the kind of it in a few words, and the span of text to quote where it is more than one character."""

    cause: Cause
    kind: str = ""
    old_text: str | None = None
    new_text: str | None = None
