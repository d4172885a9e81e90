"""Sequences that share what they grew from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.trace.growing import Grown, first_difference, first_unequal

STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.lists(st.integers(0, 3), max_size=4)), max_size=12)


@given(STEPS)
def test_it_is_the_list_that_copying_would_give_whatever_grows_from_whatever(
    steps: list[tuple[int, int, list[int]]],
) -> None:
    grown, plain = [Grown[int]()], [list[int]()]
    for source, length, added in steps:
        source %= len(grown)
        grown.append(grown[source].upto(length).grown(added))
        plain.append([*plain[source][:length], *added])
    for seen, copied in zip(grown, plain, strict=True):
        assert seen == copied
        assert list(seen) == copied
        assert len(seen) == len(copied)
        assert seen[1:3] == copied[1:3]
        assert seen[-2:] == copied[-2:]
        assert seen[::-1] == copied[::-1]
        assert [seen[-1]] == copied[-1:] if copied else not seen
    for seen, copied in zip(grown, plain, strict=True):
        for other, others in zip(grown, plain, strict=True):
            expected = next((i for i, (a, b) in enumerate(zip(copied, others, strict=False)) if a != b),
                            min(len(copied), len(others)))  # fmt: skip
            assert first_unequal(seen, other) == first_unequal(copied, others) == expected
            assert first_difference(seen, other) == expected  # small integers are one object


def test_growing_at_the_end_shares_and_growing_from_the_middle_does_not() -> None:
    first = Grown([1, 2])
    second = first.grown([3])
    beside = first.grown([4])
    assert second.shares_with(first)
    assert not beside.shares_with(first)
    assert (list(first), list(second), list(beside)) == ([1, 2], [1, 2, 3], [1, 2, 4])


def test_the_same_object_differs_from_an_equal_one() -> None:
    one, other = {"a": 1}, {"a": 1}
    assert first_difference([one, one], [one, other]) == 1
    assert first_unequal([one, one], [one, other]) == 2


def test_nothing_lies_beyond_its_end_though_the_list_behind_it_goes_on() -> None:
    first = Grown([1])
    first.grown([2])
    for beyond in (1, -2):
        with pytest.raises(IndexError):
            first[beyond]
