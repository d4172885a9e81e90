"""A request as an ordered list of segments: tools, system, messages, each with its text and tokens.

Segments are compared by identity: within one session equal segments are one object (see SegmentPool), so that
finding where two prompts part costs one pointer comparison per message, and only the first message that differs is
looked at by characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate, compress, count
from operator import is_not
from typing import TYPE_CHECKING, Any

from eactl.condense.pieces import ATTACHMENT_TOKENS, Piece, message_pieces, order_is_no_matter, tool_pieces
from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.tokens import Tokenizer

if TYPE_CHECKING:
    from eactl.condense.rendered import Rendered, Renderer

FRAME_TOKENS = 4  # role and end markers around one message in the common chat templates

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
    segments: list[Segment]
    starts: list[int]
    prompt_tokens: int
    hidden_tokens: int
    response: Segment | None
    tools_at: int | None
    rendered: Rendered | None = None

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


@dataclass(slots=True)
class SegmentPool:
    """The segments that live prompts of one session hold, so that equal ones are one object."""

    known: dict[int, Segment] = field(default_factory=dict)

    def keep(self, prompts: Iterable[Prompt]) -> None:
        """Forget what no prompt holds any more."""
        self.known = {
            segment.key: segment
            for prompt in prompts
            for segment in (*prompt.segments, *([prompt.response] if prompt.response else ()))
        }


@dataclass(frozen=True)
class Segmenter:
    """Cuts requests into segments. ``tools_first`` says what the server renders at the head."""

    tokenizer: Tokenizer
    tools_first: bool = True
    frame_tokens: int = FRAME_TOKENS
    renderer: Renderer | None = None

    def prompt(self, request: ChatRequest, pool: SegmentPool, like: Prompt | None = None) -> Prompt:
        """``request`` as a Prompt; messages that are the same objects as in ``like`` are not looked at again."""
        segments: list[Segment] = []
        if like is not None:
            request = _with_known_messages(request, like.request.messages)
            same = first_difference(like.request.messages, request.messages)
            at = like.tools_at
            segments = like.segments[:same] if at is None else (like.segments[:at] + like.segments[at + 1 :])[:same]
        for message in request.messages[len(segments) :]:
            segments.append(self._segment(str(message.get("role") or "user"), message_pieces(message), pool))
        while segments and segments[-1].role == "assistant" and not segments[-1].pieces:
            segments.pop()  # a placeholder for the answer that is being asked for
        tools_at = None
        if request.tools:
            tools_at = 0 if self.tools_first else _leading_system(segments)
            segments.insert(tools_at, self._segment("tools", tool_pieces(request.tools), pool))
        response = None
        if request.response is not None:
            response = self._segment("assistant", message_pieces(request.response), pool)
        known = 0 if like is None else first_difference(like.segments, segments)
        starts = [0] if like is None else like.starts[: known + 1]
        starts.extend(accumulate((segment.tokens for segment in segments[known:]), initial=starts.pop()))
        visible = starts[-1]
        usage = request.usage
        rendered = None
        if self.renderer is not None and not (segments and segments[0].is_raw):
            rendered = self.renderer.render(request)
        least, most = request.hidden_tokens
        hidden = least if like is None else like.hidden_tokens
        if request.prompt_token_ids is not None:
            total = len(request.prompt_token_ids)
        elif rendered is not None and request.exact:
            total = rendered.tokens
        elif usage is not None and usage.prompt_tokens is not None:
            total = usage.prompt_tokens
            if like is None and most != 0:  # sized once, at the first request: what is measured and not in the log
                hidden = max(least, total - visible)
        else:
            total = visible + hidden
        hidden = min(hidden, max(0, total - 1))
        return Prompt(request, segments, starts, total, hidden, response, tools_at, rendered)

    def _segment(self, role: str, pieces: tuple[Piece, ...], pool: SegmentPool) -> Segment:
        key = hash((role, *((piece.kind, piece.text) for piece in pieces)))
        segment = pool.known.get(key)
        if segment is None:
            raw = role == RAW_ROLE  # whole prompts: they grow, so keeping each would cost the square of the session
            tokens = 0 if raw else self.frame_tokens
            for piece in pieces:
                tokens += ATTACHMENT_TOKENS if piece.kind == "attachment" else len(self.tokenizer.encode(piece.text))
            segment = Segment(role, pieces, tokens, key)
            if not raw:
                pool.known[key] = segment
        return segment


def first_difference(old: Sequence[object], new: Sequence[object]) -> int:
    """Index of the first object that is not the same in both, or the shorter length."""
    return next(compress(count(), map(is_not, old, new)), min(len(old), len(new)))


def _with_known_messages(request: ChatRequest, known: Sequence[dict[str, Any]]) -> ChatRequest:
    """The request with the known objects in place of equal ones at its head.

    A log of whole requests repeats every message on every line: the copies are let go at once, and comparing them
    costs a comparison of memory, not taking them apart.
    """
    messages = request.messages
    same = first_difference(known, messages)
    end, limit = same, min(len(known), len(messages))
    while end < limit and (
        known[end] is messages[end] or (known[end] == messages[end] and order_is_no_matter(messages[end]))
    ):
        end += 1
    if end == same:
        return request
    request = copy(request)
    request.messages = [*known[:end], *messages[end:]]
    return request


def _leading_system(segments: Sequence[Segment]) -> int:
    return next((i for i, segment in enumerate(segments) if not segment.is_head), len(segments))
