"""What usage numbers alone show: where the provider's cache stopped, turn by turn, without any text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eactl.condense.finding import Finding
from eactl.condense.result import Turn, Where
from eactl.trace.chat import ChatRequest

_BLOCK_TOKENS = 256  # two counts within this are the same place: caches count in blocks of 16 to 256 tokens


@dataclass(frozen=True, slots=True)
class Counts:
    """One request's measured tokens."""

    prompt: int
    cached: int
    output: int


def counts_of(request: ChatRequest) -> Counts | None:
    """The counts, if both the prompt and what was read from the cache were measured."""
    usage = request.usage
    if usage is None or usage.prompt_tokens is None or usage.cached_tokens is None:
        return None
    return Counts(usage.prompt_tokens, min(usage.cached_tokens, usage.prompt_tokens), usage.output_tokens or 0)


def usage_turns(requests: Sequence[ChatRequest], *, chunk_tokens: int = 256) -> list[Turn]:
    """One turn per request of a session whose text is not in the log; all must have counts."""
    rows = [counts for request in requests if (counts := counts_of(request)) is not None]
    turns = []
    for number, (request, row) in enumerate(zip(requests, rows, strict=True)):
        previous = rows[number - 1] if number else None
        finding = _finding(rows, number)
        stable = row.cached if previous is not None else 0
        processed = min(previous.prompt, row.prompt) if previous is not None else 0
        broken = finding.cause not in ("append", "first-call")
        removed = max(0, previous.prompt + previous.output - row.prompt) if previous is not None and broken else 0
        turns.append(
            Turn(
                session=request.session or "",
                turn=request.turn,
                prompt_tokens=row.prompt,
                stable_tokens=stable,
                stable_tokens_lower=stable,
                cause=finding.cause,
                kind=finding.kind,
                where=Where(None, None, None, None, None, token=row.cached) if broken else None,
                line=request.where,
                lost_tokens=max(0, processed - row.cached) if broken else 0,
                removed_tokens=removed,
                chunks_lost=max(0, processed // chunk_tokens - row.cached // chunk_tokens) if broken else 0,
                shared_tokens=row.cached if previous is None else None,
                cached_tokens=row.cached,
            )
        )
    return turns


def _finding(rows: Sequence[Counts], number: int) -> Finding:
    if not number:
        return Finding("first-call")
    row, previous = rows[number], rows[number - 1]
    slack = 1024 + row.prompt // 100
    if row.cached >= min(previous.prompt, row.prompt) - slack:
        return Finding("append")
    if row.prompt < previous.prompt:
        return Finding("edited", f"the history was made shorter, and the prefix was cut at token {row.cached:,}")
    if _stays(rows, number):
        if row.cached < _BLOCK_TOKENS:
            return Finding("unknown", "nothing is ever reused: the first tokens change every turn, or caching is off")
        return Finding("changing-value", f"prefix cut at token {row.cached:,} every turn")
    if row.cached < _BLOCK_TOKENS:
        return Finding("unknown", "nothing was reused: cache expired, evicted, another replica, or a changed head")
    return Finding("unknown", f"prefix cut at token {row.cached:,}")


def _stays(rows: Sequence[Counts], number: int) -> bool:
    """The cache stops at the same place in a neighbouring turn that also grew."""
    here = rows[number]
    if abs(rows[number - 1].cached - here.cached) < _BLOCK_TOKENS:
        return True
    return (
        number + 1 < len(rows)
        and rows[number + 1].prompt >= here.prompt
        and abs(rows[number + 1].cached - here.cached) < _BLOCK_TOKENS
    )
