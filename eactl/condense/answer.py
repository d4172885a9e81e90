"""From logs to the whole answer: check, totals, causes, models of condensers, a second log, warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eactl.condense.check import Checked, CheckSettings, check
from eactl.condense.ledger import hysteresis
from eactl.condense.result import CheckResult, Hysteresis, Session, Totals
from eactl.condense.strategies import StrategySpec, compare, run_strategies
from eactl.condense.totals import causes, totals
from eactl.trace.call import Notice
from eactl.trace.chat import ChatRequest
from eactl.trace.templates import ChatTemplate
from eactl.trace.tokens import ApproximateTokenizer, Tokenizer
from eactl.units import human_many

SECONDS_CODE = "no-prefill-rate"


@dataclass(frozen=True)
class Question:
    """What is asked besides the check: condensers to model, names for the logs in tables."""

    settings: CheckSettings = field(default_factory=CheckSettings)
    condensers: tuple[StrategySpec, ...] = ()
    names: tuple[str, str] = ("this log", "the other log")


def answer(
    requests: Iterable[ChatRequest], question: Question, tokenizer: Tokenizer | None = None,
    template: ChatTemplate | None = None, *, against: Iterable[ChatRequest] | None = None,
    facts: Callable[[], tuple[Sequence[Mapping[str, Any]], Sequence[Notice]]] | None = None,
    trim: Hysteresis | None = None,
) -> CheckResult:  # fmt: skip
    """Check ``requests`` and everything else that was asked; ``trim`` is shown where no session cuts at every turn.

    ``facts`` is called after the reading and gives the sources and the readers' notices. Raises TraceError from the
    readers.
    """
    settings = question.settings
    prices = settings.prices
    tokenizer = tokenizer or ApproximateTokenizer()
    checked = check(requests, settings, tokenizer, template, keep_histories=bool(question.condensers))
    other = check(against, settings, tokenizer, template) if against is not None else None
    sums = totals(
        checked.sessions, prices, chunk_tokens=settings.chunk_tokens,
        bytes_per_token_rank=settings.bytes_per_token_rank,
    )  # fmt: skip
    if trim is not None and not checked.sessions:
        sums = replace(sums, verdict=_trim_verdict(trim))
    sources, read = facts() if facts is not None else ((), ())
    notices = [*read, *checked.notices, *_further(checked, sums, question)]
    comparison = None if other is None else compare(checked.sessions, other.sessions, question.names, prices)
    return CheckResult(
        sessions=checked.sessions,
        summary=sums,
        causes=causes(checked.sessions, prices),
        tokenizer=tokenizer.name,
        exact_tokens=tokenizer.exact,
        chunk_tokens=settings.chunk_tokens,
        reused_cost=round(prices.reused_cost, 4),
        counted_requests=checked.counted,
        strategies=run_strategies(checked.histories, question.condensers, prices) if checked.histories else (),
        hysteresis=window_steps(checked.sessions) or trim,
        against=comparison,
        sources=tuple(sources),
        warnings=tuple(notice.as_dict() for notice in notices),
    )


def _trim_verdict(trim: Hysteresis) -> str:
    less = 1 - trim.stepwise_tokens_per_turn / max(1.0, trim.every_turn_tokens_per_turn)
    return (
        f"Cutting the history at every turn computes {trim.every_turn_tokens_per_turn:,.0f} tokens again per turn; "
        f"cutting in steps {trim.stepwise_tokens_per_turn:,.0f}, {less:.0%} less. Cut in steps."
    )


def window_steps(sessions: Iterable[Session]) -> Hysteresis | None:
    """For the session with the most sliding cuts: what cutting in steps would compute again instead."""
    best: tuple[int, Hysteresis] | None = None
    for session in sessions:
        sliding = [turn for turn in session.turns if turn.cause == "sliding-window"]
        if len(sliding) < 2 or (best is not None and best[0] >= len(sliding)):
            continue
        budget = round(sum(turn.prompt_tokens for turn in sliding) / len(sliding))
        head = round(sum(turn.stable_tokens for turn in sliding) / len(sliding))
        growth = round(sum(turn.fresh_tokens - turn.lost_tokens for turn in sliding) / len(sliding))
        best = (len(sliding), hysteresis(budget, growth, head_tokens=head))
    return None if best is None else best[1]


def _further(checked: Checked, sums: Totals, question: Question) -> Iterable[Notice]:
    prices = question.settings.prices
    if prices.prefill_s is None:
        yield Notice(
            SECONDS_CODE, "seconds (amortised_s_per_turn and others) are not known: there is no prefill rate",
            "give --obr FILE (eactl probe obr -o FILE) or --prefill-us-per-token",
        )  # fmt: skip
    if question.condensers and len(checked.histories) < len(checked.sessions):
        left_out = len(checked.sessions) - len(checked.histories)
        yield Notice(
            "no-messages-to-condense",
            f"condensers work on messages: {left_out:,} of {len(checked.sessions):,} sessions hold rendered text or "
            "counts only and are not in their table",
            "log the messages as they were sent",
        )
    measured = [t for s in checked.sessions for t in s.turns if t.cached_tokens is not None and t.where is None]
    stable = sum(turn.stable_tokens_lower for turn in measured if turn.cause == "append")
    cached = sum(turn.cached_tokens or 0 for turn in measured if turn.cause == "append")
    if stable and cached < 0.8 * stable:
        yield Notice(
            "cache-below-text",
            f"where the text only grew, the provider read {cached:,} tokens from its cache and {stable:,} were "
            "unchanged: the rest was lost to expiry, eviction or another replica, or the log does not hold the change",
            "look at the gaps between turns, at the tier's size (eactl size) and at routing",
        )
    if sums.side_calls:
        yield Notice(
            "calls-beside",
            f"{human_many(sums.side_calls, 'request')} with {sums.side_tokens:,} prompt "
            "tokens ran beside their conversation (a condenser's own calls, sub-agents): a stream of their own that "
            "shares no prefix with it",
            "build such calls on the agent's own prompt to share its prefix",
        )
    if sums.isolation_tokens and sums.isolation_bytes_rank is None:
        yield Notice(
            "isolation-in-tokens",
            f"keeping salts or adapters apart costs {sums.isolation_tokens:,} tokens computed and stored again",
            "give --kv-bytes-per-token (or --obr) to see it in GiB",
        )
