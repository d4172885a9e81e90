"""Running models of condensers over a log, and comparing two logs of the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from eactl.condense.condensers import CONDENSERS, Condenser, Everything
from eactl.condense.ledger import Prices, break_even_turns
from eactl.condense.params import OPTION, Params, parse
from eactl.condense.result import Comparison, Session, Strategy
from eactl.condense.turns import Event
from eactl.errors import UsageError

Histories = Sequence[tuple[str, tuple[tuple[Event, ...], ...]]]
BASE = "append-only"


@dataclass(frozen=True)
class StrategySpec:
    """One ``--condense``: its name with parameters, and what makes a fresh condenser for each session."""

    label: str
    make: Callable[[], Condenser]


def parse_strategy(text: str, count: Callable[[str], int]) -> StrategySpec:
    """A condenser from ``NAME:params``. ``count`` gives the tokens of a summary's text. Raises UsageError."""
    name, values = parse(text)
    factory = CONDENSERS.get(name)
    if factory is None:
        raise UsageError(f"no condenser {name!r}", where=OPTION, hint=f"choose from {', '.join(CONDENSERS)}")
    params = Params(name, values, count)
    factory(params)  # checks the values before any log is read
    params.finish()
    return StrategySpec(text, lambda: factory(Params(name, values, count)))


def run_strategies(histories: Histories, specs: Iterable[StrategySpec], prices: Prices) -> tuple[Strategy, ...]:
    """The append-only history and every condenser over the same messages, priced alike."""
    base = _run(StrategySpec(BASE, Everything), histories, prices)
    rows = [base]
    for spec in specs:
        row = _run(spec, histories, prices)
        removed = base.prompt_tokens - row.prompt_tokens
        refilled = row.fresh_tokens - base.fresh_tokens + row.own_prompt_tokens
        even = None
        if row.edits:
            even = break_even_turns(row.removed_tokens / row.edits, max(0, refilled) / row.edits, prices.reused_cost)
        rows.append(replace(row, break_even_turns=even if removed > 0 else None))
    return tuple(rows)


@dataclass(slots=True)
class _Sums:
    calls: int = 0
    prompt: int = 0
    stable: int = 0
    edits: int = 0
    removed: int = 0
    refilled: int = 0
    own_calls: int = 0
    own_prompt: int = 0
    own_output: int = 0
    own_stable: int = 0
    later: int = 0


def _run(spec: StrategySpec, histories: Histories, prices: Prices) -> Strategy:
    sums = _Sums()
    for _, turns in histories:
        _session(spec.make(), turns, sums)
    return _row(spec.label, sums, prices)


def _session(condenser: Condenser, turns: Sequence[Sequence[Event]], sums: _Sums) -> None:
    history: list[Event] = []
    processed: list[Event] = []
    for number, added in enumerate(turns):
        history.extend(added)
        view, own = condenser.view(history)
        prompt = sum(event.tokens for event in view)
        sums.calls += 1
        sums.prompt += prompt
        if own is not None:
            sums.own_calls += 1
            sums.own_prompt += own.prompt_tokens
            sums.own_output += own.output_tokens
        if number:
            # The last answer is the first message added: its KV came from decoding.
            answered = [*processed, *added[:1]] if added and added[0].role == "assistant" else processed
            stable = _shared(answered, view)
            append_only = sum(event.tokens for event in answered)
            new = sum(e.tokens for e in added) - (added[0].tokens if len(answered) > len(processed) else 0)
            sums.stable += stable
            sums.later += 1
            if stable < min(append_only, prompt):
                sums.edits += 1
                sums.removed += max(0, append_only + new - prompt)
                sums.refilled += max(0, prompt - stable - new)
        processed = view


def _shared(old: Sequence[Event], new: Sequence[Event]) -> int:
    tokens = 0
    for left, right in zip(old, new, strict=False):
        if left.key != right.key:
            break
        tokens += right.tokens
    return tokens


