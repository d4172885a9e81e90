"""Prompts that the log holds as rendered text: growth is told by characters, breaks by lines."""

from __future__ import annotations

from itertools import accumulate

from eactl.condense.finding import Finding
from eactl.condense.pieces import Piece
from eactl.condense.prompt import Prompt, Segment
from eactl.condense.values import common_prefix
from eactl.trace.chat import RAW_ROLE
from eactl.trace.tokens import Tokenizer

_TAIL = 240  # a generation prompt is not longer than this many characters


def raw_text(prompt: Prompt) -> str:
    """The rendered text of a raw prompt."""
    return prompt.segments[0].text


def grew(before: Prompt, after: Prompt) -> bool:
    """The new text begins with all of the old one."""
    return raw_text(after).startswith(raw_text(before))


def generation_prompt(old: str, new: str) -> Finding | None:
    """The end of the old prompt, which only asks for an answer, is not what stands there once that turn is history."""
    cut = common_prefix(old, new)
    tail = old[cut:]
    if not tail or len(tail) > _TAIL:
        return None
    if "".join(tail.split()) == "":
        return Finding("boundary-merge", "white space at the end of the prompt is gone once the answer follows")
    mark = tail[tail.rfind("<") :] if "<" in tail else tail[-8:]
    if not new.endswith((tail, mark)):
        return None
    kind = "the prompt's end is rendered otherwise once the turn is history"
    return Finding("generation-prompt", kind, tail[:60], new[cut : cut + 60])


def by_lines(prompt: Prompt, tokenizer: Tokenizer, known: dict[str, Segment]) -> Prompt:
    """The same prompt with one segment per line; equal lines are one object through ``known``."""
    segments = []
    for line in raw_text(prompt).splitlines(keepends=True):
        segment = known.get(line)
        if segment is None:
            piece = Piece("text", line, "prompt")
            segment = known[line] = Segment(RAW_ROLE, (piece,), len(tokenizer.encode(line)), hash(line))
        segments.append(segment)
    starts = [0, *accumulate(segment.tokens for segment in segments)]
    return Prompt(prompt.request, segments, starts, prompt.prompt_tokens, prompt.hidden_tokens, None, None)
