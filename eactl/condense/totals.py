"""From turns to totals, causes and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from eactl.condense.finding import EDITS
from eactl.condense.ledger import Prices, break_even_turns
from eactl.condense.result import CauseTotal, Session, Totals, Turn
from eactl.units import human_count

_MOST_KINDS = 6


def totals(
    sessions: Sequence[Session], prices: Prices, *, chunk_tokens: int, bytes_per_token_rank: float | None = None
) -> Totals:
    """Sums over all turns of all sessions."""
    turns = [turn for session in sessions for turn in session.turns]
    main = [turn for turn in turns if not turn.side]
    broken = [turn for turn in turns if turn.is_break]
    by_cause: dict[str, int] = {}
    for turn in broken:
        by_cause[turn.cause] = by_cause.get(turn.cause, 0) + 1
    lost = sum(turn.lost_tokens for turn in broken)
    later = sum(max(0, len(session.turns) - 1) for session in sessions)
    cached = [turn.cached_tokens for turn in turns if turn.cached_tokens is not None]
    isolation = sum(t.lost_tokens for t in broken if t.cause in ("salt", "adapter-switch"))
    amortised = lost / later if later else float(lost)
    b = chunk_tokens
    first = [turn for turn in turns if turn.cause == "first-call"]
    fields = Totals(
        requests=len(turns),
        prompt_tokens=sum(turn.prompt_tokens for turn in turns),
        stable_tokens=sum(turn.stable_tokens for turn in turns),
        stable_tokens_lower=sum(turn.stable_tokens_lower for turn in turns),
        reusable_tokens_lower=sum(_reusable(turn, turn.stable_tokens_lower, b) for turn in turns),
        reusable_tokens_upper=sum(_reusable(turn, turn.stable_tokens, b) for turn in turns),
        lost_tokens=lost,
        removed_tokens=sum(turn.removed_tokens for turn in broken),
        chunks_lost=sum(turn.chunks_lost for turn in broken),
        breaks=len(broken),
        breaks_by_cause=dict(sorted(by_cause.items(), key=lambda item: -item[1])),
        turns_between_breaks=round(later / len(broken), 2) if broken and later else None,
        amortised_tokens_per_turn=round(amortised, 1),
        amortised_s_per_turn=prices.seconds(amortised),
        prefill_s=prices.seconds(sum(turn.fresh_tokens for turn in turns)),
        side_calls=len(turns) - len(main),
        side_tokens=sum(turn.prompt_tokens for turn in turns if turn.side),
        side_stable_tokens=sum(turn.stable_tokens for turn in turns if turn.side),
        shared_tokens=sum(turn.shared_tokens or 0 for turn in first),
        cached_tokens=sum(cached) if cached else None,
        isolation_tokens=isolation,
        isolation_bytes_rank=None if bytes_per_token_rank is None else round(isolation * bytes_per_token_rank),
        verdict="",
    )
    return _with_verdict(fields, turns)


def _reusable(turn: Turn, tokens: int, chunk_tokens: int) -> int:
    """Whole chunks of what is stable or, on a first call, shared with earlier requests."""
    return max(tokens, turn.shared_tokens or 0) // chunk_tokens * chunk_tokens


def causes(sessions: Iterable[Session], prices: Prices) -> tuple[CauseTotal, ...]:
    """Breaks by cause and remedy, the dearest first."""
    groups: dict[tuple[str, str], list[Turn]] = {}
    for session in sessions:
        for turn in session.turns:
            if turn.is_break:
                groups.setdefault((turn.cause, turn.remedy), []).append(turn)
    found = []
    for (cause, remedy), turns in groups.items():
        lost, removed = sum(t.lost_tokens for t in turns), sum(t.removed_tokens for t in turns)
        even = None
        if cause in EDITS and removed:
            even = break_even_turns(removed / len(turns), lost / len(turns), prices.reused_cost)
        kinds = list(dict.fromkeys(turn.kind for turn in turns))
        found.append(
            CauseTotal(
                cause=cause,
                kinds=tuple(kinds[:_MOST_KINDS]),
                breaks=len(turns),
                sessions=len({turn.session for turn in turns}),
                lost_tokens=lost,
                chunks_lost=sum(turn.chunks_lost for turn in turns),
                worst=max(turns, key=lambda turn: turn.lost_tokens),
                remedy=remedy,
                removed_tokens=removed,
                break_even_turns=even,
            )
        )
    return tuple(sorted(found, key=lambda total: -total.lost_tokens))


def _with_verdict(fields: Totals, turns: Sequence[Turn]) -> Totals:
    return replace(fields, verdict=_verdict(fields, turns))


def _verdict(fields: Totals, turns: Sequence[Turn]) -> str:
    if not fields.prompt_tokens:
        return "There is nothing to judge: no request with tokens."
    share = _share(fields)
    if not fields.breaks:
        if fields.requests == sum(turn.cause == "first-call" for turn in turns):
            shared = max(fields.stable_tokens, fields.shared_tokens) / fields.prompt_tokens
            reusable = fields.reusable_tokens_upper / fields.prompt_tokens
            return (
                f"Every request is the first of its conversation: {shared:.1%} of the prompt tokens stand at the head "
                f"of an earlier request too, {reusable:.1%} in whole chunks. That is an upper bound: it holds if "
                "everything stays resident."
            )
        return f"The prefix holds at every turn: {share}; all else is new, first prompts and what was appended."
    by_loss: dict[str, int] = {}
    for turn in turns:
        if turn.is_break:
            by_loss[turn.cause] = by_loss.get(turn.cause, 0) + turn.lost_tokens
    worst, lost = max(by_loss.items(), key=lambda item: item[1])
    could = min(1.0, (fields.stable_tokens + fields.lost_tokens) / fields.prompt_tokens)
    verb = "breaks" if fields.breaks == 1 else "break"
    text = (
        f"{fields.breaks:,} of {fields.requests:,} requests {verb} the prefix: {human_count(fields.lost_tokens)} "
        f"tokens ({fields.lost_tokens / fields.prompt_tokens:.1%} of all) are computed again because of it. "
    )
    if len(by_loss) > 1:
        part_of = lost / fields.lost_tokens if fields.lost_tokens else 0.0
        part = f" ({'over 99%' if part_of > 0.99 else f'{part_of:.0%}'} of that)" if part_of else ""
        text += f"Largest cause: {worst}{part}. "
    else:
        text += f"Cause: {worst}. "
    return text + f"Now {share}; without these breaks {could:.1%}."


def _share(fields: Totals) -> str:
    text = f"{fields.stable_share:.1%} of the prompt tokens are unchanged since the previous turn"
    if fields.stable_tokens - fields.stable_tokens_lower >= 0.001 * fields.prompt_tokens:
        text += f" ({fields.stable_share_lower:.1%} if generated text does not become the same tokens again)"
    return text
