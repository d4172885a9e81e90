"""Eq. 2, 3 and 7 against the paper's numbers, public reports and their own algebra."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import UsageError
from eactl.model.obr import SCHEMA, Figure, ObrResult, obr_points

GIB = 1 << 30
KIB = 1 << 10


def machine(
    *,
    kib: float,
    gib_s: float,
    us: float,
    overhead_us: float = 0,
    quadratic_us: float = 0,
    d2h_gib_s: float | None = None,
) -> ObrResult:
    """A result from figures in the units of the contract."""
    return ObrResult(
        bytes_per_token=kib * KIB,
        bandwidth=Figure.exact(gib_s * GIB),
        per_token=Figure.exact(us * 1e-6),
        overhead=Figure.exact(overhead_us * 1e-6),
        quadratic=Figure.exact(quadratic_us * 1e-6),
        d2h_bandwidth=None if d2h_gib_s is None else Figure.exact(d2h_gib_s * GIB),
    )


def test_the_papers_h20_saves_at_least_84_percent() -> None:
    # 26.6 GiB/s and 24 KiB: 24,576 / (26.6 * 2^30) = 0.86 us per token. Prefill of 3.3B active parameters on
    # eight GPUs of 148 TFLOP/s takes at least 2 * 3.3e9 / (8 * 148e12) = 5.574 us. 1 - 0.86/5.574 = 0.8456.
    bound_us = 2 * 3.3e9 / (8 * 148e12) * 1e6
    h20 = machine(kib=24, gib_s=26.6, us=bound_us)
    assert round(h20.load_s(1) * 1e6, 2) == 0.86
    assert round(bound_us, 1) == 5.6
    assert h20.limit_obr == pytest.approx(0.8456, abs=1e-4)
    assert h20.limit_obr >= 0.84


def test_a_7b_with_full_attention_is_recomputed_faster_than_it_is_restored() -> None:
    # Public report: 512 KiB per token, 3,000 tokens, 20 GB/s, prefill at 44,000 tokens/s.
    # Load 3,000 * 524,288 / 20e9 = 78.6 ms; prefill 3,000 / 44,000 = 68.2 ms; OBR = 1 - 78.6/68.2 = -0.153.
    result = ObrResult(524_288, Figure.exact(20e9), Figure.exact(1 / 44_000), d2h_bandwidth=Figure.exact(20e9))
    assert result.load_s(3000) * 1e3 == pytest.approx(78.6, abs=0.05)
    assert result.recompute_s(3000) * 1e3 == pytest.approx(68.2, abs=0.05)
    assert result.obr(3000) == pytest.approx(-0.1534, abs=1e-3)
    assert result.point(3000).verdict == "recompute"
    assert result.break_even_tokens is None  # 26.2 us to load a token, 22.7 us to compute it: at no length
    assert result.restores_per_store(3000) is None  # nor are the writes ever paid for


def test_break_even_is_where_load_and_prefill_take_the_same_time() -> None:
    # t_pf 10 us, beta/B 24 KiB / 24 GiB/s = 0.954 us, overhead 200 us: n* = 200 / (10 - 0.954) = 22.1 tokens.
    result = machine(kib=24, gib_s=24, us=10, overhead_us=200)
    n = result.break_even_tokens
    assert n is not None
    assert n == pytest.approx(200 / (10 - 24 / (24 * 1024 * 1024) * 1e6), rel=1e-12)
    assert result.load_s(n) == pytest.approx(result.recompute_s(n), rel=1e-12)


def test_without_an_overhead_a_faster_restore_pays_from_the_first_token() -> None:
    assert machine(kib=24, gib_s=26.6, us=5.6).break_even_tokens == 0


def test_a_store_must_be_restored_often_enough_to_be_paid_for() -> None:
    # Per token: store 1 us, load 1 us, prefill 3 us. One restore saves 2 us, so half a restore per store pays.
    result = machine(kib=1024 * 1024 / 1e6, gib_s=1, us=3, d2h_gib_s=1)
    assert result.load_s(1) == pytest.approx(1e-6)
    assert result.restores_per_store(1000) == pytest.approx(0.5)


def test_the_serving_balance_is_eq_3() -> None:
    # H20, 16 agents, from no tier to 20 GiB: 89.66M - 5.28M tokens less prefill at 5.574 us, 82.77M restored at
    # 0.8605 us: -84.38e6 * 5.574e-6 + 82.77e6 * 0.8605e-6 = -470.3 + 71.2 = -399.1 s of every rank's time.
    h20 = machine(kib=24, gib_s=26.6, us=5.574)
    assert h20.serving_balance_s(89.66e6, 5.28e6, 82.77e6) == pytest.approx(-399.1, abs=0.1)
    # A tier that only shifts hits from the GPU to the host adds transfers and saves nothing.
    assert h20.serving_balance_s(5e6, 5e6, 1e6) > 0


def test_the_verdict_is_unclear_where_the_band_holds_zero() -> None:
    # 24 KiB at 10 GiB/s is 2.29 us. Prefill 2.4 us, but the samples span 2.1 to 2.7: either may be faster.
    result = ObrResult(24 * KIB, Figure.exact(10 * GIB), Figure(2.4e-6, 2.1e-6, 2.7e-6, "measured"))
    point = result.point(10_000)
    assert point.obr_low < 0 < point.obr < point.obr_high
    assert point.verdict == "unclear"


def test_points_come_sorted_and_once() -> None:
    points = obr_points(machine(kib=24, gib_s=26.6, us=5.6), [33_000, 1024, 33_000])
    assert [point.tokens for point in points] == [1024, 33_000]


positive = st.floats(1e-3, 1e3)


@given(
    kib=positive, gib_s=positive, us=positive, overhead_us=positive,
    quadratic_us=st.one_of(st.just(0.0), st.floats(1e-9, 1e-3)),
)  # fmt: skip
def test_break_even_separates_loss_from_gain(
    kib: float, gib_s: float, us: float, overhead_us: float, quadratic_us: float
) -> None:
    result = machine(kib=kib, gib_s=gib_s, us=us, overhead_us=overhead_us, quadratic_us=quadratic_us)
    n = result.break_even_tokens
    if n is None:
        assert result.limit_obr <= 0
        assert result.obr(1e9) <= 1e-9
    else:
        assert result.obr(n * 1.01) > 0
        assert result.obr(n * 0.99) < 0


@given(kib=positive, gib_s=positive, us=positive, overhead_us=positive, tokens=st.integers(1, 1_000_000))
def test_obr_rises_with_length_towards_its_limit(
    kib: float, gib_s: float, us: float, overhead_us: float, tokens: int
) -> None:
    result = machine(kib=kib, gib_s=gib_s, us=us, overhead_us=overhead_us)
    # Rounding can let the value touch the limit from either side: allow one part in 10^9 of the terms' size.
    slack = 1e-9 * (1 + abs(result.limit_obr))
    assert result.obr(tokens) <= result.obr(2 * tokens) + slack
    assert result.obr(tokens) <= result.limit_obr + slack


@given(kib=positive, gib_s=positive, us=positive, spread=st.floats(1, 2), tokens=st.integers(1, 100_000))
def test_the_band_always_holds_the_value(kib: float, gib_s: float, us: float, spread: float, tokens: int) -> None:
    result = ObrResult(
        kib * KIB,
        Figure(gib_s * GIB, gib_s * GIB / spread, gib_s * GIB * spread, "measured"),
        Figure(us * 1e-6, us * 1e-6 / spread, us * 1e-6 * spread, "measured"),
    )
    point = result.point(tokens)
    slack = 1e-9 * (1 + abs(point.obr_low))
    assert point.obr_low - slack <= point.obr <= point.obr_high + slack


@given(kib=positive, gib_s=positive, us=positive, overhead_us=positive)
def test_turning_points_have_no_benefit(kib: float, gib_s: float, us: float, overhead_us: float) -> None:
    result = machine(kib=kib, gib_s=gib_s, us=us, overhead_us=overhead_us)
    bandwidth = result.critical_bandwidth(5000)
    if bandwidth is not None:
        turned = machine(kib=kib, gib_s=bandwidth / GIB, us=us, overhead_us=overhead_us)
        assert turned.obr(5000) == pytest.approx(0, abs=1e-6)
    per_token = result.critical_per_token_s(5000)
    assert per_token is not None
    assert machine(kib=kib, gib_s=gib_s, us=per_token * 1e6, overhead_us=overhead_us).obr(5000) == pytest.approx(
        0, abs=1e-9
    )


def test_a_saved_result_reads_back_as_it_was() -> None:
    result = ObrResult(
        24_576,
        Figure(26.6 * GIB, 26 * GIB, 27 * GIB, "measured"),
        Figure(5.6e-6, 5.5e-6, 5.9e-6, "bound"),
        Figure(2e-5, 1e-5, 3e-5, "measured"),
        Figure(1e-10, 0, 2e-10, "measured"),
        Figure.exact(25 * GIB),
    )
    again = ObrResult.from_document({"schema": SCHEMA, **result.fields()})
    for n in (1, 1000, 200_000):
        assert again.obr(n) == pytest.approx(result.obr(n), rel=1e-12)
        assert again.store_s(n) == pytest.approx(result.store_s(n), rel=1e-12)
        assert again.point(n).obr_low == pytest.approx(result.point(n).obr_low, rel=1e-9)
    assert again.per_token.source == "bound"
    assert math.isclose(again.us_per_token, 5.6)


def test_a_document_with_the_bare_figures_is_enough() -> None:
    document = {
        "schema": SCHEMA,
        "bytes_per_token_rank": 24576,
        "bandwidth_gib_s": 26.6,
        "overhead_us": 0,
        "us_per_token": 5.6,
        "quadratic_us_per_token2": 0,
    }
    assert ObrResult.from_document(document).limit_obr == pytest.approx(0.8463, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "eactl.h2d/1"}, "not a result of eactl probe obr"),
        ({"us_per_token": None, "status": "interrupted"}, "no us_per_token (status interrupted)"),
        ({"bandwidth_gib_s": 0}, "bandwidth_gib_s is 0"),
        ({"bandwidth_gib_s": "26"}, "bandwidth_gib_s is not a number"),
        ({"us_per_token": float("nan")}, "us_per_token is not a number"),
        ({"overhead_us": -1}, "overhead_us is -1"),
        ({"bytes_per_token_rank": True}, "bytes_per_token_rank is not a number"),
    ],
)
def test_a_saved_result_that_cannot_be_used_says_why(change: dict[str, object], message: str) -> None:
    document = {"schema": SCHEMA, **machine(kib=24, gib_s=26.6, us=5.6).fields(), **change}
    with pytest.raises(UsageError, match="obr") as caught:
        ObrResult.from_document(document)
    assert message in str(caught.value)


def test_a_band_edited_by_hand_to_zero_does_not_divide_by_it() -> None:
    document = {"schema": SCHEMA, **machine(kib=24, gib_s=26.6, us=5.6).fields()}
    document["bands"] = {"us_per_token": [0, 9], "bandwidth_gib_s": [30, 31], "overhead_us": "x"}
    point = ObrResult.from_document(document).point(1000)
    assert point.obr_low == point.obr == point.obr_high
