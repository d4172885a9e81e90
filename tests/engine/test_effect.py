"""What admission does to the agents of a pool, at a tier well below and one above their working set.

Every run counts once. Turns, order and windows are counted, not timed, and the tier has headroom (half of L1), so that
no store is lost: the speed of the machine changes nothing. docs/admission.md has the table for more sizes, made by
tests/engine/agents.py, and what happens in a closed loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.agents import HEADROOM, Bench, Outcome, Workload, bench_stack

pytestmark = pytest.mark.timeout(900)  # three runs of 300 calls for each size

WORKLOAD = Workload()
Runs = dict[str, Outcome]


def outcomes(model: Path, folder: Path, ratio: float) -> Iterator[tuple[Bench, Runs]]:
    host_mib = round(ratio * WORKLOAD.working_set_bytes / 2**20)
    with bench_stack(model, folder, host_mib, **HEADROOM) as stack:
        bench = Bench(stack, folder / "control.json")
        yield bench, {policy: bench.run(WORKLOAD, policy) for policy in ("none", "fixed", "conditioned")}


@pytest.fixture(scope="module")
def small(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, Runs]]:
    # It keeps 1.2 · 0.5 · (1 − 0.05 / 2) = 0.585 of the working set.
    yield from outcomes(tiny_model, tmp_path_factory.mktemp("small"), 1.2)


def test_below_the_working_set_conditioned_restores_clearly_more_than_none_and_about_as_much_as_fixed(
    small: tuple[Bench, Runs],
) -> None:
    _, runs = small
    assert {run.failed for run in runs.values()} == {0}
    assert runs["conditioned"].restored > 1.5 * runs["none"].restored
    assert runs["conditioned"].restored > 0.8 * runs["fixed"].restored
    assert runs["conditioned"].computed < 0.95 * runs["none"].computed


def test_below_the_working_set_conditioned_writes_a_fraction(small: tuple[Bench, Runs]) -> None:
    _, runs = small
    assert runs["conditioned"].written < 0.5 * runs["none"].written
    assert runs["conditioned"].record.skipped_requests > 0


def test_the_agents_are_counted_exactly_without_any_help_of_theirs(small: tuple[Bench, Runs]) -> None:
    _, runs = small
    counts = [count for run in runs.values() for count in run.agents]
    assert len(counts) >= 6
    assert [seen for seen, _ in counts] == [active for _, active in counts]


def test_above_the_working_set_conditioned_restores_what_none_does_and_far_more_than_fixed(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for _, runs in outcomes(tiny_model, tmp_path_factory.mktemp("large"), 4.0):
        assert runs["conditioned"].restored > 0.97 * runs["none"].restored
        assert runs["conditioned"].computed < 1.05 * runs["none"].computed
        assert runs["fixed"].computed > 2 * runs["conditioned"].computed
        assert runs["conditioned"].restored > 1.5 * runs["fixed"].restored
