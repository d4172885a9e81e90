"""Calls recorded twice are reported, and only those."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eactl.trace import Call
from eactl.trace.repeats import repeated_calls, repeats_notices
from eactl.trace.workload import load_workload


def call(*ids: int, task: str = "a", at_s: float | None = 1.0, output: int | None = 7, service: float = 2.0) -> Call:
    return Call(task, 16 * len(ids) + 3, np.array(ids), 16, output_tokens=output, arrival_s=at_s, service_s=service)


def test_a_copy_is_counted_whatever_stands_between_and_whatever_its_task_is_called() -> None:
    workload = load_workload([call(1, 2), call(1, 3), call(1, 2, task="b"), call(1, 2, 4, at_s=9.0), call(1, 2)])
    assert repeated_calls(workload) == 2  # the third and the fifth repeat the first


@pytest.mark.parametrize(
    "other",
    [call(1, 3), call(1, 2, 3), call(1, 2, at_s=1.5), call(1, 2, output=8), call(1, 2, service=2.5)],
    ids=["another prompt", "a longer prompt", "another time", "another output", "another service time"],
)
def test_a_call_that_differs_in_one_thing_is_no_copy(other: Call) -> None:
    assert repeated_calls(load_workload([call(1, 2), other])) == 0


@pytest.mark.parametrize("unknown", [{"at_s": None}, {"output": None}])
def test_without_a_time_or_an_output_length_equal_prompts_are_nothing_special(unknown: dict[str, None]) -> None:
    assert repeated_calls(load_workload([call(1, 2, **unknown), call(1, 2, **unknown)])) == 0


def test_two_sessions_with_ids_of_their_own_share_no_call() -> None:
    one, other = call(1, 2), call(1, 2)
    other.scope = "file 2"
    assert repeats_notices(load_workload([one, other])) == []


def test_an_empty_workload_repeats_nothing() -> None:
    workload = load_workload([call(1)])
    assert repeated_calls(replace(workload, arrival_s=workload.arrival_s + np.nan)) == 0
    assert repeated_calls(load_workload([])) == 0
