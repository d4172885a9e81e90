"""A request as an ordered list of segments, and as the server renders it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eactl.condense.pieces import Piece
from eactl.trace.chat import RAW_ROLE, ChatRequest

Group = tuple[str | None, str | None, str | None]  # model, adapter, salt: KV is shared only inside one


@dataclass(slots=True, eq=False)
class Segment:
    """One part of a prompt. ``role`` is ``tools`` for the tool definitions; ``key`` tells equal segments."""

    role: str
    pieces: tuple[Piece, ...]
    tokens: int
    key: int

    @property
    def text(self) -> str:
        """All pieces as one string, for comparing segments as a whole."""
        return "\n".join(piece.text for piece in self.pieces)

    @property
    def is_tools(self) -> bool:
        return self.role == "tools"

    @property
    def is_raw(self) -> bool:
        """Text after templating, not a message."""
        return self.role == RAW_ROLE

    @property
    def is_head(self) -> bool:
        """Tool definitions and system text: what a client writes, not what the conversation adds."""
        return self.role in ("tools", "system", "developer")


@dataclass(slots=True, eq=False)
class Prompt:
    """One request, cut into segments. ``starts[k]`` are the counted tokens before segment k, ``starts[-1]`` all.

    ``prompt_tokens`` is the provider's count where there is one; positions are then scaled to it. ``hidden_tokens``
    stand at the head and are not in the log.
    """

    request: ChatRequest
    segments: Sequence[Segment]
    starts: Sequence[int]
    prompt_tokens: int
    hidden_tokens: int
    response: Segment | None
    tools_at: int | None
    rendered: Rendered | None = None
    orderless: int = 0  # leading messages of which an equal one is rendered alike

    @property
    def group(self) -> Group:
        return (self.request.model, self.request.adapter, self.request.salt)

    @property
    def is_raw(self) -> bool:
        """The log holds the text after templating, in one piece."""
        return len(self.segments) == 1 and self.segments[0].is_raw

    @property
    def measured(self) -> bool:
        """``prompt_tokens`` is the provider's own count."""
        return self.request.usage is not None and self.request.usage.prompt_tokens is not None

    def position(self, index: int, inside: int = 0) -> int:
        """Prompt tokens before token ``inside`` of segment ``index``."""
        visible = self.starts[-1]
        counted = min(self.starts[index] + inside, visible)
        if not visible or counted == visible:
            return self.prompt_tokens
        if not counted:
            return self.hidden_tokens
        return self.hidden_tokens + round(counted * (self.prompt_tokens - self.hidden_tokens) / visible)

    def message_index(self, index: int) -> int | None:
        """Position in the request's ``messages`` of segment ``index``; None for the tools."""
        if index == self.tools_at:
            return None
        return index - (1 if self.tools_at is not None and self.tools_at < index else 0)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered prompt: its text, and its pieces with their tokens."""

    text: str
    prompt: Prompt

    @property
    def tokens(self) -> int:
        return self.prompt.starts[-1]
