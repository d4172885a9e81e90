"""Telling tasks apart by prefix extension."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eactl.trace.call import Call
from eactl.trace.tasks import infer_tasks
from eactl.trace.workload import load_workload


def calls_of(*prompts: list[int], unit: int = 1) -> list[Call]:
    return [Call(None, len(prompt) * unit, np.array(prompt, dtype=np.int64), unit) for prompt in prompts]


def tasks_of(*prompts: list[int]) -> list[str | None]:
    return [call.task for call in infer_tasks(calls_of(*prompts))]


def test_a_prompt_that_extends_an_earlier_one_continues_its_task() -> None:
    assert tasks_of([1, 2], [7, 8], [1, 2, 3], [7, 8, 9], [1, 2, 3, 4]) == [
        "task-0", "task-1", "task-0", "task-1", "task-0",
    ]  # fmt: skip


def test_sharing_only_a_system_prompt_is_not_continuing() -> None:
    # both start with 5, 6 and differ after it
    assert tasks_of([5, 6, 1], [5, 6, 2], [5, 6, 2, 3]) == ["task-0", "task-1", "task-1"]


def test_a_second_continuation_of_the_same_prompt_is_a_task_of_its_own() -> None:
    # two branches from 1, 2: the first keeps the task, the second is a parallel agent
    assert tasks_of([1, 2], [1, 2, 3], [1, 2, 4]) == ["task-0", "task-0", "task-1"]


def test_repeated_samples_of_one_prompt_are_tasks_that_continue_apart() -> None:
    assert tasks_of([1, 2], [1, 2], [1, 2, 3], [1, 2, 4]) == ["task-0", "task-1", "task-0", "task-1"]


def test_a_prompt_that_ends_inside_a_prefix_of_others_is_nobodys_history() -> None:
    # 5 alone is the shared first block; 5, 9 does not continue the task of the short prompt
    assert tasks_of([5, 1, 2], [5], [5, 9]) == ["task-0", "task-1", "task-2"]


def test_growth_within_one_block_continues_the_task() -> None:
    # the same single full block of 512 tokens, but the prompt grew from 600 to 900 tokens
    block = np.array([3], dtype=np.int64)
    calls = list(infer_tasks([Call(None, 600, block, 512), Call(None, 900, block, 512)]))
    assert [(call.task, call.call) for call in calls] == [("task-0", 0), ("task-0", 1)]


def test_other_salts_and_models_are_other_tasks() -> None:
    ids = np.array([1, 2, 3], dtype=np.int64)
    calls = [Call(None, 2, ids[:2], 1, salt="a"), Call(None, 3, ids, 1, salt="b"), Call(None, 3, ids, 1, model="m")]
    assert [call.task for call in infer_tasks(calls)] == ["task-0", "task-1", "task-2"]


def test_named_tasks_stay_as_they_are() -> None:
    [call] = infer_tasks([Call("mine", 1, np.array([1]), 1, call=4)])
    assert (call.task, call.call) == ("mine", 4)


def test_loading_a_workload_infers_the_same_tasks() -> None:
    prompts = [[1, 2], [7], [1, 2, 3], [7, 8], [1, 2, 4]]
    work = load_workload(calls_of(*prompts))
    assert [work.task_names[task] for task in work.task] == tasks_of(*prompts)


def test_calls_that_name_their_task_do_not_confuse_those_that_do_not() -> None:
    named = Call("mine", 2, np.array([8, 9]), 1)
    first, second = calls_of([1, 2], [1, 2, 3])
    work = load_workload([named, first, replace(named, prompt_tokens=3, ids=np.array([8, 9, 7])), second])
    assert [work.task_names[task] for task in work.task] == ["mine", "task-0", "mine", "task-0"]
