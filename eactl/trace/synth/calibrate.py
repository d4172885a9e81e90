"""Making a drawn workload agree with published totals to the token.

With P prompt tokens, S of them stable (METHOD.md, "Cache-stable prompt length") and V shared with the previous
prompt alone, an append-only workload has P − S tokens of first prompts and appends, and S − V tokens of output
that the next prompt repeats. Both are sums that can be met exactly. P itself depends on *when* the prompts grow:
tilting the growth of all tasks towards their start raises it, towards their end lowers it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eactl.trace.synth.integers import rounded
from eactl.trace.synth.plan import Floats, Ints, Plan, from_previous
from eactl.trace.synth.settings import MIN_RESULT_TOKENS, Published

_GROWTH_SIGMA = 0.45
_MOST_OF_MAX = 0.85  # no other task comes closer than this to the longest prompt
_MAX_TILT = 0.95


class InfeasibleError(Exception):
    """These lengths cannot have the published totals; the text says which."""


def match_published(
    plan: Plan, published: Published, prompt_total: int, weights: Floats, cut: Floats, rng: np.random.RandomState
) -> tuple[Ints, Ints]:
    """``(kept_output_tokens, append_tokens)`` with which ``plan`` has ``prompt_total`` and the ``published`` shares.

    ``weights`` are the relative sizes of the tool results and ``cut`` the relative places where a re-tokenised
    output departs from the generated one. Raises InfeasibleError.
    """
    shape = plan.shape
    stable_total = round(published.stable_share * prompt_total)
    kept_total = stable_total - round(published.previous_prompt_share * prompt_total)

    kept = _kept_outputs(plan, kept_total, cut, rng)
    plan = replace(plan, kept_output_tokens=kept)
    least = from_previous(plan.output_tokens - kept, shape.appends)  # what was re-tokenised comes back as new
    least[shape.appends] += MIN_RESULT_TOKENS
    extra = _growth(plan, published, prompt_total - stable_total, least, rng)

    position = 2.0 * shape.index / np.maximum(1, shape.counts - 1)[shape.task] - 1.0
    weights = weights * shape.appends

    def appends(tilt: float) -> Ints:
        tilted = weights * (1.0 - tilt * position)
        per_task = np.bincount(shape.task, tilted, minlength=len(extra))
        return least + rounded(tilted * (extra / np.maximum(per_task, 1e-300))[shape.task])

    def total(append: Ints) -> int:
        return int(replace(plan, append_tokens=append).prompt_tokens.sum())

    late, early = -_MAX_TILT, _MAX_TILT
    if not total(appends(late)) <= prompt_total <= total(appends(early)):
        raise InfeasibleError("the mean prompt cannot be reached")
    while early - late > 1e-9:
        middle = (late + early) / 2
        late, early = (middle, early) if total(appends(middle)) < prompt_total else (late, middle)
    return kept, settle_prompt_total(replace(plan, append_tokens=appends(late)), prompt_total, keep_appended=True)


def settle_prompt_total(plan: Plan, prompt_total: int, *, keep_appended: bool) -> Ints:
    """``append_tokens`` changed by a few tokens so that the prompts sum to ``prompt_total``.

    A token moved from one append to the one before it is in one prompt more. Where too few calls can give one,
    a task's last append grows or shrinks, unless ``keep_appended`` forbids changing the sum of appends.
    Raises InfeasibleError when that is not enough.
    """
    shape = plan.shape
    append: Ints = plan.append_tokens.copy()
    missing = prompt_total - int(plan.prompt_tokens.sum())
    spare = from_previous(plan.output_tokens - plan.kept_output_tokens, shape.appends) + MIN_RESULT_TOKENS
    pairs = np.flatnonzero(shape.appends[1:] & shape.appends[:-1])
    for parity in (0, 1):
        earlier = pairs[shape.index[pairs] % 2 == parity]  # disjoint, so that all can move at once
        giver, taker = (earlier + 1, earlier) if missing > 0 else (earlier, earlier + 1)
        moved = _spread(abs(missing), np.maximum(0, append[giver] - spare[giver]))
        append[giver] -= moved
        append[taker] += moved
        missing -= int(moved.sum()) * (1 if missing > 0 else -1)
    if missing and not keep_appended:
        ends = np.flatnonzero(shape.appends & (shape.calls_from_here == 1))
        room = np.full(len(ends), abs(missing)) if missing > 0 else np.maximum(0, append[ends] - spare[ends])
        moved = _spread(abs(missing), room)
        append[ends] += moved if missing > 0 else -moved
        missing -= int(moved.sum()) * (1 if missing > 0 else -1)
    if missing and keep_appended:
        raise InfeasibleError(f"{missing} prompt tokens are left over")
    return append


def _spread(amount: int, room: Ints) -> Ints:
    """``amount`` taken from ``room`` as evenly as it allows; less where there is not enough."""
    taken = np.zeros_like(room)
    while amount > 0 and (open_places := np.flatnonzero(room > taken)).size:
        step = max(1, amount // open_places.size)
        part = np.minimum(step, (room - taken)[open_places])[: amount if step == 1 else None]
        taken[open_places[: len(part)]] += part
        amount -= int(part.sum())
    return taken


def _kept_outputs(plan: Plan, kept_total: int, cut: Floats, rng: np.random.RandomState) -> Ints:
    """Per call, how much of its output the next prompt repeats: ``kept_total`` in all."""
    shape, outputs = plan.shape, plan.output_tokens
    repeated = np.flatnonzero(~shape.last)
    lost_total = int(outputs[repeated].sum()) - kept_total
    if lost_total < 0:
        raise InfeasibleError("the last outputs are too large")
    # Twice as many as are needed on average, so that scaling the cuts to the total leaves most outputs whole.
    order = rng.permutation(repeated)
    reach = np.cumsum(outputs[order])
    broken = order[: int(np.searchsorted(reach, 2 * lost_total)) + 1]
    share = np.maximum(1.0 - cut[broken], 0.02)
    lost = np.minimum(
        outputs[broken], np.rint(share * outputs[broken] * (lost_total / float((share * outputs[broken]).sum())))
    )
    lost = lost.astype(np.int64)
    difference = lost_total - int(lost.sum())
    if difference >= 0:
        lost += _spread(difference, outputs[broken] - lost)
    else:
        lost -= _spread(-difference, lost)
    kept: Ints = outputs.copy()
    kept[shape.last] = 0
    kept[broken] -= lost
    return kept


def _growth(plan: Plan, published: Published, fresh_total: int, least: Ints, rng: np.random.RandomState) -> Ints:
    """Per task, how many tokens its appends have beyond ``least``: ``fresh_total`` in all, first prompts included."""
    shape, first = plan.shape, plan.first_tokens
    per_task = np.bincount(shape.task, least + plan.kept_output_tokens, minlength=len(first)).astype(np.int64)
    room = published.max_prompt_tokens - first - per_task  # beyond these the last prompt would be too long
    left = fresh_total - int(first.sum()) - int(least.sum())
    growth = np.zeros(len(first), dtype=np.int64)
    longest = int(np.argmax(shape.counts))
    weights = np.sqrt(shape.counts) * np.exp(_GROWTH_SIGMA * rng.standard_normal(len(first)))
    if left <= 0 or room.min() <= 0:
        raise InfeasibleError("first prompts and outputs alone exceed the share of fresh tokens")
    if 4 * room[longest] < left:  # few tasks cannot afford a longest prompt of the published length
        growth[longest] = room[longest]
        weights[longest] = 0.0
        left -= int(room[longest])
    most = np.maximum(0.0, room - (1.0 - _MOST_OF_MAX) * published.max_prompt_tokens)
    share = np.zeros(len(first))
    for _ in range(len(first)):
        open_tasks = (share < most) & (weights > 0)
        missing = left - float(share.sum())
        if missing < 0.5 or not open_tasks.any():
            break
        scaled = np.where(open_tasks, weights, 0.0)
        share = np.minimum(most, share + scaled * (missing / scaled.sum()))
    grown = growth + rounded(share)
    if int(grown.sum()) - int(growth.sum()) != left:
        raise InfeasibleError("the tasks cannot grow enough below the longest prompt")
    return grown
