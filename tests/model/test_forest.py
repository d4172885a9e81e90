"""The prefix forest finds what every prompt shares with all earlier ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.model.forest import ForestBuilder

paths = st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=25)


def common(left: list[int], right: list[int]) -> int:
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


@given(paths)
def test_the_shared_prefix_is_the_longest_with_any_earlier_path(prompts: list[list[int]]) -> None:
    builder = ForestBuilder()
    root = builder.root("", 1)
    for number, prompt in enumerate(prompts):
        placement = builder.insert(root, np.array(prompt, dtype=np.int64))
        assert placement.shared_units == max((common(prompt, earlier) for earlier in prompts[:number]), default=0)


@given(paths)
def test_two_paths_meet_where_they_part(prompts: list[list[int]]) -> None:
    builder = ForestBuilder()
    root = builder.root("", 4)  # four tokens per id: depths count tokens
    nodes = [builder.insert(root, np.array(prompt, dtype=np.int64)).prompt_node for prompt in prompts]
    index = builder.freeze().paths()
    for left, left_prompt in zip(nodes, prompts, strict=True):
        assert index.end[left] == 4 * len(left_prompt)
        for right, right_prompt in zip(nodes, prompts, strict=True):
            assert index.end[index.meet(left, right)] == 4 * common(left_prompt, right_prompt)


@given(paths, st.data())
def test_a_step_towards_a_descendant_is_its_ancestor_just_below(prompts: list[list[int]], data: st.DataObject) -> None:
    builder = ForestBuilder()
    root = builder.root("", 1)
    nodes = [builder.insert(root, np.array(prompt, dtype=np.int64)).prompt_node for prompt in prompts]
    index = builder.freeze().paths()
    node = data.draw(st.sampled_from(nodes))
    chain = [node]
    while chain[-1] != root:
        chain.append(index.parent[chain[-1]])
    for below, above in pairwise(chain):
        assert index.towards(above, node) == below
    if node != root:
        assert index.first_below_root[node] == chain[-2]


def test_prompt_and_output_end_at_two_nodes_of_one_path() -> None:
    builder = ForestBuilder()
    root = builder.root("", 1)
    placement = builder.insert(root, np.array([1, 2, 3, 4]), prompt_units=3)
    index = builder.freeze().paths()
    assert (index.end[placement.prompt_node], index.end[placement.path_node]) == (3, 4)


def test_roots_share_nothing() -> None:
    builder = ForestBuilder()
    ids = np.array([1, 2, 3])
    left = builder.insert(builder.root("a", 1), ids)
    right = builder.insert(builder.root("b", 1), ids)
    index = builder.freeze().paths()
    assert right.shared_units == 0
    assert index.end[index.meet(left.prompt_node, right.prompt_node)] < 0


def test_memory_grows_with_distinct_blocks_not_with_resent_ones() -> None:
    # 300 turns that each resend all before: 45,150 ids go in; 300 are kept, with room for half as many more
    builder = ForestBuilder()
    root = builder.root("", 1)
    for turn in range(1, 301):
        builder.insert(root, np.arange(turn, dtype=np.int64))
    assert sum(len(run.ids) for run in builder._run_at.values()) <= 300 * 3 // 2
    assert len(builder) == 2 + 300


@given(paths, st.sampled_from([0, 64, 1 << 20]))
def test_the_forest_is_the_same_however_few_ids_stay_in_memory(prompts: list[list[int]], held_bytes: int) -> None:
    builders = [ForestBuilder(), ForestBuilder(held_bytes)]
    for prompt in prompts:
        ids = np.repeat(np.array(prompt, dtype=np.int64), 1_000)  # runs of some size, as only those are set aside
        placements = [builder.insert(builder.root("", 1), ids, len(ids) // 2) for builder in builders]
        assert placements[0] == placements[1]
    forests = [builder.freeze() for builder in builders]
    assert (forests[0].parent == forests[1].parent).all()
    assert (forests[0].end_tokens == forests[1].end_tokens).all()


@given(paths, st.data())
def test_what_is_known_to_be_equal_need_not_be_compared(prompts: list[list[int]], data: st.DataObject) -> None:
    plain, told = ForestBuilder(), ForestBuilder()
    for number, prompt in enumerate(prompts):
        like = data.draw(st.integers(0, number))
        known = 0 if like == number else data.draw(st.integers(0, common(prompt, prompts[like])))
        ids = np.array(prompt, dtype=np.int64)
        assert told.insert(told.root("", 1), ids, None, (like, known)) == plain.insert(plain.root("", 1), ids)


def test_memory_holds_a_fixed_amount_of_ids_and_the_file_each_id_about_once() -> None:
    # 20 agents take turns, 50 each, of 1,000 ids of 4 bytes: 4 MB of distinct ids in all
    builder = ForestBuilder(held_bytes=1 << 20)
    draw = np.random.default_rng(0)
    histories = [draw.integers(0, 1 << 31, 50_000, dtype=np.int32) for _ in range(20)]
    for turn in range(1, 51):
        for history in histories:
            builder.insert(builder.root("", 1), history[: turn * 1_000])
    held = sum(run.ids.nbytes for run in builder._run_at.values())
    assert held <= (1 << 20) + 1.5 * 200_000  # and the latest run, with room to grow
    assert 3_000_000 < builder._store._size_bytes < 6_000_000
    again = [builder.insert(builder.root("", 1), history).shared_units for history in histories]
    assert again == [50_000] * 20


def test_without_a_place_for_a_file_the_ids_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    builder = ForestBuilder(held_bytes=0)
    prompts = [np.arange(start, start + 5_000) for start in (0, 10_000, 20_000)]
    for _ in range(2):
        found = [builder.insert(builder.root("", 1), ids).shared_units for ids in prompts]
    assert found == [5_000] * 3


def test_the_callers_array_may_change_afterwards() -> None:
    builder = ForestBuilder()
    root = builder.root("", 1)
    ids = np.array([1, 2, 3])
    builder.insert(root, ids)
    ids[:] = 9
    assert builder.insert(root, np.array([1, 2, 3])).shared_units == 3
