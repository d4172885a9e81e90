"""What admission does to a closed loop of eight agents, at a tier below and one above their working set.

Every run counts once, nothing is measured again. The workload was chosen because the published signs can be seen on
it; docs/admission.md says how often they were, and has the whole table, made by tests/engine/agents.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.agents import HIDDEN, Bench, Outcome, Workload, bench_stack, switch
from tests.engine.stack import wait_for
from tests.engine.tiny_model import make

WORKLOAD = Workload()


def outcomes(model: Path, folder: Path, ratio: float) -> Iterator[tuple[Bench, dict[str, Outcome]]]:
    host_mib = round(ratio * WORKLOAD.working_set_bytes / 2**20)
    with bench_stack(model, folder, host_mib) as stack:
        bench = Bench(stack, folder / "control.json")
        yield bench, {policy: bench.run(WORKLOAD, policy) for policy in ("none", "fixed", "conditioned")}


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a dearer prefill and the same KV."""
    return make(tmp_path_factory.mktemp("slow") / "slow-qwen3", hidden=HIDDEN)


@pytest.fixture(scope="module")
def small(slow_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, dict[str, Outcome]]]:
    # By its configured size it would just fit; it keeps 0.64 to 0.8 of that, and the rest takes up bursts.
    yield from outcomes(slow_model, tmp_path_factory.mktemp("small"), 1.0)


def test_below_the_working_set_filtering_restores_more_and_conditioned_writes_far_less(
    small: tuple[Bench, dict[str, Outcome]],
) -> None:
    _, runs = small
    assert {run.failed for run in runs.values()} == {0}
    assert runs["fixed"].restored > 1.05 * runs["none"].restored
    assert runs["conditioned"].written < 0.6 * runs["none"].written
    assert runs["conditioned"].record.skipped_requests > 0


@pytest.mark.xfail(strict=False, reason="not reached: true in two of four runs on a quiet machine (docs/admission.md)")
def test_below_the_working_set_conditioned_restores_more_than_none_and_about_as_much_as_fixed(
    small: tuple[Bench, dict[str, Outcome]],
) -> None:
    _, runs = small
    assert runs["conditioned"].restored > 1.05 * runs["none"].restored
    assert runs["conditioned"].restored > 0.85 * runs["fixed"].restored
    assert runs["conditioned"].computed < runs["none"].computed


def test_the_agents_are_counted_without_any_help_of_theirs(small: tuple[Bench, dict[str, Outcome]]) -> None:
    _, runs = small
    assert {run.peak_agents for run in runs.values()} == {8}


def test_a_fault_of_ours_is_counted_and_everything_is_served_and_stored(
    small: tuple[Bench, dict[str, Outcome]],
) -> None:
    bench, _ = small
    stack = bench.stack
    switch(bench.control, {"run": "fault", "policy": "fixed", "kappa_chunks": 0, "window_s": 2.0, "fault": True})
    wait_for(lambda: stack.record().engine == "fault", 20, "the faulty policy")
    before = stack.objects()
    assert len(stack.output(list(range(100, 300)), 8)) == 8
    wait_for(lambda: stack.objects() == before + 6, 10, "six chunks, which policy fixed would have declined")
    assert (stack.record().faults or 0) >= 1


def test_above_the_working_set_conditioned_restores_what_none_does_and_far_more_than_fixed(
    slow_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for _, runs in outcomes(slow_model, tmp_path_factory.mktemp("large"), 3.0):
        assert runs["conditioned"].restored > 0.95 * runs["none"].restored
        assert runs["conditioned"].computed < 1.15 * runs["none"].computed
        assert runs["fixed"].computed > 1.4 * runs["conditioned"].computed
        assert runs["conditioned"].restored > 1.05 * runs["fixed"].restored
