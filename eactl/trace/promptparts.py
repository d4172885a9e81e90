"""What prompts are made of: stretches of ids, the parts that they come from, and what the next prompt can share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eactl.trace.call import Ids
from eactl.trace.chat import ChatRequest
from eactl.trace.growing import Grown, first_difference, first_unequal
from eactl.trace.parttext import content_text, text_blocks
from eactl.trace.tokens import TokenIds

TOOLS, HIDDEN = -1, -2  # labels of segments that are no message


@dataclass(slots=True)
class Segment:
    """A stretch of a prompt; ``label`` is the message it comes from, or TOOLS, or HIDDEN."""

    ids: TokenIds
    label: int


@dataclass(slots=True)
class Prompt:
    """One prompt as a row of segments; equal stretches of different prompts may be the same object.

    ``tail`` are the segments behind ``segments`` that no later prompt shares. ``exact``: the ids are those of the
    server. ``measured``: the length is the provider's count.
    """

    segments: Sequence[Segment]
    tokens: int
    exact: bool
    measured: bool
    tail: tuple[Segment, ...] = ()

    def ids(self) -> Ids:
        """All ids, in a new array."""
        return _joined([*self.segments, *self.tail])[: self.tokens]

    def shared_tokens(self, other: Prompt) -> int:
        """The longest common prefix with ``other``, in tokens; costs a step per segment, not per token."""
        mine, theirs = [*self.segments, *self.tail], [*other.segments, *other.tail]
        shared, at = 0, 0
        for one, another in zip(mine, theirs, strict=False):
            if one.ids is not another.ids and not np.array_equal(one.ids, another.ids):
                break
            shared += len(one.ids)
            at += 1
        else:
            return min(shared, self.tokens, other.tokens)
        mine_rest, their_rest = _joined(mine[at:]), _joined(theirs[at:])
        length = min(len(mine_rest), len(their_rest))
        differs = mine_rest[:length] != their_rest[:length]
        shared += int(differs.argmax()) if differs.any() else length
        return min(shared, self.tokens, other.tokens)

    def label_at(self, token: int) -> int | None:
        """The message in which token number ``token`` lies (TOOLS, HIDDEN); None beyond the end or if unknown."""
        end = 0
        for segment in (*self.segments, *self.tail):
            end += len(segment.ids)
            if token < end:
                return segment.label
        return None


def _joined(segments: Sequence[Segment]) -> TokenIds:
    return np.concatenate([segment.ids for segment in segments]) if segments else np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a prompt is made of, in order: ``tools`` (None: there are none) and messages, or blocks of raw text."""

    tools: Any
    items: Sequence[Any]
    raw: bool

    def __len__(self) -> int:
        return len(self.items) + (self.tools is not None)

    def __getitem__(self, index: int) -> Any:
        if self.tools is None:
            return self.items[index]
        return self.items[index - 1] if index else self.tools

    def label(self, index: int) -> int:
        if self.raw:
            return 0
        return index if self.tools is None else index - 1 if index else TOOLS

    def same_as(self, other: Parts) -> int:
        """How many parts from the first on are equal in both."""
        if self.tools is not other.tools and self.tools != other.tools:
            return 0
        return first_unequal(other.items, self.items) + (self.tools is not None)


@dataclass(slots=True)
class Known:
    """What is kept of one beginning of a conversation: its last segment, and the tokens up to its end."""

    segment: Segment
    end: int


@dataclass(slots=True)
class Latest:
    """The latest prompt of a session, for the next one to grow from.

    ``keys`` has one path key per part. ``known`` are those of its first parts that later prompts may share;
    ``segments`` holds theirs behind ``head``, which is no part.
    """

    root: bytes
    parts: Parts
    keys: Grown[bytes] = field(default_factory=Grown)
    known: Grown[Known] = field(default_factory=Grown)
    head: tuple[Segment, ...] = ()
    segments: Grown[Segment] = field(default_factory=Grown)
    used_at: int = 0  # bytes that the encoder had taken in when this was last marked as in use

    def next(self, same: int, parts: Parts) -> Latest:
        """The beginning of a prompt whose first ``same`` parts are those of this one."""
        known = self.known.upto(same)
        segments = self.segments.upto(len(self.head) + len(known))
        return Latest(self.root, parts, self.keys.upto(same), known, self.head, segments, self.used_at)

    def add(self, entries: Sequence[Known]) -> None:
        """More of the parts are known."""
        self.known = self.known.grown(entries)
        self.segments = self.segments.grown([entry.segment for entry in entries])

    def put_behind(self, head: tuple[Segment, ...]) -> None:
        """``head`` stands before the parts."""
        if len(head) != len(self.head) or first_difference(head, self.head) < len(head):
            self.head = head
            self.segments = Grown((*head, *(entry.segment for entry in self.known)))


def parts_of(request: ChatRequest, *, raw: bool, in_blocks: bool) -> Parts:
    if not raw:
        return Parts(request.tools or None, request.messages, raw=False)
    text = "".join(content_text(message.get("content")) for message in request.messages)
    return Parts(None, text_blocks(text) if in_blocks else [text] if text else [], raw=True)
