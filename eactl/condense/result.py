"""The answer of ``eactl condenser-check`` as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Where:
    """The first difference. ``message`` counts in the request's messages (None: tools or whole request).

    ``offset`` counts characters in the text at ``path``; ``token`` is the prompt token where the prefix ends.
    ``before`` and ``after`` are short quotes around it, None where quoting is off or no text is known.
    """

    message: int | None
    role: str | None
    offset: int | None
    before: str | None
    after: str | None
    path: str | None = None
    token: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Edit:
    """Both sides of the ledger of one edit: what it took out of the prompt, what it made necessary to compute again.

    ``refilled_tokens`` is N_inv: fresh tokens that an append-only history would not need. ``turns_kept`` is L_cache:
    turns until the next break. ``break_even_turns``: later turns after which the shorter prompt has paid for them,
    None when never. Seconds are None without a prefill rate.
    """

    removed_tokens: int
    refilled_tokens: int
    turns_kept: int
    amortised_tokens_per_turn: float
    break_even_turns: int | None
    pays: bool | None
    refill_s: float | None = None
    amortised_s_per_turn: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Turn:
    """One request against the previous one of its line: METHOD's stable and fresh prompt tokens, and why.

    ``stable_tokens`` takes generated text that came back unchanged as stable; ``stable_tokens_lower`` does not,
    because text is not sure to become the generated ids again. ``lost_tokens`` is N_inv of this turn.
    """

    session: str
    turn: int
    prompt_tokens: int
    stable_tokens: int
    stable_tokens_lower: int
    cause: str
    kind: str = ""
    where: Where | None = None
    line: str = ""
    lost_tokens: int = 0
    removed_tokens: int = 0
    chunks_lost: int = 0
    shared_tokens: int | None = None
    cached_tokens: int | None = None
    side: bool = False
    remedy: str = ""
    edit: Edit | None = None

    @property
    def fresh_tokens(self) -> int:
        """Prompt tokens that must be computed even when everything before is resident."""
        return self.prompt_tokens - self.stable_tokens

    @property
    def is_break(self) -> bool:
        """The prefix did not simply grow."""
        return self.cause not in ("append", "first-call")

    def as_dict(self) -> dict[str, Any]:
        return {
            "turn": self.turn,
            "prompt_tokens": self.prompt_tokens,
            "stable_tokens": self.stable_tokens,
            "fresh_tokens": self.fresh_tokens,
            "cause": self.cause,
            "where": None if self.where is None else self.where.as_dict(),
            "kind": self.kind,
            "stable_tokens_lower": self.stable_tokens_lower,
            "lost_tokens": self.lost_tokens,
            "removed_tokens": self.removed_tokens,
            "chunks_lost": self.chunks_lost,
            "shared_tokens": self.shared_tokens,
            "cached_tokens": self.cached_tokens,
            "side_call": self.side,
            "remedy": self.remedy or None,
            "line": self.line or None,
            "edit": None if self.edit is None else self.edit.as_dict(),
        }


@dataclass(frozen=True, slots=True)
class Session:
    """The turns of one session, in order."""

    session: str
    turns: tuple[Turn, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"session": self.session, "turns": [turn.as_dict() for turn in self.turns]}


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """All breaks of one cause and kind: how often, what they lost, the worst of them, what to do."""

    cause: str
    kinds: tuple[str, ...]
    breaks: int
    sessions: int
    lost_tokens: int
    chunks_lost: int
    worst: Turn
    remedy: str
    removed_tokens: int = 0
    break_even_turns: int | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "cause": self.cause,
            "kinds": list(self.kinds),
            "breaks": self.breaks,
            "sessions": self.sessions,
            "lost_tokens": self.lost_tokens,
            "removed_tokens": self.removed_tokens,
            "chunks_lost": self.chunks_lost,
            "break_even_turns": self.break_even_turns,
            "worst": {"session": self.worst.session, **self.worst.as_dict()},
            "remedy": self.remedy,
        }


class _Shares:
    """What follows from the prompt tokens of some turns and those of them that were stable."""

    __slots__ = ()
    prompt_tokens: int
    stable_tokens: int

    @property
    def fresh_tokens(self) -> int:
        return self.prompt_tokens - self.stable_tokens

    @property
    def stable_share(self) -> float:
        """Expected prefix-hit rate when everything processed stays resident."""
        return self.stable_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Totals(_Shares):
    """Sums over all turns; ``verdict`` says them in a sentence or two."""

    requests: int
    prompt_tokens: int
    stable_tokens: int
    stable_tokens_lower: int
    reusable_tokens_lower: int
    reusable_tokens_upper: int
    lost_tokens: int
    removed_tokens: int
    chunks_lost: int
    breaks: int
    breaks_by_cause: Mapping[str, int]
    turns_between_breaks: float | None
    amortised_tokens_per_turn: float
    amortised_s_per_turn: float | None
    prefill_s: float | None
    side_calls: int
    side_tokens: int
    side_stable_tokens: int
    shared_tokens: int
    cached_tokens: int | None
    isolation_tokens: int
    isolation_bytes_rank: int | None
    verdict: str

    @property
    def stable_share_lower(self) -> float:
        return self.stable_tokens_lower / self.prompt_tokens if self.prompt_tokens else 0.0

    def as_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["breaks_by_cause"] = dict(self.breaks_by_cause)
        fields["stable_share"] = round(self.stable_share, 6)
        fields["stable_share_lower"] = round(self.stable_share_lower, 6)
        fields["fresh_tokens"] = self.fresh_tokens
        return fields


@dataclass(frozen=True, slots=True)
class Strategy(_Shares):
    """One condenser's model run over the log (or the log's own behaviour): what it would have sent and computed."""

    name: str
    calls: int
    prompt_tokens: int
    stable_tokens: int
    edits: int
    removed_tokens: int
    refilled_tokens: int
    own_calls: int = 0
    own_prompt_tokens: int = 0
    own_output_tokens: int = 0
    amortised_tokens_per_turn: float = 0.0
    turns_between_edits: float | None = None
    break_even_turns: int | None = None
    cost_tokens: float = 0.0
    seconds: float | None = None
    amortised_s_per_turn: float | None = None

    @property
    def mean_prompt_tokens(self) -> float:
        return self.prompt_tokens / self.calls if self.calls else 0.0

    def as_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["fresh_tokens"] = self.fresh_tokens
        fields["stable_share"] = round(self.stable_share, 6)
        fields["mean_prompt_tokens"] = round(self.mean_prompt_tokens, 1)
        return fields


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two logs of the same tasks, over the tasks both have."""

    tasks: int
    only_here: int
    only_there: int
    rows: tuple[Strategy, Strategy]
    verdict: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "tasks": self.tasks,
            "only_here": self.only_here,
            "only_there": self.only_there,
            "rows": [row.as_dict() for row in self.rows],
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class Hysteresis:
    """Cutting the history every turn against cutting it in steps, for this log's growth and budget."""

    budget_tokens: int
    growth_tokens_per_turn: int
    head_tokens: int
    high: float
    low: float
    every_turn_tokens_per_turn: float
    stepwise_tokens_per_turn: float
    turns_between_steps: int

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The whole answer. ``counted_requests`` have their prompt's tokens counted in the log, all others by us."""

    sessions: tuple[Session, ...]
    summary: Totals
    causes: tuple[CauseTotal, ...]
    tokenizer: str
    exact_tokens: bool
    chunk_tokens: int
    reused_cost: float
    counted_requests: int = 0
    strategies: tuple[Strategy, ...] = ()
    hysteresis: Hysteresis | None = None
    against: Comparison | None = None
    sources: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Mapping[str, str], ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        return {
            "summary": self.summary.as_dict(),
            "causes": [cause.as_dict() for cause in self.causes],
            "sessions": [session.as_dict() for session in self.sessions],
            "condensers": [strategy.as_dict() for strategy in self.strategies],
            "hysteresis": None if self.hysteresis is None else self.hysteresis.as_dict(),
            "against": None if self.against is None else self.against.as_dict(),
            "tokens": {
                "tokenizer": self.tokenizer,
                "exact": self.exact_tokens,
                "counted_requests": self.counted_requests,
            },
            "chunk_tokens": self.chunk_tokens,
            "reused_cost": self.reused_cost,
            "sources": [dict(source) for source in self.sources],
            "warnings": [dict(warning) for warning in self.warnings],
        }
