"""Figures as people write them."""

from __future__ import annotations

import pytest

from eactl.errors import UsageError
from eactl_probes.figures import (
    parse_count,
    parse_pair,
    parse_prefill_s,
    parse_rates,
    parse_sizes,
    parse_tokens,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("26.6", (26.6 * GIB,)),
        ("26.6GiB/s", (26.6 * GIB,)),
        ("57 GB/s", (57e9,)),
        ("900MB/s", (9e8,)),
        ("57,14.2", (57 * GIB, 14.2 * GIB)),
        (".5", (0.5 * GIB,)),
    ],
)
def test_rates_are_gib_unless_they_say_gb(text: str, rates: tuple[float, ...]) -> None:
    assert parse_rates(text, where="--bandwidth") == pytest.approx(rates)


@pytest.mark.parametrize("text", ["", "0", "-1", "26Gb/s", "inf", "nan", "1,,2", "1e999", "26 GiB"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a rate"):
        parse_rates(text, where="--bandwidth")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5.6", 5.6e-6),
        ("5.6us", 5.6e-6),
        ("5.6 µs", 5.6e-6),
        ("2ms", 2e-3),
        ("7009tok/s", 1 / 7009),
        ("1e3 tokens/s", 1e-3),
    ],
)
def test_a_prefill_cost_is_microseconds_or_a_rate(text: str, seconds: float) -> None:
    assert parse_prefill_s(text, where="--us-per-token") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "0tok/s", "x", "-5", "5 s", "1e999"])
def test_what_is_no_prefill_cost_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a prefill cost"):
        parse_prefill_s(text, where="--us-per-token")


def test_counts_take_the_letters_of_model_names() -> None:
    assert parse_count("3.3B", where="x") == parse_count("3.3e9", where="x") == 3.3e9
    assert parse_count("700M", where="x") == 7e8
    with pytest.raises(UsageError, match="not a count"):
        parse_count("0", where="x")


def test_lists_are_sorted_and_without_repeats() -> None:
    assert parse_tokens("33000,1024,33_000") == (1024, 33000)
    assert parse_sizes("1GiB,64KiB,1GiB") == (64 << 10, 1 << 30)
    for text in ("0B", "1MiB,,2MiB"):
        with pytest.raises(UsageError):
            parse_sizes(text)


def test_a_pair_of_seconds() -> None:
    assert parse_pair("98.99,152.62", where="x") == (98.99, 152.62)
    for text in ("1", "1,2,3", "0,1", "a,b", "nan,1"):
        with pytest.raises(UsageError, match="not two times"):
            parse_pair(text, where="x")
