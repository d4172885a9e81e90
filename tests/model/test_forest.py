"""The prefix forest finds what every prompt shares with all earlier ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
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


def test_the_callers_array_may_change_afterwards() -> None:
    builder = ForestBuilder()
    root = builder.root("", 1)
    ids = np.array([1, 2, 3])
    builder.insert(root, ids)
    ids[:] = 9
    assert builder.insert(root, np.array([1, 2, 3])).shared_units == 3
