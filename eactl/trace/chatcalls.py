"""The bridge from chat requests to calls, over which text logs reach ``size``, ``profile`` and ``convert``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from eactl.trace.call import Call, Ids, Notice, Source
from eactl.trace.chat import ChatRequest
from eactl.trace.growing import first_difference
from eactl.trace.parttext import part_text
from eactl.trace.promptparts import Prompt, Segment
from eactl.trace.prompts import PromptEncoder

# How far the approximate tokenizer's counts lie from those of real ones, on text of coding agents.
LEAST_SHARE, MOST_SHARE = 0.7, 1.5
_REMEMBERED_SESSIONS = 64


class CallMaker:
    """Makes calls of requests and counts their tokens in a source."""

    def __init__(self, encoder: PromptEncoder) -> None:
        self._encoder = encoder
        self._positions: dict[str, int] = {}
        self._buffers: OrderedDict[str, _Buffer] = OrderedDict()
        self.made = 0
        self._rendered_tokens = self._measured_tokens = 0

    def call(self, request: ChatRequest, source: Source) -> Call | None:
        """The call of ``request``; None where the log shows no prompt.

        Output ids stay unknown: text that is tokenised again need not give the ids that were generated, so what a
        later prompt shares with an output is bounded, not counted. Raises TraceError when the template refuses.
        """
        prompt = self._encoder.encode(request) if request.messages or request.prompt_token_ids else None
        if prompt is None or not prompt.tokens:
            return None
        output = None if request.usage is None else request.usage.output_tokens
        if output is None and request.response is not None:
            output = len(self._encoder.tokenizer.encode(part_text(request.response)))
        self.made += 1
        position = request.turn
        if request.session is not None:
            position = self._positions.get(request.session, 0)
            self._positions[request.session] = position + 1
        model = request.model if request.adapter is None else f"{request.model or ''}+{request.adapter}"
        self._count(source, request, prompt, output)
        ids, keep = self._ids(request.session, prompt)
        return Call(
            task=request.session, prompt_tokens=prompt.tokens, ids=ids, keep=keep, unit_tokens=1,
            output_tokens=output, call=position, arrival_s=request.arrival_s, gap_s=request.gap_s,
            service_s=request.service_s, salt=request.salt, model=model,
        )  # fmt: skip

    def check(self) -> Notice | None:
        """Whether the prompts made with a tokenizer have about as many tokens as the provider counted."""
        made, counted = self._rendered_tokens, self._measured_tokens
        if abs(made - counted) <= max(16, 0.01 * counted):
            return None
        return Notice(
            "counts-differ",
            f"the tokenizer and template make {made} tokens of prompts for which the provider counted {counted}",
            "this is right for sizing another model; else check --tokenizer and --chat-template",
        )

    def _ids(self, session: str | None, prompt: Prompt) -> tuple[Ids, int]:
        """The ids, those of a session whose prompts grow as views of one buffer, and how many it had before."""
        if session is None:
            return prompt.ids(), 0
        buffer = self._buffers.get(session)
        if buffer is None:
            buffer = self._buffers[session] = _Buffer()
            if len(self._buffers) > _REMEMBERED_SESSIONS:
                self._buffers.popitem(last=False)
        self._buffers.move_to_end(session)
        return buffer.show(prompt)

    def _count(self, source: Source, request: ChatRequest, prompt: Prompt, output: int | None) -> None:
        """Add to the source's totals, and what this prompt may have had at least and at most."""
        if not source.prompt_tokens:
            source.lower_tokens = source.upper_tokens = 0
            if request.prompt_token_ids:
                source.tokenizer = None  # the server's own ids
        source.prompt_tokens += prompt.tokens
        if source.output_tokens is not None:
            source.output_tokens = None if output is None else source.output_tokens + output
        source.exact = source.exact and prompt.exact
        if prompt.exact and request.usage is not None and request.usage.prompt_tokens:
            self._rendered_tokens += prompt.tokens
            self._measured_tokens += request.usage.prompt_tokens
        least = most = prompt.tokens
        beyond: int | None = 0
        if not prompt.exact and not prompt.measured:
            if not self._encoder.tokenizer.exact:
                least, most = int(prompt.tokens * LEAST_SHARE), int(prompt.tokens * MOST_SHARE)
            beyond = request.hidden_tokens[1]
        source.lower_tokens = (source.lower_tokens or 0) + least
        known = beyond is not None and source.upper_tokens is not None
        source.upper_tokens = (source.upper_tokens or 0) + most + (beyond or 0) if known else None


class _Buffer:
    """The ids of a session's latest prompt. What earlier views show is never overwritten."""

    def __init__(self) -> None:
        self._ids: Ids = np.empty(0, dtype=np.int32)
        self._segments: Sequence[Segment] = ()
        self._ends: list[int] = []  # of the segments
        self._filled = 0  # ids, those of the tail included
        self._shown = 0  # of these in the latest view

    def show(self, prompt: Prompt) -> tuple[Ids, int]:
        """The prompt's ids, read-only; only what the latest prompt did not hold is copied. And how many it held."""
        at = first_difference(self._segments, prompt.segments)
        keep = self._ends[at - 1] if at else 0
        new = [segment.ids for segment in (*prompt.segments[at:], *prompt.tail)]
        filled = keep + sum(map(len, new))
        total = max(prompt.tokens, filled)
        rewrites = keep < self._filled
        if rewrites or total > len(self._ids):
            ids = np.empty(total if rewrites else total + total // 4 + 64, dtype=np.int32)
            ids[:keep] = self._ids[:keep]
            self._ids = ids
        if new:
            np.concatenate(new, out=self._ids[keep:filled])
        ends = accumulate((len(segment.ids) for segment in prompt.segments[at:]), initial=keep)
        self._ends[at:] = list(ends)[1:]
        held = min(keep, self._shown, prompt.tokens)
        self._segments, self._filled, self._shown = prompt.segments, filled, prompt.tokens
        view = self._ids[: prompt.tokens]
        view.setflags(write=False)
        return view, held
