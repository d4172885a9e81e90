"""How well one prompt continues another: by extension, by shared messages, or by resemblance."""

from __future__ import annotations

from dataclasses import dataclass

from eactl.condense.diff import find_change, resembles
from eactl.condense.prompt import Prompt
from eactl.condense.values import common_prefix

_TAIL_CHARS = 64


@dataclass(frozen=True, slots=True)
class Match:
    """``sure``: the prompts belong to one conversation. ``extends``: the new one holds all of the old one."""

    shared_tokens: int
    sure: bool
    extends: bool = False


def match(old: Prompt, new: Prompt, *, named: bool) -> Match:
    """How well ``new`` continues ``old``. Without a named session more must agree."""
    old_ids, new_ids = old.request.prompt_token_ids, new.request.prompt_token_ids
    if old_ids is not None and new_ids is not None:
        return _match_ids(old_ids, new_ids, named=named)
    if old.is_raw and new.is_raw:
        return _match_raw(old.segments[0].text, new.segments[0].text, named=named)
    if find_change(old, new) is None:
        if len(new.segments) >= len(old.segments) and (named or _conversation(old)):
            return Match(old.prompt_tokens, sure=True, extends=True)
        return Match(new.prompt_tokens, sure=named or new.segments == old.segments)
    have = {id(segment) for segment in old.segments}
    both = [segment for segment in new.segments if id(segment) in have and not segment.is_head]
    tokens = sum(segment.tokens for segment in both)
    if named:
        alike = any(
            resembles(left, right) and not left.is_head for left, right in zip(old.segments, new.segments, strict=False)
        )
        return Match(tokens, sure=bool(both) or alike)
    answered = any(segment.role in ("assistant", "tool") for segment in both)
    body = sum(segment.tokens for segment in old.segments if not segment.is_head)
    longer = len(new.segments) > len(old.segments)
    return Match(tokens, sure=answered or (longer and tokens >= 0.5 * body > 0))


def _conversation(prompt: Prompt) -> bool:
    """There is more than a head to recognise a conversation by."""
    return any(not segment.is_head for segment in prompt.segments)


def _match_raw(old: str, new: str, *, named: bool) -> Match:
    cut = common_prefix(old, new)
    if cut == len(old) and cut:
        return Match(cut, sure=True, extends=True)
    if named:
        # Another head is doubtful: a rewrite of the conversation, or another agent's prompt in the same session.
        return Match(cut, sure=cut > 0 and cut >= 0.3 * min(len(old), len(new)))
    # Another question behind the same head is another conversation; the same end further back is the same one.
    return Match(cut, sure=len(new) > len(old) and len(old) > _TAIL_CHARS and old[-_TAIL_CHARS:] in new)


def _match_ids(old: list[int], new: list[int], *, named: bool) -> Match:
    from eactl.condense.turns import common_ids

    cut = common_ids(old, new)
    if cut == len(old):
        return Match(cut, sure=True, extends=True)
    return Match(cut, sure=named and cut >= 0.3 * min(len(old), len(new)))
