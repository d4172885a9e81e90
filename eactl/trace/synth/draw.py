"""Drawing a workload's lengths from a seed, and scaling them so that the requested means hold exactly.

Lengths are heavy-tailed (log-normal). Totals are linear in the scale of the tool results, so whatever the seed,
the scale that reaches a mean is known, and the last few tokens are settled by moving them between turns.

Random numbers come from numpy's RandomState, whose stream is frozen for ever: a seed means the same trace on
every machine and with every numpy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eactl.errors import UsageError
from eactl.trace.call import Notice
from eactl.trace.synth.calibrate import InfeasibleError, match_published, settle_prompt_total
from eactl.trace.synth.integers import call_counts, rounded, with_total
from eactl.trace.synth.plan import Floats, Ints, Plan, Shape, from_previous
from eactl.trace.synth.settings import MIN_RESULT_TOKENS, SynthSettings

_CALLS_SIGMA, _TASK_SIGMA, _OUTPUT_SIGMA, _RESULT_SIGMA, _GROWTH_SIGMA = 0.35, 0.6, 0.8, 1.3, 0.4
_GAP_SIGMA = 1.8  # the median is a fifth of the mean
_MAX_GAP_MEANS = 200.0
_LARGEST_RESULT = 3.4  # agents truncate what a tool returns: e^3.4 is 13 times the mean result


def make_plan(settings: SynthSettings) -> Plan:
    """Draw and calibrate a workload; raises UsageError where ``mean_prompt_tokens`` cannot be reached.

    Memory: about 150 bytes per call.
    """
    rng = np.random.RandomState(settings.seed)
    published = settings.published
    counts = call_counts(rng, settings.tasks, settings.calls_per_task, _CALLS_SIGMA, published)
    launched = (
        rng.poisson(settings.subagents, settings.tasks)
        if settings.subagents
        else np.zeros(settings.tasks, dtype=np.int64)
    )
    launched[counts < 2] = 0  # a parent waits for its sub-agents before its next call
    sub_counts = call_counts(rng, int(launched.sum()), settings.subagent_calls, _CALLS_SIGMA, None)
    shape = Shape.of(np.concatenate((counts, sub_counts)), settings.condense_every)
    parent = np.full(len(shape.counts), -1, dtype=np.int64)
    if len(sub_counts):
        starts = np.repeat(np.cumsum(counts) - counts, launched)
        room = np.repeat(counts - 1, launched)
        parent[settings.tasks :] = starts + np.floor(rng.random_sample(len(sub_counts)) * room).astype(np.int64)

    tasks, calls = len(shape.counts), len(shape)
    task_prompts = with_total(rng, tasks, round(settings.task_tokens * tasks), _TASK_SIGMA, MIN_RESULT_TOKENS)
    outputs = with_total(rng, calls, round(settings.output_tokens * calls), _OUTPUT_SIGMA, 1)
    cut = rng.random_sample(calls)
    broken = rng.random_sample(calls) < settings.retokenised_share
    sizes = np.exp(np.minimum(_RESULT_SIGMA * rng.standard_normal(calls), _LARGEST_RESULT))
    weights = sizes * np.exp(_GROWTH_SIGMA * rng.standard_normal(tasks))[shape.task]
    gaps = settings.gap_s * np.minimum(
        np.exp(_GAP_SIGMA * rng.standard_normal(calls) - _GAP_SIGMA**2 / 2), _MAX_GAP_MEANS
    )
    gaps[shape.first] = 0.0
    arrivals = np.full(tasks, np.nan)
    if settings.arrival_rate_per_s is not None:
        waits = -np.log1p(-rng.random_sample(settings.tasks)) / settings.arrival_rate_per_s
        arrivals[: settings.tasks] = np.cumsum(waits) - waits[0]

    kept = np.where(broken, np.floor(outputs * cut), outputs).astype(np.int64)
    kept[shape.last] = 0
    kept[:-1][shape.condensed[1:]] = 0
    plan = Plan(
        settings,
        shape,
        settings.system_tokens + task_prompts,
        np.zeros(calls, dtype=np.int64),
        outputs,
        kept,
        gaps,
        parent,
        arrivals,
    )
    if published is not None and settings.mean_prompt_tokens is not None:
        prompt_total = round(settings.mean_prompt_tokens * calls)
        try:
            kept, append = match_published(plan, published, prompt_total, weights, cut, rng)
            return replace(plan, kept_output_tokens=kept, append_tokens=append)
        except InfeasibleError as error:
            note = Notice(
                "shares-not-matched",
                f"{settings.tasks} tasks are too few for the published shares: {error}",
                "use more tasks",
            )
            plan = replace(plan, notices=(note,))
    return replace(plan, append_tokens=_appends(plan, weights))


def _appends(plan: Plan, weights: Floats) -> Ints:
    """What each call appends: re-tokenised output and a result, scaled to the requested mean."""
    settings, shape = plan.settings, plan.shape
    grows = shape.appends
    append = from_previous(plan.output_tokens - plan.kept_output_tokens, grows)
    append[grows] += MIN_RESULT_TOKENS
    append[shape.condensed] = settings.summary_tokens
    if not grows.any():
        return _only_if_reached(plan, append)
    share = weights * grows
    if settings.mean_prompt_tokens is None:
        extra = (settings.result_tokens - MIN_RESULT_TOKENS) * int(grows.sum())
        return append + rounded(share * (extra / share.sum()))
    wanted = round(settings.mean_prompt_tokens * len(shape))
    missing = wanted - int(replace(plan, append_tokens=append).prompt_tokens.sum())
    if missing < 0:
        return _only_if_reached(plan, append)
    append = append + rounded(share * (missing / float((share * shape.calls_from_here).sum())))
    return settle_prompt_total(replace(plan, append_tokens=append), wanted, keep_appended=False)


def _only_if_reached(plan: Plan, append: Ints) -> Ints:
    """The appends as they are, unless a mean prompt was asked for that no length of result can give."""
    settings = plan.settings
    prompts = replace(plan, append_tokens=append).prompt_tokens
    wanted = settings.mean_prompt_tokens
    if wanted is not None and abs(float(prompts.mean()) - wanted) > 0.005 * wanted:
        raise UsageError(
            f"prompts average {prompts.mean():,.0f} tokens without any tool result, not {wanted:,.0f}",
            where="--mean-prompt-tokens",
            hint="change it, or --system-tokens, --task-tokens, --output-tokens or --calls-per-task",
        )
    return append
