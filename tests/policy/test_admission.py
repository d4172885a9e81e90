"""The admission rule against a slow restatement of its equations, and at its edges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.policy import POLICIES, Admission, AdmissionSettings, TierReport, TierSize

BETA = 24 * 1024
CHUNK = 1024
GIB = 1 << 30


def tier(host_bytes: int = 5 * GIB, **shares: float) -> TierSize:
    return TierSize(CHUNK, BETA, host_bytes, **shares)


def test_the_papers_pool_of_16_agents_puts_pressure_on_5_gib_but_not_on_40() -> None:
    # (16 − 1) · 33,234 · 24 KiB = 11.4 GiB
    for host_gib, pressed in ((5, True), (10, True), (12, False), (40, False)):
        policy = Admission("conditioned", tier(host_gib * GIB))
        for agent in range(16):
            policy.observe_lookup(agent, 33_234, 0.0)
        assert policy.pool(0.0).working_set_bytes == pytest.approx(11.4 * GIB, rel=0.01)
        assert policy.decide(33_234, 0, 0.0).pressure is pressed  # no report: the estimate alone decides


def test_capacity_in_chunks_is_the_papers() -> None:
    # 1,024 tokens of 24 KiB are 24 MiB: floor(5 · 1024 / 24) = 213
    assert [tier(gib * GIB).capacity_chunks for gib in (5, 10, 40)] == [213, 426, 1706]


def test_a_request_with_more_than_kappa_new_chunks_is_declined_under_pressure_only() -> None:
    policy = Admission("fixed", tier())
    assert policy.decide(8 * CHUNK, 0, 0.0) == (True, 8, True)  # u = 8 is not more than κ = 8
    assert policy.decide(9 * CHUNK, 0, 0.0) == (False, 9, True)
    # floor(n/b) − floor(h/b): a hit of 1.5 chunks counts as one
    assert policy.decide(10 * CHUNK, CHUNK + 512, 0.0) == (False, 9, True)
    assert policy.decide(10 * CHUNK - 1, CHUNK, 0.0) == (True, 8, True)
    assert policy.decide(CHUNK, 4 * CHUNK, 0.0).new_chunks == 0  # the prompt is shorter than what is held
    assert Admission("none", tier()).decide(900 * CHUNK, 0, 0.0) == (True, 900, False)


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown policy 'lru', known are none, fixed, conditioned"):
        Admission("lru", tier())


def test_a_task_counts_until_the_window_ends_and_not_after() -> None:
    policy = Admission("conditioned", tier())
    policy.observe_lookup("a", 1000, 100.0)
    policy.observe_lookup("b", 1000, 130.0)
    assert policy.pool(160.0).agents == 2  # a was seen exactly 60 s ago
    assert policy.pool(160.001).agents == 1
    assert policy.pool(190.001).agents == 0


def test_a_report_counts_while_it_is_fresh() -> None:
    policy = Admission("conditioned", tier(GIB))
    for agent in range(16):
        policy.observe_lookup(agent, 33_234, 0.0)
    policy.observe_report(TierReport(1, 0), 0.0)  # nearly empty: no pressure, whatever the estimate says
    assert not policy.decide(33_234, 0, 5.0).pressure
    assert policy.decide(33_234, 0, 5.1).pressure  # stale
    policy.observe_report(TierReport(1, 0), 6.0, age_s=5.5)
    assert policy.decide(33_234, 0, 6.0).pressure  # it was stale when it came


def test_a_full_tier_counts_as_evicting_for_one_window_after_its_last_eviction() -> None:
    policy = Admission("conditioned", tier(GIB))  # 42 chunks
    for agent in range(16):
        policy.observe_lookup(agent, 33_234, 0.0)
    policy.observe_report(TierReport(42, 7), 0.0)
    assert not policy.decide(33_234, 0, 0.0).pressure  # 7 is where the counter stood, not an eviction
    policy.observe_report(TierReport(42, 8), 1.0)
    assert policy.decide(33_234, 0, 1.0).pressure
    policy.observe_report(TierReport(39, 8), 2.0)
    assert not policy.decide(33_234, 0, 2.0).pressure  # 39/42 = 0.93 is below θ
    policy.observe_report(TierReport(40, 8), 3.0)
    assert policy.pool(3.0).full_and_evicting  # 40/42 = 0.952
    for agent in range(16):
        policy.observe_lookup(agent, 33_234, 61.5)
    policy.observe_report(TierReport(42, 8), 61.5)
    assert not policy.decide(33_234, 0, 61.5).pressure  # the eviction at 1.0 is 60.5 s ago


def test_a_counter_that_starts_again_counts_from_zero() -> None:
    policy = Admission("conditioned", tier())
    for total, at_s in ((100, 0.0), (104, 1.0), (3, 2.0)):  # the server was restarted before 2.0
        policy.observe_report(TierReport(200, total), at_s)
    assert policy.pool(2.0).evicted_window == 4 + 3


@pytest.mark.parametrize("count", [-1, 1.5, True, None, "12", math.nan])
def test_a_report_with_a_count_that_cannot_be_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match="not a count of chunks"):
        TierReport(count, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a count of chunks"):
        TierReport(0, count)  # type: ignore[arg-type]


def test_a_clock_set_back_neither_freezes_the_window_nor_empties_it() -> None:
    policy = Admission("conditioned", tier())
    policy.observe_lookup("a", 1000, 5000.0)
    policy.observe_lookup("b", 1000, 100.0)  # set back by 4,900 s
    assert policy.pool(130.0).agents == 2
    assert policy.pool(161.0).agents == 0  # 61 s after both, as far as the clock can tell
    policy.observe_lookup("c", 1000, math.nan)
    assert policy.pool(161.0).agents == 1


def test_a_million_tasks_and_reports_leave_bounded_memory() -> None:
    policy = Admission("conditioned", tier(), AdmissionSettings(max_tasks=1000))
    for number in range(1_000_000):
        policy.observe_lookup(number, 10, number * 1e-6)
    for number in range(20_000):
        policy.observe_report(TierReport(10, number), 1 + number * 1e-3)
    pool = policy.pool(21.0)
    assert pool.agents == 1000  # the count saturates
    assert pool.evicted_window == 19_999  # merged, not lost
    assert len(policy._tasks._seen_s) == 1000
    assert len(policy._evictions._rises) <= 1024
    assert policy._prompts.count == 256


def test_a_watermark_tier_keeps_the_middle_of_its_cycle_and_is_full_from_there() -> None:
    # 0.8 · (1 − 0.2 / 2) = 0.72
    size = TierSize.with_watermark(CHUNK, BETA, 100 * CHUNK * BETA, watermark=0.8, ratio=0.2)
    assert size.occupancy(72) == pytest.approx(1.0)
    assert size.holds(71.9 * CHUNK * BETA) and not size.holds(72.1 * CHUNK * BETA)


def test_a_tier_of_no_bytes_is_always_full_and_always_too_small() -> None:
    policy = Admission("conditioned", tier(0))
    policy.observe_lookup("a", 10, 0.0)
    policy.observe_lookup("b", 10, 0.0)
    policy.observe_report(TierReport(0, 0), 0.0)
    policy.observe_report(TierReport(0, 1), 0.1)
    assert policy.decide(20 * CHUNK, 0, 0.2) == (False, 20, True)


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 30),  # seconds since the previous event
        st.one_of(
            st.tuples(st.just("lookup"), st.integers(0, 12), st.integers(1, 60_000), st.integers(0, 60_000)),
            st.tuples(st.just("report"), st.integers(0, 60), st.integers(0, 5)),
        ),
    ),
    max_size=60,
)


@given(EVENTS, st.sampled_from(sorted(POLICIES)), st.integers(1, 40), st.floats(0.3, 1.0))
def test_every_decision_equals_the_equations_spelled_out(events, name, host_chunks, kept) -> None:  # type: ignore[no-untyped-def]
    settings_ = AdmissionSettings(kappa_chunks=8, mean_requests=5)
    size = tier(host_chunks * CHUNK * BETA, kept_share=kept)
    policy = Admission(name, size, settings_)
    now, evicted, lookups, reports = 0.0, 0, [], []
    for gap, event in events:
        now += gap
        if event[0] == "report":
            evicted += event[2]
            policy.observe_report(TierReport(event[1], evicted), now)
            reports.append((now, event[1], event[2] if reports else 0))
            continue
        _, task, prompt, hit = event
        policy.observe_lookup(task, prompt, now)
        lookups.append((now, task, prompt))

        agents = len({task for at, task, _ in lookups if now - 60 <= at})
        recent = [prompt for _, _, prompt in lookups[-5:]]
        over = (agents - 1) * (sum(recent) * BETA) / len(recent) > size.host_bytes * kept
        second = True
        if reports and now - reports[-1][0] <= 5:
            second = reports[-1][1] / (host_chunks * kept) >= 0.95 and any(
                rise > 0 for at, _, rise in reports if now - 60 <= at
            )
        pressure = {"none": False, "fixed": True, "conditioned": over and second}[name]
        new = max(0, prompt // CHUNK - hit // CHUNK)
        assert policy.decide(prompt, hit, now) == (not (pressure and new > 8), new, pressure)
