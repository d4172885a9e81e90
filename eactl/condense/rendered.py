"""Prompts as the server renders them: a chat template shows what the messages alone do not.

A turn may be rendered one way while it asks for an answer and another way once it is history; earlier reasoning may
vanish at a new user message; tools may move. The messages are equal then, and only the texts differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from eactl.condense.diff import find_change
from eactl.condense.finding import Finding
from eactl.condense.pieces import Piece
from eactl.condense.prompt import Prompt, Rendered, Segment
from eactl.condense.raw import generation_prompt
from eactl.condense.sameness import same_but_space
from eactl.condense.values import changed_value
from eactl.errors import TraceError
from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.templates import ChatTemplate, TemplateError
from eactl.trace.tokens import HuggingFaceTokenizer, Tokenizer

_MOST_PIECES = 50_000
_MOST_FRAME = 64


@dataclass
class Renderer:
    """Renders requests; ``refused`` of ``asked`` are those that the template would not take."""

    template: ChatTemplate
    tokenizer: Tokenizer
    asked: int = 0
    refused: int = 0
    why: str = ""
    _known: dict[str, Segment] = field(default_factory=dict)
    _boundary: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.tokenizer, HuggingFaceTokenizer) and self.tokenizer.boundaries:
            longest_first = sorted((text for text, _ in self.tokenizer.boundaries), key=len, reverse=True)
            self._boundary = re.compile("|".join(map(re.escape, longest_first)))

    def render(self, request: ChatRequest) -> Rendered | None:
        """The prompt as sent, or None when the template refuses it (counted).

        Raises TemplateError when the template could take no other prompt either.
        """
        self.asked += 1
        try:
            text = self.template.render(
                request.messages, request.tools, now_s=request.arrival_s, where=request.where,
                options=request.template_options,
            )  # fmt: skip
        except TemplateError as error:
            if not error.others_may:
                raise
            self.refused += 1
            self.why = self.why or str(error)
            return None
        return self.cut(text, request)

    def frame_tokens(self, otherwise: int) -> int:
        """Tokens that the template writes around one more message; ``otherwise`` where it does not take a probe."""
        word = "a"
        turns = [{"role": role, "content": word} for role in ("user", "assistant", "user", "assistant", "user")]
        try:
            short, long = (
                self.cut(self.template.render(messages, None), ChatRequest(None, messages)).tokens
                for messages in (turns[:3], turns)
            )
        except TemplateError as error:
            if not error.others_may:
                raise
            return otherwise
        frame = (long - short) // 2 - len(self.tokenizer.encode(word))
        return frame if 0 <= frame <= _MOST_FRAME else otherwise

    def history(self, request: ChatRequest) -> str | None:
        """The same messages without the generation prompt."""
        try:
            return self.template.render(
                request.messages, request.tools, add_generation_prompt=False, now_s=request.arrival_s,
                where=request.where, options=request.template_options,
            )  # fmt: skip
        except TemplateError:
            return None

    def judge(self) -> None:
        """Raise TraceError if the template has taken none of the requests."""
        if self.asked and self.refused == self.asked:
            raise TraceError(f"the template took none of {self.asked:,} requests, the first: {self.why}")

    def cut(self, text: str, request: ChatRequest) -> Rendered:
        """``text`` in pieces that no token crosses, encoded once each."""
        segments = []
        for part in self._parts(text):
            segment = self._known.get(part)
            if segment is None:
                if len(self._known) > _MOST_PIECES:
                    self._known.clear()
                piece = Piece("text", part, "prompt")
                segment = Segment(RAW_ROLE, (piece,), len(self.tokenizer.encode(part)), hash(part))
                self._known[part] = segment
            segments.append(segment)
        starts = [0, *accumulate(segment.tokens for segment in segments)]
        return Rendered(text, Prompt(request, segments, starts, starts[-1], 0, None, None))

    def _parts(self, text: str) -> Iterator[str]:
        if self._boundary is None:
            yield from text.splitlines(keepends=True)
            return
        starts = [match.start() for match in self._boundary.finditer(text)]
        bounds = sorted({0, *starts, len(text)})
        for start, end in pairwise(bounds):
            yield text[start:end]


def shared_tokens(old: Rendered, new: Rendered, tokenizer: Tokenizer) -> int:
    """Leading tokens that both prompts have."""
    change = find_change(old.prompt, new.prompt)
    if change is None:
        return min(old.tokens, new.tokens)
    left, right = change.old_piece, change.new_piece
    inside = 0
    if left is not None and right is not None and change.offset:
        cut = change.offset + 16
        a, b = tokenizer.encode(left.text[:cut]), tokenizer.encode(right.text[:cut])
        n = min(len(a), len(b))
        differs = a[:n] != b[:n]
        inside = int(differs.argmax()) if differs.any() else n
    return min(new.prompt.starts[change.index] + inside, old.tokens, new.tokens)


def template_finding(old: Rendered, new: Rendered, before: ChatRequest, after: ChatRequest, cut: int,
                     history: str | None) -> Finding:  # fmt: skip
    """What the template did to messages that did not change. ``cut`` is the first character that differs."""
    gone, came = old.text[cut : cut + 60], new.text[cut : cut + 60]
    if history is not None and old.text.startswith(history) and cut >= len(history.rstrip()):
        kind = "the generation prompt is rendered otherwise once the turn is history"
        return Finding("generation-prompt", kind, gone, came)
    lost = _lost_reasoning(before, old.text, new.text, cut)
    if lost is not None:
        user = len(after.messages) > len(before.messages) and any(
            message.get("role") == "user" for message in after.messages[len(before.messages) :]
        )
        how = "at a new user message" if user else "once the turn is history"
        return Finding("reasoning-stripped", f"the template drops it {how}", lost[:60], came)
    if (tail := generation_prompt(old.text, new.text)) is not None:
        return tail
    if same_but_space(old.text[cut : cut + 24], new.text[cut : cut + 24]) is not None:
        return Finding("boundary-merge", "the template writes other white space", gone, came)
    value = changed_value(old.text, new.text, cut)
    if value is not None and value.kind in ("clock", "id", "counter"):
        kind = f"{value.kind} with {value.detail} granularity" if value.kind == "clock" else value.kind
        return Finding("changing-value", f"{kind}, written by the template", value.old, value.new)
    near = old.text[cut : cut + 4000] + new.text[cut : cut + 4000]
    if before.tools and before.tools == after.tools and '"parameters"' in near:
        return Finding("render-order", "the template puts the tools at another place", gone, came)
    return Finding("render-order", "the template renders earlier messages otherwise", gone, came)


def message_at(messages: Sequence[dict[str, object]], text: str, cut: int) -> int | None:
    """The message in whose rendering character ``cut`` of ``text`` lies, found by the messages' own texts in order."""
    reached, found = 0, None
    for number, message in enumerate(messages):
        content = message.get("content")
        probe = content.strip()[:64] if isinstance(content, str) else ""
        at = text.find(probe, reached) if probe else -1
        if at < 0:
            continue
        if at > cut:
            return number if found is None or at - cut < 32 else found
        found, reached = number, at + len(probe)
    return found


def _lost_reasoning(before: ChatRequest, old: str, new: str, cut: int) -> str | None:
    """Reasoning that the old text has at or behind ``cut`` and the new text has not."""
    for message in before.messages:
        for key in ("reasoning_content", "reasoning", "thinking"):
            text = message.get(key)
            if isinstance(text, str) and text.strip():
                probe = text.strip()[:48]
                if old.find(probe, max(0, cut - len(probe))) >= 0 and probe not in new:
                    return text.strip()
    match = re.compile(r"<think>\s*(\S[^<]{0,48})").search(old, max(0, cut - 16), cut + 400)
    return match.group(1) if match is not None and match.group(1) not in new else None
