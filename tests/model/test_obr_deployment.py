"""Classes of Table 1, advice of Table 12, link readings: each against the published number or report."""

from __future__ import annotations

import pytest

from eactl.errors import UsageError
from eactl.model.deployment import Pressure, advise, flips, regime, scenarios, turning_points
from eactl.model.gpus import find_gpu, require_gpu
from eactl.model.link import LinkState, hits_text, lagging_ranks, link_text, numa_choice
from eactl.model.obr import Figure, ObrResult

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "thousand", "expected"),
    # 71e12/32e9 = 2,219; 148e12/64e9 = 2,313; 989.5e12/64e9 = 15,461
    [("RTX 3090", 2.2, "low"), ("H20", 2.3, "low"), ("H800", 15.5, "high")],
)
def test_flop_per_host_byte_of_table_1(name: str, thousand: float, expected: str) -> None:
    ratio = require_gpu(name).flop_per_host_byte
    assert round(ratio / 1000, 1) == thousand
    assert regime(ratio) == expected


def test_between_the_published_classes_nothing_is_claimed() -> None:
    # 2.3K paid and 15.5K did not; 6K is more than twice the one and less than half the other.
    assert regime(6_000) == "between"


@pytest.mark.parametrize(
    ("driver_name", "found"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("nvidia h20", "H20"),
    ],
)
def test_a_gpu_is_found_by_the_name_the_driver_gives(driver_name: str, found: str) -> None:
    gpu = find_gpu(driver_name)
    assert gpu is not None
    assert gpu.name == found


def test_an_unlisted_gpu_is_not_guessed() -> None:
    assert find_gpu("NVIDIA H2000") is None
    with pytest.raises(UsageError, match=r"no datasheet for 'MI300X'.*RTX 3090"):
        require_gpu("MI300X")


@pytest.mark.parametrize(
    ("verdict", "ratio_class", "pressure", "first"),
    [
        ("recompute", "low", Pressure(2, 0.5), "recompute"),
        ("restore", "high", Pressure(2, 0.5), "favour-gpu-cache"),
        ("restore", "low", Pressure(1.55, 0.57), "admit-all"),
        ("restore", "low", Pressure(1.55, 2.3), "condition-or-enlarge"),
        ("restore", "low", Pressure(0.8, 2.3), "no-pressure"),
        ("restore", "low", Pressure(), "size-the-tier"),
        ("restore", None, Pressure(None, 0.5), "admit-all"),
        ("unclear", "low", Pressure(1.5, 0.5), "measure-again"),
    ],
)
def test_advice_follows_table_12(verdict: str, ratio_class: str, pressure: Pressure, first: str) -> None:
    assert advise(verdict, ratio_class, pressure)[0].code == first  # type: ignore[arg-type]


def test_what_would_flip_a_narrow_verdict() -> None:
    # 24 KiB at 10 GiB/s is 2.29 us against 3 us of prefill: it pays, but not at half the link (4.58 us).
    result = ObrResult(24_576, Figure.exact(10 * GIB), Figure.exact(3e-6))
    found = {flip.name: flip for flip in flips(result, 10_000, scenarios(double_tp_bytes_factor=1.0))}
    assert found["host link at half the rate"].flips
    assert found["host link at half the rate"].obr == pytest.approx(1 - 4.578 / 3, abs=1e-3)
    assert not found["fp8 KV instead of 16 bit"].flips
    # KV heads are already replicated: twice the TP halves the prefill (1.5 us) and leaves the load at 2.29 us.
    assert found["twice the TP"].flips
    turning = turning_points(result, 10_000)
    assert turning["bandwidth_gib_s"] == pytest.approx(24_576 / 3e-6 / GIB)
    assert turning["us_per_token"] == pytest.approx(24_576 / (10 * GIB) * 1e6)


def test_one_slow_gpu_of_four_is_named() -> None:
    assert lagging_ranks([14.2, 57.06, 56.68, 57.07]) == (0,)
    assert lagging_ranks([57.0, 56.7]) == ()
    assert lagging_ranks([57.0, 30.0]) == (1,)
    assert lagging_ranks([57.0]) == ()


def test_the_numa_choice_names_the_better_node_and_the_bind_flag() -> None:
    choice = numa_choice({0: 55.1, 1: 31.0}, "gpu0")
    assert choice is not None
    assert (choice.best_node, choice.worst_node) == (0, 1)
    assert "1.78x" in choice.text  # 55.1 / 31.0
    assert "--numa-bind" in choice.text
    assert "--membind=0" in choice.text
    assert numa_choice({0: 55.1}, "gpu0") is None
    equal = numa_choice({0: 50.0, 1: 49.9}, "gpu0")
    assert equal is not None
    assert "no difference" in equal.text


def test_a_narrow_slot_is_told_from_an_idle_link() -> None:
    idle, busy, maximum = LinkState(1, 16), LinkState(4, 8), LinkState(4, 16)
    ok, text = link_text(busy, maximum, idle)
    assert ok is False
    assert "x8 of x16" in text
    assert "gen 4 ok" in text
    # An idle gen 1 reading alone is no verdict: the link clocks down without traffic.
    assert link_text(None, maximum, idle)[0] is None
    assert link_text(LinkState(4, 16), maximum, idle)[0] is True
    assert link_text(LinkState(3, 16), maximum)[0] is False


def test_hits_on_the_gpu_prove_nothing_about_the_tier() -> None:
    assert "all hits were on the GPU" in (hits_text(14_808, 0) or "")
    assert "no cache hits" in (hits_text(0, 0) or "")
    assert hits_text(10, 5) is None
