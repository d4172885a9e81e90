"""The statistics under a fake clock and against lines that are known."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl_probes.sampling import (
    Budget,
    Effort,
    Samples,
    fit_line,
    fit_prefill,
    quantile,
    sample,
    weighted_median,
)


class FakeTime:
    """A clock that only measurements move."""

    def __init__(self, durations: list[float], then: float = 1.0) -> None:
        self.now = 0.0
        self.durations: Iterator[float] = iter(durations)
        self.then = then
        self.runs = 0

    def clock(self) -> float:
        return self.now

    def measure(self) -> float:
        duration = next(self.durations, self.then)
        self.now += duration
        self.runs += 1
        return duration


def test_warm_up_lasts_while_times_still_fall_and_is_thrown_away() -> None:
    # 8, 4, 2 are falling; 1.0 then 1.0 is settled. Samples are the ones after that.
    time = FakeTime([8, 4, 2, 1, 1], then=1)
    samples = sample(time.measure, Effort(seconds=100, least=3, most=3), time.clock)
    assert samples.seconds == (1, 1, 1)
    assert time.runs == 5 + 3


def test_a_slow_measurement_still_gets_its_least_samples() -> None:
    # One run takes 50 s of an effort of 10: a single warm-up run, then the least number asked for.
    time = FakeTime([], then=50)
    assert len(sample(time.measure, Effort(seconds=10, least=3), time.clock).seconds) == 3
    assert time.runs == 4


def test_sampling_stops_when_the_effort_is_spent() -> None:
    # Two warm-up runs of 1 s, then samples until 20 s are over: 18.
    time = FakeTime([], then=1)
    assert len(sample(time.measure, Effort(seconds=20, least=3), time.clock).seconds) == 18
    time = FakeTime([], then=0.001)
    assert len(sample(time.measure, Effort(seconds=20, most=50), time.clock).seconds) == 50


def test_a_budget_shares_what_is_left() -> None:
    time = FakeTime([4, 10])
    budget = Budget(12, time.clock)
    assert budget.share(3) == 4
    time.measure()
    assert budget.share(2) == 4  # 12 - 4 = 8 left for two
    time.measure()
    assert budget.left_s == 0


def test_the_modified_z_score_finds_a_hiccup_but_not_noise() -> None:
    # Median 1.00, MAD 0.01: 1.30 scores 0.6745 * 0.30 / 0.01 = 20, 1.02 scores 1.3.
    samples = Samples((1.00, 1.01, 0.99, 1.02, 1.30, 1.00, 0.98))
    assert samples.median_s == 1.00
    assert samples.mad_s == pytest.approx(0.01)
    assert samples.outliers == (4,)
    assert Samples((1.0, 1.0, 1.0, 9.0)).outliers == ()  # no spread to measure by


def test_the_band_leaves_out_a_tenth_on_either_side() -> None:
    samples = Samples(tuple(float(i) for i in range(11)))
    assert (samples.low_s, samples.high_s) == (1.0, 9.0)
    assert quantile([5.0], 0.9) == 5.0


SIZES = [2.0**k for k in range(16, 31, 2)]  # 64 KiB to 1 GiB


def test_a_clean_line_is_found_exactly() -> None:
    # 25 GB/s and 10 us.
    fit = fit_line(SIZES, [1e-5 + size / 25e9 for size in SIZES])
    assert fit.slope == pytest.approx(1 / 25e9)
    assert fit.intercept == pytest.approx(1e-5)
    assert fit.worst_residual < 1e-9


def test_two_spoilt_sizes_of_eight_do_not_move_the_line() -> None:
    times = [1e-5 + size / 25e9 for size in SIZES]
    times[2] *= 5
    times[5] *= 3
    fit = fit_line(SIZES, times)
    assert 1 / fit.slope == pytest.approx(25e9, rel=0.02)
    assert fit.intercept == pytest.approx(1e-5, rel=0.2)
    # And they show: (5t - t)/5t = 0.8, (3t - t)/3t = 0.667.
    assert fit.residuals[2] == pytest.approx(0.8, abs=0.02)
    assert fit.residuals[5] == pytest.approx(0.667, abs=0.02)


def test_a_disturbance_during_the_largest_size_does_not_halve_the_rate() -> None:
    # 1 GiB is in 7 of the 28 pairs, a quarter: less than the 29 % that the median of pairs can bear.
    times = [1e-5 + size / 25e9 for size in SIZES]
    times[-1] *= 2
    fit = fit_line(SIZES, times)
    assert 1 / fit.slope == pytest.approx(25e9, rel=0.05)
    assert fit.residuals[-1] == pytest.approx(0.5, abs=0.03)


def test_large_sizes_decide_the_rate_where_small_ones_fit_in_a_cache() -> None:
    # 100 GB/s up to 4 MiB, 10 GB/s beyond: a restore of many MiB sees the 10.
    times = [size / (100e9 if size <= 2**22 else 10e9) for size in SIZES]
    assert 1 / fit_line(SIZES, times).slope == pytest.approx(10e9, rel=0.02)


def test_noise_never_yields_a_negative_rate_or_overhead() -> None:
    fit = fit_line([1, 2, 3], [3.0, 2.0, 1.0])
    assert fit.slope == 0
    fit = fit_line([1, 2, 4], [0.9e-3, 2.1e-3, 4.4e-3])
    assert fit.intercept >= 0


def test_one_size_is_no_line() -> None:
    with pytest.raises(ValueError, match="two distinct sizes"):
        fit_line([5, 5], [1.0, 2.0])


@given(
    rate=st.floats(1e8, 1e12),
    overhead=st.floats(1e-7, 1e-3),
    noise=st.lists(st.floats(-0.02, 0.02), min_size=8, max_size=8),
)
def test_two_percent_noise_moves_the_rate_by_a_few_percent(rate: float, overhead: float, noise: list[float]) -> None:
    times = [(overhead + size / rate) * (1 + e) for size, e in zip(SIZES, noise, strict=True)]
    fit = fit_line(SIZES, times)
    if overhead < SIZES[-3] / rate:  # otherwise nothing but overhead was measured
        assert 1 / fit.slope == pytest.approx(rate, rel=0.15)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_with_equal_weights_the_weighted_median_is_the_median(values: list[float]) -> None:
    assert weighted_median(values, [2.0] * len(values)) == pytest.approx(median(values))


LENGTHS = [256, 1024, 4096, 16384]


@given(fixed=st.floats(0, 1), linear=st.floats(1e-7, 1e-3), quadratic=st.floats(0, 1e-9))
def test_prefill_terms_are_recovered(fixed: float, linear: float, quadratic: float) -> None:
    fit = fit_prefill(LENGTHS, [fixed + linear * n + quadratic * n * n for n in LENGTHS])
    assert max(abs(residual) for residual in fit.residuals) < 1e-6
    for n in (512, 8192):
        assert fit.at(n) == pytest.approx(fixed + linear * n + quadratic * n * n, rel=1e-5)


def test_few_lengths_give_fewer_terms() -> None:
    one = fit_prefill([1000], [0.01])
    assert (one.fixed, one.linear, one.quadratic) == (0, pytest.approx(1e-5), 0)
    two = fit_prefill([1000, 2000], [0.015, 0.025])
    assert (two.fixed, two.quadratic) == (pytest.approx(0.005), 0)
    with pytest.raises(ValueError, match="at least one length"):
        fit_prefill([], [])


@given(st.lists(st.floats(1e-6, 10), min_size=4, max_size=4))
def test_no_prefill_term_is_ever_negative(times: list[float]) -> None:
    fit = fit_prefill(LENGTHS, times)
    assert fit.fixed >= 0
    assert fit.quadratic >= 0
    assert fit.linear > 0
