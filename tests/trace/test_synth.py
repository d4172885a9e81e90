"""The synthetic workload: what was asked for is what comes out, measured on the ids by the prefix forest."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eactl.errors import UsageError
from eactl.model.summary import summarise
from eactl.model.workload import Workload
from eactl.trace.call import Call
from eactl.trace.synth import SynthSettings, customised, make_plan, profile_named, summarise_plan, synthesise
from eactl.trace.workload import load_workload


def calls_of(made: SynthSettings) -> list[Call]:
    return list(synthesise(make_plan(made)))


def workload_of(made: SynthSettings) -> Workload:
    return load_workload(synthesise(make_plan(made)))


def calls_per_task(workload: Workload) -> np.ndarray:
    return np.bincount(workload.task)


SWEBENCH = profile_named("swebench-openhands").settings


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 20_261_130])
def test_swebench_has_the_published_statistics_to_the_token_whatever_the_seed(seed: int) -> None:
    workload = workload_of(replace(SWEBENCH, seed=seed))
    counts = calls_per_task(workload)
    # EfficientAgent App. B: 79 tasks, 4,427 calls (mean 56.0, median 51, range 32-100)
    assert (len(counts), int(counts.sum()), int(np.median(counts))) == (79, 4_427, 51)
    assert (counts.min(), counts.max()) == (32, 100)
    found = summarise(workload)
    assert found.prompt_tokens == 147_124_984
    assert found.output_tokens == 1_835_698  # 23.2K per task
    assert found.max_prompt_tokens == 238_105
    assert found.stable_tokens == 144_289_835  # 98.1 %
    assert found.previous_prompt_shared_tokens == 142_541_707  # 96.9 %


def test_swebench_agents_wait_about_two_thirds_of_a_second_at_the_median() -> None:
    # Sec. 1: queueing stretches the gap to 9.0 s, 14 times the agent's own time: 0.64 s
    gaps = [call.gap_s for call in synthesise(make_plan(SWEBENCH)) if call.gap_s is not None]
    assert 0.5 < np.median(gaps) < 0.8


@pytest.mark.parametrize("tasks", [1, 2, 5, 20, 40, 158])
def test_swebench_with_other_task_counts_keeps_the_mean_prompt_and_says_when_shares_are_lost(tasks: int) -> None:
    plan = make_plan(replace(SWEBENCH, tasks=tasks))
    assert plan.prompt_tokens.mean() == pytest.approx(147_124_984 / 4_427, rel=1e-4)
    stable = plan.keep_tokens.sum() / plan.prompt_tokens.sum()
    if plan.notices:
        assert [notice.code for notice in plan.notices] == ["shares-not-matched"]
    else:
        assert stable == pytest.approx(144_289_835 / 147_124_984, rel=1e-4)


def test_swebench_in_blocks_is_the_same_workload() -> None:
    tokens, blocks = workload_of(SWEBENCH), workload_of(replace(SWEBENCH, block_tokens=16))
    assert (tokens.prompt_tokens == blocks.prompt_tokens).all()
    assert (tokens.arrival_s == blocks.arrival_s).all()
    shared = tokens.shared_with_previous(with_output=False) // 16 * 16  # whole blocks of what the tokens share
    assert (blocks.shared_with_previous(with_output=False) == shared).all()


MADE = st.builds(
    SynthSettings,
    tasks=st.integers(1, 12),
    calls_per_task=st.floats(1, 12),
    system_tokens=st.sampled_from([0, 1, 500]),
    task_tokens=st.floats(8, 200),
    output_tokens=st.floats(1, 100),
    result_tokens=st.floats(8, 200),
    retokenised_share=st.sampled_from([0.0, 0.3, 1.0]),
    condense_every=st.sampled_from([0, 2, 5]),
    summary_tokens=st.integers(1, 80),
    subagents=st.sampled_from([0.0, 1.5]),
    subagent_calls=st.floats(1, 5),
    agents=st.sampled_from([None, 1, 3]),
    server_s=st.sampled_from([0.0, 0.5]),
    block_tokens=st.sampled_from([None, 2, 16, 300]),
    vocabulary=st.sampled_from([16, 32_000]),
    seed=st.integers(0, 2**32 - 1),
)


@settings(max_examples=60, deadline=None)
@given(MADE)
def test_the_summary_made_from_lengths_alone_is_what_the_ids_hold(made: SynthSettings) -> None:
    assert summarise_plan(make_plan(made)) == summarise(workload_of(made))


@settings(max_examples=100, deadline=None)
@given(MADE)
def test_every_call_keeps_exactly_the_prefix_it_says(made: SynthSettings) -> None:
    before: dict[str | None, Call] = {}
    unit = made.block_tokens or 1
    for call in calls_of(made):
        assert len(call.ids) == call.prompt_tokens // unit
        previous = before.get(call.task)
        if previous is None:
            assert (call.call, call.keep, call.gap_s) == (0, 0, None)
        else:
            history = previous.ids if previous.output_ids is None else np.append(previous.ids, previous.output_ids)
            length = min(len(history), len(call.ids))
            differs = np.flatnonzero(history[:length] != call.ids[:length])
            assert call.keep == (differs[0] if len(differs) else length)
            assert call.call == previous.call + 1
        before[call.task] = call


@settings(max_examples=40, deadline=None)
@given(MADE)
def test_calls_come_in_the_order_of_their_arrival_and_after_their_own_response(made: SynthSettings) -> None:
    answered: dict[str | None, float] = {}
    latest = 0.0
    for call in calls_of(made):
        assert call.arrival_s is not None and call.service_s is not None
        assert call.arrival_s >= latest
        latest = call.arrival_s
        if call.task in answered:
            assert call.gap_s is not None
            # every recorded time is rounded to a millisecond
            assert call.arrival_s == pytest.approx(answered[call.task] + call.gap_s, abs=0.002)
        answered[call.task] = call.arrival_s + call.service_s


@settings(max_examples=40, deadline=None)
@given(MADE.filter(lambda made: made.tasks > 1))
def test_no_two_tasks_share_more_than_their_system_prompt(made: SynthSettings) -> None:
    first = [call.ids for call in calls_of(made) if call.call == 0]
    for one, other in itertools.combinations(first, 2):
        length = min(len(one), len(other))
        differs = np.flatnonzero(one[:length] != other[:length])
        shared = differs[0] if len(differs) else length
        # the task's number follows; written with 12 different tokens it takes two, of which the first may agree
        assert shared <= made.system_tokens // (made.block_tokens or 1) + 1


def test_the_same_seed_gives_the_same_calls_and_another_one_does_not() -> None:
    made = SynthSettings(tasks=4, calls_per_task=5)

    def shown(wanted: SynthSettings) -> list[tuple[object, ...]]:
        return [(call.task, call.arrival_s, call.gap_s, call.ids.tobytes()) for call in calls_of(wanted)]

    assert shown(made) == shown(made)
    assert shown(made) != shown(replace(made, seed=1))


@pytest.mark.parametrize("seed", range(5))
def test_a_mean_prompt_that_was_asked_for_holds_exactly(seed: int) -> None:
    made = SynthSettings(tasks=10, calls_per_task=30, mean_prompt_tokens=25_000, condense_every=12, seed=seed)
    assert int(make_plan(made).prompt_tokens.sum()) == 25_000 * 300


def test_means_of_calls_outputs_and_first_messages_hold_exactly() -> None:
    plan = make_plan(SynthSettings(tasks=7, calls_per_task=9, output_tokens=321, task_tokens=777, system_tokens=100))
    assert len(plan.shape) == 63
    assert int(plan.output_tokens.sum()) == 63 * 321
    assert int(plan.first_tokens.sum()) == 7 * 877


def test_a_mean_prompt_below_what_the_other_lengths_give_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        make_plan(SynthSettings(mean_prompt_tokens=5_000, system_tokens=6_000))
    assert refused.value.where == "--mean-prompt-tokens"
    assert "without any tool result, not 5,000" in refused.value.what


def test_condensing_keeps_the_first_prompt_and_a_summary() -> None:
    made = SynthSettings(tasks=1, calls_per_task=10, condense_every=4, summary_tokens=50, retokenised_share=0)
    calls = calls_of(made)
    for call in calls:
        if call.call in (4, 8):
            assert call.prompt_tokens == calls[0].prompt_tokens + 50
            assert call.keep == calls[0].prompt_tokens
            assert (call.ids[: call.keep] == calls[0].ids).all()


def test_a_parent_waits_for_all_its_subagents() -> None:
    made = SynthSettings(tasks=3, calls_per_task=6, subagents=2, subagent_calls=3, seed=3)
    plan = make_plan(made)
    calls = calls_of(made)
    ends = {}
    for call in calls:
        assert call.arrival_s is not None and call.service_s is not None
        ends[call.task] = call.arrival_s + call.service_s
    arrival = {(call.task, call.call): call.arrival_s for call in calls}
    launched = {call.task for call in calls if "/" in str(call.task)}
    assert len(launched) == len(plan.shape.counts) - 3 > 0
    for parent_call, child in zip(plan.parent_call[3:].tolist(), sorted(launched), strict=True):
        parent = f"task-{plan.shape.task[parent_call]}"
        resumed = arrival[parent, int(plan.shape.index[parent_call]) + 1]
        assert resumed is not None and resumed >= ends[child] - 0.002


def test_no_more_tasks_than_slots_are_in_progress() -> None:
    calls = calls_of(SynthSettings(tasks=9, calls_per_task=4, agents=2))
    moments = []
    for _, group in itertools.groupby(
        sorted(calls, key=lambda call: (str(call.task), call.call)), lambda call: call.task
    ):
        own = list(group)
        moments += [(own[0].arrival_s, 1), (own[-1].arrival_s + own[-1].service_s - 0.002, -1)]
    active = list(itertools.accumulate(step for _, step in sorted(moments)))
    assert max(active) == 2


def test_calls_that_need_the_server_alone_queue_for_it() -> None:
    # 5 tasks start together, each call holds the server for 10 s: the fifth waits 40 s, then holds it 10 s itself
    calls = calls_of(
        SynthSettings(tasks=5, calls_per_task=1, server_s=10, output_tokens=1, system_tokens=0, task_tokens=8)
    )
    waited = [call.service_s for call in calls]
    assert waited == pytest.approx([10, 20, 30, 40, 50], abs=0.1)


def test_tasks_arrive_at_the_rate_that_was_asked_for() -> None:
    calls = calls_of(SynthSettings(tasks=2_000, calls_per_task=1, arrival_rate_per_s=4, block_tokens=64))
    # 2,000 tasks at 4 per second: 500 s, with a standard deviation of sqrt(2000)/4 = 11 s
    assert calls[-1].arrival_s == pytest.approx(500, abs=45)


def test_a_trace_without_service_times_does_not_invent_them() -> None:
    assert all(
        call.service_s is None for call in calls_of(SynthSettings(tasks=2, calls_per_task=2, service_times=False))
    )


def test_token_ids_stay_in_the_vocabulary() -> None:
    calls = calls_of(SynthSettings(tasks=3, calls_per_task=3, vocabulary=64))
    assert all(ids.min() > 0 and ids.max() < 64 for call in calls for ids in (call.ids, call.output_ids))


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"tasks": 0}, "--tasks"),
        ({"calls_per_task": 0.5}, "--calls-per-task"),
        ({"calls_per_task": float("nan")}, "--calls-per-task"),
        ({"output_tokens": 0}, "--output-tokens"),
        ({"result_tokens": 7}, "--result-tokens"),
        ({"retokenised_share": 1.5}, "--retokenised-share"),
        ({"condense_every": 1}, "--condense-every"),
        ({"gap_s": float("inf")}, "--gap-s"),
        ({"arrival_rate_per_s": 0.0}, "--arrival-rate"),
        ({"agents": 2, "arrival_rate_per_s": 1.0}, "--agents and --arrival-rate"),
        ({"block_tokens": 1}, "--block-tokens"),
        ({"vocabulary": 15}, "--vocabulary"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_settings_that_mean_nothing_name_their_option(wrong: dict[str, float], option: str) -> None:
    with pytest.raises(UsageError) as refused:
        SynthSettings(**wrong)  # type: ignore[arg-type]
    assert refused.value.where == option
    assert refused.value.hint


def test_an_unknown_profile_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        profile_named("swebench")
    assert "swebench-openhands, demo, chat, delegating, stress" in str(refused.value)
    assert "did you mean 'swebench-openhands'?" in str(refused.value)


def test_changing_lengths_drops_the_published_statistics_and_says_so() -> None:
    made, notices = customised(SWEBENCH, output_tokens=500)
    assert made.published is None
    assert made.mean_prompt_tokens == SWEBENCH.mean_prompt_tokens
    assert [notice.code for notice in notices] == ["not-the-published-workload"]
    assert "--output-tokens" in notices[0].text


def test_changing_the_load_keeps_the_published_statistics() -> None:
    made, notices = customised(SWEBENCH, agents=8, seed=5, block_tokens=16, gap_s=1.0)
    assert made.published == SWEBENCH.published
    assert not notices


def test_arrivals_replace_slots_and_results_replace_the_mean_prompt() -> None:
    made, _ = customised(SWEBENCH, arrival_rate_per_s=0.1, result_tokens=300)
    assert (made.agents, made.mean_prompt_tokens, made.result_tokens) == (None, None, 300)
