"""What an edit of the history costs and what it saves (METHOD.md: N_inv·t_pf/L_cache; Appendix G)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eactl.condense.result import Edit, Hysteresis
from eactl.model.obr import ObrResult


@dataclass(frozen=True)
class Prices:
    """What a token costs. ``reused_cost``: a reused prompt token against a fresh one (0.1 is what providers charge for
    cached input; with a measured OBR it is the restore time over the prefill time). Seconds need ``prefill_s``."""

    reused_cost: float = 0.1
    prefill_s: float | None = None
    obr: ObrResult | None = None

    @classmethod
    def from_obr(cls, obr: ObrResult, reused_cost: float | None = None) -> Prices:
        """Prefill seconds and, unless given, the restore's share of them."""
        restore = obr.bytes_per_token / obr.bandwidth.value / obr.per_token.value
        return cls(min(1.0, restore) if reused_cost is None else reused_cost, obr.per_token.value, obr)

    def seconds(self, fresh_tokens: float, reused_tokens: float = 0) -> float | None:
        """Prefill of the fresh tokens and, where the restore rate is known, the restore of the others."""
        if self.prefill_s is None:
            return None
        restore = 0.0
        if self.obr is not None and reused_tokens > 0:
            restore = reused_tokens * self.obr.bytes_per_token / self.obr.bandwidth.value
        return fresh_tokens * self.prefill_s + restore

    def cost_tokens(self, fresh_tokens: float, reused_tokens: float) -> float:
        """Fresh tokens that cost as much as this many fresh and reused ones."""
        return fresh_tokens + self.reused_cost * reused_tokens


def price_edit(removed_tokens: int, refilled_tokens: int, turns_kept: int, prices: Prices) -> Edit:
    """The ledger of one edit that stayed for ``turns_kept`` turns before the next break.

    The refill costs (1 − r) of a fresh token each, since reusing them would have cost r; every turn with the shorter
    prompt, this one included, then saves r for each token removed.
    """
    turns = max(1, turns_kept)
    even = break_even_turns(removed_tokens, refilled_tokens, prices.reused_cost)
    return Edit(
        removed_tokens=removed_tokens,
        refilled_tokens=refilled_tokens,
        turns_kept=turns,
        amortised_tokens_per_turn=round(refilled_tokens / turns, 1),
        break_even_turns=even,
        pays=None if even is None and removed_tokens <= 0 else even is not None and even <= turns,
        refill_s=prices.seconds(refilled_tokens),
        amortised_s_per_turn=None if (s := prices.seconds(refilled_tokens)) is None else s / turns,
    )


def break_even_turns(removed_tokens: float, refilled_tokens: float, reused_cost: float) -> int | None:
    """Turns with the shorter prompt until it has paid for the tokens computed again; None when it never does."""
    if refilled_tokens <= 0:
        return 0
    saved = removed_tokens * reused_cost
    return math.ceil(refilled_tokens * (1 - reused_cost) / saved) if saved > 0 else None


def hysteresis(
    budget_tokens: int, growth_tokens: int, *, head_tokens: int = 0, high: float = 1.2, low: float = 0.7
) -> Hysteresis:
    """Tokens computed again per turn when the window is cut at every turn, and when it is cut in steps.

    Every turn: all but the head of the budget moves. In steps: grow to ``high`` times the budget, cut to ``low``
    times it; the kept part is computed again once per (high − low)·budget/growth turns.
    """
    growth = max(1, growth_tokens)
    turns = max(1, math.ceil((high - low) * budget_tokens / growth))
    return Hysteresis(
        budget_tokens=budget_tokens,
        growth_tokens_per_turn=growth_tokens,
        head_tokens=head_tokens,
        high=high,
        low=low,
        every_turn_tokens_per_turn=float(max(0, budget_tokens - growth_tokens - head_tokens)),
        stepwise_tokens_per_turn=round(max(0.0, low * budget_tokens - head_tokens) / turns, 1),
        turns_between_steps=turns,
    )
