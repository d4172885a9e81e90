"""``eactl size`` as a function: the recommendation, its checks against the host, and what it tells LMCache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eactl.errors import TraceError, UsageError
from eactl.model.workload import Workload
from eactl.sizing import SizeSettings, TokenWeight, size_trace
from eactl.sizing.advice import Available, round_up_bytes
from eactl.sizing.grid import default_capacities, two_digits_bytes
from eactl.trace.call import Call
from eactl.trace.workload import load_workload
from eactl.units import GIB, MIB

PLENTY = Available(1 << 50, "the test host")
# 4 MiB per token: a chunk of 256 tokens is 1 GiB, so that chunks can be read as GiB
SETTINGS = SizeSettings(TokenWeight(4 * MIB, tp=8, tier_ranks=8, model="toy"))


def turns(agents: int, rounds: int, chunks: int, *, unit: int = 256, grow: int = 0) -> Workload:
    """``agents`` tasks take turns; each resends ``chunks`` chunks of its own and appends ``grow`` more per round."""
    calls = []
    for turn in range(rounds):
        for agent in range(agents):
            ids = np.arange(chunks + turn * grow) + 10_000 * agent
            calls.append(Call(f"agent {agent}", len(ids) * unit + 1, ids, unit, output_tokens=7))
    return load_workload(calls)


def test_a_cyclic_pool_needs_all_contexts_and_nothing_less_pays() -> None:
    # 5 agents of 4 chunks each: 20 GiB hold everything; at 15 GiB and below LRU restores nothing at all
    result = size_trace(turns(5, 6, 4), replace(SETTINGS, capacities_bytes=(15 * GIB, 20 * GIB)), PLENTY)
    none, below, enough = result.orders[0].curve
    assert (none.restored_tokens, below.restored_tokens) == (0, 0)
    # 5 later rounds x 5 agents x 4 chunks x 256 tokens
    assert enough.restored_tokens == 5 * 5 * 4 * 256
    assert result.recommendation.host_bytes_rank == 20 * GIB
    assert result.recommendation.host_bytes_total == 160 * GIB
    assert result.orders[0].knee_bytes_rank == 20 * GIB


def test_the_best_possible_policy_shows_what_admission_could_win() -> None:
    # at 15 GiB Belady keeps 15 of the 20 chunks through every round, LRU none: admission is the lever
    result = size_trace(turns(5, 6, 4), SETTINGS, Available(int(8 * 15 * GIB / 0.9) + MIB, "a small host"))
    advice = result.recommendation
    assert advice.fits is False
    assert advice.affordable is not None
    assert advice.affordable.coverage_tokens == 0
    assert advice.affordable.best_coverage_tokens == 5 * 15 * 256
    assert advice.affordable.least_computed_tokens == 30 * (4 * 256 + 1) - 5 * 15 * 256
    assert advice.lever == "admission"
    assert advice.next_step.endswith("--tp 8 --host-gib 15")


def test_the_recommendation_reaches_the_target_and_is_the_smallest_that_does() -> None:
    work = turns(6, 8, 3, grow=2)
    for target in (0.5, 0.8, 0.95, 1.0):
        result = size_trace(work, replace(SETTINGS, target=target), PLENTY)
        advice, order = result.recommendation, result.orders[0]
        assert advice.point.restored_tokens >= target * order.best_restored_tokens
        smaller = advice.host_bytes_rank - GIB
        less = size_trace(work, replace(SETTINGS, capacities_bytes=(smaller,)), PLENTY).orders[0].curve[-1]
        assert less.restored_tokens < target * order.best_restored_tokens


def test_without_reuse_no_tier_is_recommended() -> None:
    calls = [Call(str(task), 1024, np.arange(4) + 100 * task, 256) for task in range(9)]
    advice = size_trace(load_workload(calls), SETTINGS, PLENTY).recommendation
    assert (advice.host_bytes_rank, advice.lever) == (0, "none")
    assert "would restore nothing" in advice.reason


def test_what_the_gpu_cache_holds_is_not_the_tiers_to_restore() -> None:
    # 2 agents of 4 chunks: 2,048 tokens and two outputs fit in a GPU cache of 4,096 tokens, so nothing is left
    result = size_trace(turns(2, 5, 4), replace(SETTINGS, gpu_kv_tokens=4096), PLENTY)
    assert result.orders[0].best_restored_tokens == 0
    assert result.orders[0].curve[0].computed_tokens == 2 * (4 * 256 + 1) + 4 * 2  # first prompts, then a token each
    assert result.pool.gamma_g is not None
    assert result.pool.gamma_g < 1


def test_agents_bring_the_closed_loop_and_its_worst_case_beside_the_recorded_order() -> None:
    result = size_trace(turns(6, 4, 4), replace(SETTINGS, agents=2), PLENTY)
    assert [order.name for order in result.orders] == ["closed-loop", "round-robin", "recorded"]
    # two slots of 4 chunks need 8 GiB, though the recorded order interleaves six agents (24 GiB)
    assert result.recommendation.host_bytes_rank == 8 * GIB
    assert {warning["code"] for warning in result.warnings} == {"service-assumed", "gap-assumed"}


def test_the_servers_pool_is_larger_than_the_tier_it_keeps() -> None:
    # LMCache's server keeps 0.8 * (1 - 0.2) = 64 % of what it is given, at worst, for all 8 ranks together
    lmcache = size_trace(turns(5, 6, 4), SETTINGS, PLENTY).recommendation.lmcache
    assert lmcache.max_local_cpu_size_gib == 20
    assert lmcache.l1_size_gib == 250  # 8 * 20 / 0.64


def test_the_next_command_gives_the_server_enough_to_keep_the_recommended_size() -> None:
    advice = size_trace(turns(5, 6, 4), SETTINGS, PLENTY).recommendation
    assert advice.next_step == "eactl serve --model toy --tp 8 --host-gib 31.5"  # 20 / 0.64 = 31.25


def test_engines_side_by_side_each_need_their_own_tier() -> None:
    advice = size_trace(turns(5, 6, 4), replace(SETTINGS, replicas=4), PLENTY).recommendation
    assert advice.host_bytes_total == 4 * 8 * 20 * GIB


def test_isolation_costs_one_copy_of_the_shared_prefix_per_salt() -> None:
    # 4 tenants share 3 chunks and have 1 of their own: 16 chunks apart, 7 together, so 9 GiB of copies;
    # together 3 tenants would have found the 3 shared chunks at their first call
    calls = [
        Call(f"t{tenant}", 4 * 256 + 1, np.array([0, 1, 2, 100 + tenant]), 256, salt=f"t{tenant}")
        for _ in range(9)
        for tenant in range(4)
    ]
    result = size_trace(load_workload(calls), SETTINGS, PLENTY, merged=load_workload(calls, merge_salts=True))
    assert result.isolation is not None
    assert (result.isolation.salts, result.isolation.copies_bytes_rank) == (4, 9 * GIB)
    assert result.isolation.lost_tokens == 3 * 3 * 256


def test_a_chunk_larger_than_every_prompt_says_so_by_recommending_nothing() -> None:
    result = size_trace(turns(5, 6, 4), replace(SETTINGS, chunk_tokens=4096), PLENTY)
    assert result.recommendation.host_bytes_rank == 0


def test_the_document_has_the_contracts_fields() -> None:
    document = size_trace(turns(5, 6, 4), SETTINGS, PLENTY).as_dict()
    assert set(document["workload"]) >= {
        "tasks", "calls", "prompt_tokens", "output_tokens", "mean_prompt_tokens", "max_prompt_tokens",
        "stable_tokens", "stable_share", "previous_prompt_shared_tokens",
    }  # fmt: skip
    assert set(document["footprint"]) == {
        "bytes_per_token_rank",
        "chunk_tokens",
        "chunk_bytes_rank",
        "tp",
        "model",
        "notes",
    }
    assert set(document["pool"]) >= {"agents", "working_set_bytes_rank", "gamma_g"}
    [order] = document["orders"]
    assert set(order) >= {"name", "curve", "knee_gib"}
    assert order["curve"][0]["host_gib"] == 0
    assert set(order["curve"][0]) >= {
        "host_gib", "chunks", "gamma_h", "coverage_tokens", "restored_tokens", "computed_tokens",
    }  # fmt: skip
    assert set(document["recommendation"]) >= {
        "host_gib_rank", "host_gib_total", "computed_tokens", "ranks", "reason",
    }  # fmt: skip


def test_an_empty_workload_is_an_error() -> None:
    with pytest.raises(TraceError, match="holds no calls"):
        size_trace(load_workload([]), SETTINGS, PLENTY)


@pytest.mark.parametrize("target", [0, -0.1, 1.01, float("nan")])
def test_a_target_is_a_share(target: float) -> None:
    with pytest.raises(UsageError, match="--target"):
        replace(SETTINGS, target=target)


def test_an_unknown_order_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="recorded, closed-loop, round-robin"):
        replace(SETTINGS, orders=("random",))


@pytest.mark.parametrize(
    ("gib", "rounded"), [(0.0031, 0.01), (0.333, 0.34), (5.01, 5.1), (5.1, 5.1), (11.4, 11.5), (60.2, 61), (0, 0)]
)
def test_recommended_sizes_are_sizes_somebody_would_configure(gib: float, rounded: float) -> None:
    assert round_up_bytes(gib * GIB) == pytest.approx(rounded * GIB, abs=1)


def test_the_default_grid_surrounds_the_working_set_and_ends_where_nothing_is_left_to_cover() -> None:
    grid = [round(size / GIB, 3) for size in default_capacities(10 * GIB, 25 * GIB, [3 * GIB], 21 * GIB)]
    # 2.5 to 20 around the working set; 20 gives way to the recommended 21; 3 is told by the curve; 12.5 is 13
    assert grid == [2.5, 3, 5, 7.5, 10, 13, 15, 21, 25]
    assert default_capacities(0, 0, [], 0) == ()
    assert two_digits_bytes(11.41 * GIB) == 12 * GIB


def test_a_curve_that_goes_on_far_above_the_working_set_has_no_hole_in_its_grid() -> None:
    grid = [round(size / GIB, 3) for size in default_capacities(5 * GIB, 440 * GIB, [48 * GIB, 160 * GIB], 288 * GIB)]
    assert grid == [1.3, 2.5, 3.8, 5, 6.3, 7.5, 10, 48, 160, 288, 440]


def test_a_hybrid_models_chunks_carry_its_state() -> None:
    # 256 tokens of 4 MiB and a state of 1 GiB: 2 GiB per chunk, so 20 chunks are 40 GiB
    weight = TokenWeight(4 * MIB, state_bytes_rank=GIB)
    advice = size_trace(turns(5, 6, 4), SizeSettings(weight), PLENTY).recommendation
    assert advice.host_bytes_rank == 40 * GIB