def _row(name: str, sums: _Sums, prices: Prices) -> Strategy:
    fresh, own = sums.prompt - sums.stable, sums.own_prompt - sums.own_stable
    amortised = (sums.refilled + own) / sums.later if sums.later else 0.0
    return Strategy(
        name=name,
        calls=sums.calls,
        prompt_tokens=sums.prompt,
        stable_tokens=sums.stable,
        edits=sums.edits,
        removed_tokens=sums.removed,
        refilled_tokens=sums.refilled,
        own_calls=sums.own_calls,
        own_prompt_tokens=sums.own_prompt,
        own_output_tokens=sums.own_output,
        amortised_tokens_per_turn=round(amortised, 1),
        turns_between_edits=round(sums.later / sums.edits, 2) if sums.edits else None,
        cost_tokens=round(prices.cost_tokens(fresh + own, sums.stable + sums.own_stable), 1),
        seconds=prices.seconds(fresh + own, sums.stable + sums.own_stable),
        amortised_s_per_turn=prices.seconds(amortised),
    )


def as_recorded(name: str, sessions: Iterable[Session], prices: Prices) -> Strategy:
    """A log's own behaviour as a row: calls beside the conversation are the condenser's own."""
    turns = [turn for session in sessions for turn in session.turns]
    main = [turn for turn in turns if not turn.side]
    side = [turn for turn in turns if turn.side]
    broken = [turn for turn in main if turn.is_break]
    sums = _Sums(
        calls=len(main),
        prompt=sum(turn.prompt_tokens for turn in main),
        stable=sum(turn.stable_tokens for turn in main),
        edits=len(broken),
        removed=sum(turn.removed_tokens for turn in broken),
        refilled=sum(turn.lost_tokens for turn in broken),
        own_calls=len(side),
        own_prompt=sum(turn.prompt_tokens for turn in side),
        own_stable=sum(turn.stable_tokens for turn in side),
        later=sum(turn.cause != "first-call" for turn in main),
    )
    return _row(name, sums, prices)


def compare(here: Sequence[Session], there: Sequence[Session], names: tuple[str, str], prices: Prices) -> Comparison:
    """Two logs of the same tasks, matched by session name; by their order when no name is in both."""
    left, right = {s.session: s for s in here}, {s.session: s for s in there}
    both = [name for name in left if name in right]
    if both:
        mine, theirs = [left[name] for name in both], [right[name] for name in both]
    else:
        count = min(len(here), len(there))
        mine, theirs = list(here[:count]), list(there[:count])
    rows = (as_recorded(names[0], mine, prices), as_recorded(names[1], theirs, prices))
    return Comparison(
        tasks=len(mine),
        only_here=len(here) - len(mine),
        only_there=len(there) - len(mine),
        rows=rows,
        verdict=_compare_verdict(rows, by_name=bool(both)),
    )


def _compare_verdict(rows: tuple[Strategy, Strategy], *, by_name: bool) -> str:
    here, there = rows
    cheaper, dearer = (here, there) if here.cost_tokens <= there.cost_tokens else (there, here)
    if not here.calls or not there.calls:
        return "The logs have no task in common."
    less = 1 - cheaper.cost_tokens / dearer.cost_tokens if dearer.cost_tokens else 0.0
    lead = f"{cheaper.name} costs {less:.0%} less" if less >= 0.005 else "Both cost the same"
    first, second = (cheaper, dearer) if less >= 0.005 else (here, there)
    text = (
        f"{lead}: {first.fresh_tokens:,} fresh tokens against {second.fresh_tokens:,}, own calls of "
        f"{first.own_prompt_tokens:,} against {second.own_prompt_tokens:,}, mean prompt "
        f"{first.mean_prompt_tokens:,.0f} against {second.mean_prompt_tokens:,.0f}, prefix-hit rate "
        f"{first.stable_share:.1%} against {second.stable_share:.1%}."
    )
    return text if by_name else text + " No session names are in both logs: they were paired in order."
