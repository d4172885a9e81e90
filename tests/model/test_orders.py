"""Orders of calls: recorded, round-robin, closed loop."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eactl.model.orders import ServiceRates, closed_loop, recorded, round_robin, timing
from eactl.model.workload import Workload
from eactl.trace.call import Call
from eactl.trace.workload import load_workload


def workload_of(*calls: tuple[str, dict[str, float]]) -> Workload:
    """Calls of one token each, given as (task, times)."""
    return load_workload(
        Call(task, 10, np.arange(10), 1, output_tokens=5, output_ids=np.arange(5), **times) for task, times in calls
    )


def tasks_in(workload: Workload, order: list[int]) -> str:
    return "".join(workload.task_names[workload.task[call]] for call in order)


def test_recorded_is_the_order_of_the_trace() -> None:
    work = workload_of(("b", {}), ("a", {}), ("b", {}))
    assert tasks_in(work, recorded(work)) == "bab"


def test_round_robin_gives_every_slot_one_call_per_round_and_refills_it_with_the_next_task() -> None:
    # a has 3 calls, b 1, c 2; two slots: rounds are ab, ac, ac
    work = workload_of(*[(task, {}) for task in "aaabcc"])
    assert tasks_in(work, round_robin(work, 2)) == "abacac"


def test_with_one_slot_every_order_is_one_task_after_the_other() -> None:
    work = workload_of(*[(task, {}) for task in "abab"])
    times = timing(work, ServiceRates())
    assert tasks_in(work, round_robin(work, 1)) == tasks_in(work, closed_loop(work, 1, times)) == "aabb"


def test_a_closed_loop_follows_responses_and_gaps_not_recorded_arrivals() -> None:
    # a: calls take 1 s with gaps of 10 s, so at 0 and 11; b: 1 s with gaps of 2 s, so at 0, 3 and 6
    slow = {"service_s": 1.0, "gap_s": 10.0}
    quick = {"service_s": 1.0, "gap_s": 2.0}
    work = workload_of(("a", slow), ("a", slow), ("b", quick), ("b", quick), ("b", quick))
    assert tasks_in(work, closed_loop(work, 2, timing(work, ServiceRates()))) == "abbba"


def test_a_finished_task_hands_its_slot_to_the_next_one_at_its_last_response() -> None:
    # slot 1: a until 5 s, then c at 5 s; slot 2: b at 0 s and again at 1 + 3 = 4 s
    work = workload_of(
        ("a", {"service_s": 5.0}), ("b", {"service_s": 1.0}), ("b", {"service_s": 1.0, "gap_s": 3.0}),
        ("c", {"service_s": 1.0}),
    )  # fmt: skip
    assert tasks_in(work, closed_loop(work, 2, timing(work, ServiceRates()))) == "abbc"


def test_a_gap_comes_from_arrivals_less_the_recorded_service() -> None:
    # second arrival at 30 s, first call took 12 s: the gap is 18 s
    work = workload_of(("a", {"arrival_s": 0.0, "service_s": 12.0}), ("a", {"arrival_s": 30.0, "service_s": 1.0}))
    assert timing(work, ServiceRates()).gap_s.tolist() == [0.0, 18.0]


def test_arrivals_alone_make_the_whole_turn_the_gap() -> None:
    # without service times a turn of 30 s is kept as 0 s of service and 30 s of gap; only the last call, whose
    # response nobody waits for, gets assumed rates
    work = workload_of(("a", {"arrival_s": 0.0}), ("a", {"arrival_s": 30.0}))
    times = timing(work, ServiceRates())
    assert times.gap_s.tolist() == [0.0, 30.0]
    assert times.service_s[0] == 0.0
    assert times.assumed_service_calls == 1


def test_assumed_service_charges_fresh_prompt_tokens_and_output_tokens() -> None:
    # first call: 10 fresh tokens at 1 s each and 5 output tokens at 2 s each = 20 s
    work = workload_of(("a", {}))
    times = timing(work, ServiceRates(prefill_us_per_token=1e6, decode_ms_per_token=2e3))
    assert times.service_s.tolist() == [20.0]
    assert times.assumed_service_calls == 1


@given(st.lists(st.sampled_from("abcde"), min_size=1, max_size=30), st.integers(1, 6))
def test_every_order_serves_every_call_once_and_keeps_each_tasks_calls_in_turn(tasks: list[str], agents: int) -> None:
    work = workload_of(*[(task, {"gap_s": float(ord(task) % 3), "service_s": 0.5}) for task in tasks])
    for order in (recorded(work), round_robin(work, agents), closed_loop(work, agents, timing(work, ServiceRates()))):
        assert sorted(order) == list(range(len(tasks)))
        for task in set(work.task.tolist()):
            turns = [call for call in order if work.task[call] == task]
            assert turns == sorted(turns)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40), st.integers(1, 4))
def test_no_order_has_more_tasks_in_progress_than_slots(tasks: list[str], agents: int) -> None:
    work = workload_of(*[(task, {"gap_s": 1.0, "service_s": 0.5}) for task in tasks])
    for order in (round_robin(work, agents), closed_loop(work, agents, timing(work, ServiceRates()))):
        left = {task: tasks.count(task) for task in set(tasks)}
        started: set[str] = set()
        for task in tasks_in(work, order):
            started.add(task)
            assert len(started) <= agents
            left[task] -= 1
            if not left[task]:
                started.discard(task)
