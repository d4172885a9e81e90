"""Cutting a request into segments: tools, system, messages, each with its text and tokens.

Segments are compared by identity: within one session equal segments are one object (see SegmentPool), so that
finding where two prompts part costs at most one pointer comparison per message, and only the first message that
differs is looked at by characters. A prompt that only adds to the one before shares its segments (Grown): it costs
what it adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate

from eactl.condense.pieces import ATTACHMENT_TOKENS, Piece, message_pieces, order_is_no_matter, tool_pieces
from eactl.condense.prompt import Prompt, Segment
from eactl.condense.rendered import Renderer
from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.growing import Grown, first_difference, first_unequal
from eactl.trace.tokens import Tokenizer

FRAME_TOKENS = 4  # role and end markers around one message in the common chat templates


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
        same = orderless = 0
        if like is not None:
            request, same, orderless = _with_known_messages(request, like)
        segments, tools_at = self._segments(request, pool, like, same)
        response = None
        if request.response is not None:
            response = self._segment("assistant", message_pieces(request.response), pool)
        known = 0 if like is None else first_difference(like.segments, segments)
        starts = Grown((0,)) if like is None else Grown.of(like.starts).upto(known + 1)
        added = accumulate((segment.tokens for segment in segments[known:]), initial=starts[known])
        starts = starts.grown(list(added)[1:])
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
        return Prompt(request, segments, starts, total, hidden, response, tools_at, rendered, orderless)

    def _segments(
        self, request: ChatRequest, pool: SegmentPool, like: Prompt | None, same: int
    ) -> tuple[Grown[Segment], int | None]:
        """The segments of ``request``, of whose messages the first ``same`` are those of ``like``; the tools' place."""
        tools = self._segment("tools", tool_pieces(request.tools), pool) if request.tools else None
        kept: Grown[Segment] = Grown()
        kept_tools = None
        if like is not None:
            kept, at = Grown.of(like.segments), like.tools_at
            same = min(same, len(kept) - (at is not None))
            if at is None:
                kept = kept.upto(same)
            elif tools is kept[at] and (same > at or self.tools_first):
                kept, kept_tools = kept.upto(same + 1), at
            else:
                kept = Grown((kept[:at] + kept[at + 1 :])[:same])
        new = [
            self._segment(str(message.get("role") or "user"), message_pieces(message), pool)
            for message in request.messages[same:]
        ]
        while new and _is_placeholder(new[-1]):
            new.pop()
        while not new and kept and _is_placeholder(kept[-1]):
            kept = kept.upto(len(kept) - 1)
        segments = kept.grown(new)
        if tools is None or kept_tools is not None:
            return segments, kept_tools
        at = 0 if self.tools_first else _leading_system(segments)
        return Grown((*segments[:at], tools, *segments[at:])), at

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


def _with_known_messages(request: ChatRequest, like: Prompt) -> tuple[ChatRequest, int, int]:
    """The request with the known objects in place of equal ones at its head; how many these are, and ``orderless``.

    A log of whole requests repeats every message on every line: the copies are let go at once, and comparing them
    costs a comparison of memory, not taking them apart.
    """
    known, messages = like.request.messages, request.messages
    same = first_difference(known, messages)
    equal = first_unequal(known, messages, same)
    end = max(same, min(like.orderless, equal))
    while end < equal and order_is_no_matter(messages[end]):
        end += 1
    orderless = end if same <= like.orderless else min(like.orderless, end)
    if same < end:
        request = copy(request)
        request.messages = Grown.of(known).upto(end).grown(messages[end:])
    return request, end, orderless


def _is_placeholder(segment: Segment) -> bool:
    """It stands for the answer that is being asked for."""
    return segment.role == "assistant" and not segment.pieces


def _leading_system(segments: Sequence[Segment]) -> int:
    return next((i for i, segment in enumerate(segments) if not segment.is_head), len(segments))
