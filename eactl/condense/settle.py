"""What only a whole session shows: calls beside the conversation, sliding windows, how long each edit stayed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from eactl.condense.finding import EDITS
from eactl.condense.ledger import Prices, price_edit
from eactl.condense.remedies import remedy
from eactl.condense.result import Turn
from eactl.condense.turns import Draft

_STEP = 1.6  # a window that slides drops about what came in, a step much more


def settle(drafts: Sequence[Draft], beside: Collection[int], prices: Prices) -> list[Turn]:
    """The session's turns with their final causes, remedies and ledgers, in the order of ``drafts``."""
    turns = [draft.turn for draft in drafts]
    lines: dict[int, list[int]] = defaultdict(list)
    for number, draft in enumerate(drafts):
        lines[draft.line].append(number)
    for line, numbers in lines.items():
        if line in beside:
            for number in numbers:
                turns[number] = _beside(turns[number], first=number == numbers[0])
        _name_windows([drafts[number] for number in numbers], numbers, turns)
        price_line(numbers, turns, prices)
    return turns


def price_line(numbers: Sequence[int], turns: list[Turn], prices: Prices) -> None:
    """Remedies and ledgers of one conversation's turns; ``turns`` is changed in place."""
    broken = [position for position, number in enumerate(numbers) if turns[number].is_break]
    ends = [*broken[1:], len(numbers)][: len(broken)]
    for position, end in zip(broken, ends, strict=True):
        number = numbers[position]
        turn = turns[number]
        edit = None
        if turn.cause in EDITS and turn.removed_tokens > 0:
            edit = price_edit(turn.removed_tokens, turn.lost_tokens, end - position, prices)
        turns[number] = replace(turn, remedy=remedy(turn), edit=edit)


def _beside(turn: Turn, *, first: bool) -> Turn:
    if not first:
        return replace(turn, side=True)
    return replace(
        turn, cause="first-call", kind="a call beside the conversation", side=True, where=None, stable_tokens=0,
        stable_tokens_lower=0, lost_tokens=0, removed_tokens=0, chunks_lost=0,
    )  # fmt: skip


def _name_windows(drafts: Sequence[Draft], numbers: Sequence[int], turns: list[Turn]) -> None:
    """Cuts that come at nearly every turn are a sliding window, masks that do are a sliding mask."""
    for cause in ("truncated", "masked"):
        at = [position for position, draft in enumerate(drafts) if turns[numbers[position]].cause == cause]
        for run in _runs(at):
            every_turn = len(run) > 1
            if not every_turn and cause == "truncated" and run[0] == len(drafts) - 1:
                draft = drafts[run[0]]
                about_what_came_in = 0 < draft.dropped_tokens <= _STEP * draft.added_tokens
                every_turn = draft.from_the_front and about_what_came_in and "all " not in draft.turn.kind
            for position in run if every_turn else ():
                number = numbers[position]
                kind = f"{turns[number].kind}, again at nearly every turn" if len(run) > 1 else turns[number].kind
                turns[number] = replace(
                    turns[number], cause="sliding-window" if cause == "truncated" else cause, kind=kind
                )


def _runs(positions: Sequence[int]) -> list[list[int]]:
    """Groups of positions with at most one turn between neighbours."""
    runs: list[list[int]] = []
    for position in positions:
        if runs and position - runs[-1][-1] <= 2:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs
