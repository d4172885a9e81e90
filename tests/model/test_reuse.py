"""The curve from runs of the prefix forest is the curve of an explicit LRU, at every capacity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eactl.model.bound import BestPolicy
from eactl.model.curve import CapacityCurve, CurvePoint
from eactl.model.reuse import resident_tokens, stack_pieces
from eactl.model.workload import Workload
from eactl.trace.call import Call
from eactl.trace.workload import load_workload
from tests.model.oracle import Request, best_hits, run_lru
from tests.model.strategies import workloads

CAPACITIES = [0, 1, 2, 3, 5, 8, 13, 40, 1_000_000]


def as_workload(requests: Sequence[Request], *, unit_tokens: int = 1) -> Workload:
    """The same requests as calls: token ids, or chained block ids interned from the explicit prefixes."""
    interned: dict[object, int] = {}
    calls = []
    for request in requests:
        if unit_tokens == 1:
            ids, output = np.array(request.prompt), np.array(request.output, dtype=np.int64)
        else:
            keys = [
                tuple(request.prompt[: (index + 1) * unit_tokens])
                for index in range(len(request.prompt) // unit_tokens)
            ]
            ids = np.array([interned.setdefault(key, len(interned)) for key in keys], dtype=np.int64)
            output = None
        calls.append(
            Call(str(request.task), len(request.prompt), ids, unit_tokens, len(request.output), output,
                 salt=str(request.space))
        )  # fmt: skip
    return load_workload(calls)


def curve_of(workload: Workload, chunk_tokens: int, gpu_tokens: int | None) -> CapacityCurve:
    order = range(len(workload))
    resident = (
        np.zeros(len(workload), dtype=np.int64)
        if gpu_tokens is None
        else resident_tokens(workload, order, block_tokens=16, capacity_tokens=gpu_tokens)
    )
    pieces = stack_pieces(workload, order, chunk_tokens, with_output=False)
    return CapacityCurve(pieces, workload.prompt_tokens, resident, chunk_tokens)


@given(workloads(), st.sampled_from([1, 2, 3, 4, 7, 16]), st.sampled_from([None, 0, 16, 48, 96, 10_000]))
def test_every_capacity_equals_an_explicit_lru(requests: list[Request], chunk: int, gpu_tokens: int | None) -> None:
    curve = curve_of(as_workload(requests), chunk, gpu_tokens)
    for point in curve.points(CAPACITIES):
        slow = run_lru(requests, chunk_tokens=chunk, capacity=point.chunks, gpu_tokens=gpu_tokens)
        assert point == CurvePoint(
            point.chunks, slow.coverage_tokens, slow.restored_tokens, slow.computed_tokens, slow.restoring_calls
        )


@given(workloads(), st.sampled_from([1, 3, 4]), st.sampled_from([1, 2, 4]))
def test_a_block_trace_gives_the_curve_of_its_tokens_when_chunks_are_whole_blocks(
    requests: list[Request], unit: int, blocks_per_chunk: int
) -> None:
    chunk = unit * blocks_per_chunk
    from_blocks = curve_of(as_workload(requests, unit_tokens=unit), chunk, None)
    from_tokens = curve_of(as_workload(requests), chunk, None)
    assert from_blocks.points(CAPACITIES) == from_tokens.points(CAPACITIES)


@given(workloads(), st.sampled_from([1, 3, 16]))
def test_no_policy_beats_the_belady_bound_and_the_bound_is_belady(requests: list[Request], chunk: int) -> None:
    workload = as_workload(requests)
    pieces = stack_pieces(workload, range(len(workload)), chunk, with_output=False)
    curve = curve_of(workload, chunk, None)
    best = BestPolicy(pieces, chunk)
    for capacity in (0, 1, 2, 5, 9, 1000):
        bound = best.coverage_tokens(capacity)
        assert bound == best_hits(requests, chunk_tokens=chunk, capacity=capacity)
        assert bound >= curve.coverage_tokens([capacity])[0]


@given(workloads(), st.sampled_from([1, 4, 16]), st.sampled_from([None, 64]))
def test_more_capacity_never_covers_less(requests: list[Request], chunk: int, gpu_tokens: int | None) -> None:
    curve = curve_of(as_workload(requests), chunk, gpu_tokens)
    everything = range(curve.saturation_chunks + 2)
    assert (np.diff(curve.coverage_tokens(everything)) >= 0).all()
    assert (np.diff(curve.restored_tokens(everything)) >= 0).all()


@given(workloads(), st.sampled_from([1, 4]), st.floats(0.05, 1.0))
def test_the_smallest_sufficient_capacity_is_sufficient_and_smallest(
    requests: list[Request], chunk: int, share: float
) -> None:
    curve = curve_of(as_workload(requests), chunk, None)
    wanted = share * curve.best_restored_tokens
    size = curve.smallest_for_share(share)
    assert curve.restored_tokens([size])[0] >= wanted
    assert size == 0 or curve.restored_tokens([size - 1])[0] < wanted


@given(workloads())
def test_stable_tokens_are_the_common_prefix_with_the_previous_prompt_and_its_output(requests: list[Request]) -> None:
    workload = as_workload(requests)
    shared = workload.shared_with_previous(with_output=True)
    last: dict[int, Request] = {}
    for request, tokens in zip(requests, shared.tolist(), strict=True):
        before = last.get(request.task)
        processed = before.prompt + before.output if before else ()
        common = 0
        while common < min(len(processed), len(request.prompt)) and processed[common] == request.prompt[common]:
            common += 1
        assert tokens == common
        last[request.task] = request


def test_a_prompt_larger_than_the_tier_keeps_its_head() -> None:
    # 10 chunks of one token through a tier of 4: after the first request chunks 0-3 stay, so 4 of 10 are restored
    twice = [Request(0, tuple(range(10))), Request(0, tuple(range(10)))]
    assert curve_of(as_workload(twice), 1, None).points([4]) == [CurvePoint(4, 4, 4, 16, 1)]


def test_the_last_token_is_always_computed() -> None:
    # the second request finds all 10 tokens, but its last one is computed: 9 restored, 10 + 1 computed
    twice = [Request(0, tuple(range(10))), Request(0, tuple(range(10)))]
    assert curve_of(as_workload(twice), 1, None).points([100]) == [CurvePoint(100, 10, 9, 11, 1)]


def test_a_cyclic_scan_finds_nothing_below_the_working_set_and_all_of_it_above() -> None:
    # 5 tasks of 4 chunks in turn, twice: 16 other chunks come between two uses, so 19 chunks are too few, 20 enough
    scan = [Request(task, tuple(range(100 * task, 100 * task + 4))) for _ in range(2) for task in range(5)]
    curve = curve_of(as_workload(scan), 1, None)
    assert curve.coverage_tokens([16, 19, 20]).tolist() == [0, 15, 20]


@given(workloads(), st.sampled_from([1, 4, 16]), st.sampled_from([0, 32, 96]))
def test_beyond_the_gpu_no_tier_restores_more_than_its_bound(
    requests: list[Request], chunk: int, gpu_tokens: int
) -> None:
    workload = as_workload(requests)
    order = range(len(workload))
    resident = resident_tokens(workload, order, block_tokens=16, capacity_tokens=gpu_tokens)
    pieces = stack_pieces(workload, order, chunk, with_output=False)
    best = BestPolicy(pieces.beyond(resident, chunk), chunk)
    curve = CapacityCurve(pieces, workload.prompt_tokens, resident, chunk)
    for capacity in (0, 1, 2, 5, 9, 1000):
        assert curve.restored_tokens([capacity])[0] <= best.coverage_tokens(capacity)


def test_the_knee_is_the_top_of_the_cliff_not_the_bump_of_the_shared_prefix_before_it() -> None:
    # 10 tasks share 4 chunks and have 36 of their own each, in turn: 4 chunks pay at once, then nothing does
    # until all 4 + 360 fit
    scan = [
        Request(task, (*range(4), *range(1000 * (task + 1), 1000 * (task + 1) + 36)))
        for _ in range(3)
        for task in range(10)
    ]
    assert curve_of(as_workload(scan), 1, None).knee_chunks == 364


def test_a_curve_with_a_long_tail_has_its_knee_before_the_tail() -> None:
    # one task resends its 10 chunks 18 times; 20 others of 10 chunks pass by once, two of them twice:
    # a tier of 10 chunks restores 180, the next 200 chunks only 30 more
    busy = [Request(0, tuple(range(10)))] * 10
    rare = [Request(task, tuple(range(100 * task, 100 * task + 10))) for task in range(1, 21)]
    assert curve_of(as_workload([*busy, *rare, *rare[:2], *busy]), 1, None).knee_chunks == 10
