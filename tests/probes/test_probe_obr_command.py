"""``eactl probe obr`` with every figure given: nothing is measured, and the published numbers come out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli_runner import eactl, environment

GIVEN = ("probe", "obr", "--kv-bytes-per-token", "24576", "--bandwidth", "26.6")


def answer(*arguments: str) -> dict[str, Any]:
    """The document of a run that must succeed."""
    result = eactl("probe", "obr", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_h20_from_the_papers_figures() -> None:
    # 24,576 B / 26.6 GiB/s = 0.8605 us; 2 * 3.3e9 / (8 * 148e12) = 5.574 us; 1 - 0.8605 / 5.574 = 0.8456.
    document = answer(
        "--model", "Qwen3-Coder-30B-A3B", "--tp", "8", "--bandwidth", "26.6", "--active-params", "3.3e9",
        "--peak-tflops", "148", "--link", "64GB/s", "--tokens", "1024,33000",
    )  # fmt: skip
    assert next(iter(document)) == "schema"
    assert document["schema"] == "eactl.obr/1"
    assert document["bytes_per_token_rank"] == 24576
    assert document["us_per_token"] == pytest.approx(5.574, abs=1e-3)
    assert document["limit_obr"] == pytest.approx(0.8456, abs=1e-4)
    assert document["flop_per_host_byte"] == pytest.approx(2312.5)
    assert document["regime"] == "low"
    assert document["verdict"] == "restore"
    assert document["sources"]["bandwidth_gib_s"] == "given"
    assert [point["tokens"] for point in document["points"]] == [1024, 33000]
    point = document["points"][1]
    assert point["load_s"] == pytest.approx(33000 * 24576 / (26.6 * 2**30))
    assert point["recompute_s"] == pytest.approx(33000 * 5.574e-6, rel=1e-4)
    assert document["h2d"] is None


@pytest.mark.parametrize(
    ("gpu", "ratio", "regime"), [("RTX 3090", 2.2, "low"), ("H20", 2.3, "low"), ("H800", 15.5, "high")]
)
def test_the_classes_of_table_1_from_a_name(gpu: str, ratio: float, regime: str) -> None:
    document = answer("--gpu", gpu, "--kv-bytes-per-token", "24576", "--us-per-token", "5.6")
    assert round(document["flop_per_host_byte"] / 1000, 1) == ratio
    assert document["regime"] == regime
    assert ("favour-gpu-cache" in document["advice_codes"]) == (regime == "high")


def test_with_everything_given_torch_is_never_loaded() -> None:
    arguments = [*GIVEN, "--us-per-token", "5.6"]
    code = f"import sys; from eactl.cli import run; sys.exit(run({arguments}) or 10 * ('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr


def test_the_answer_reads_without_the_paper() -> None:
    result = eactl(*GIVEN, "--us-per-token", "5.6", "--overhead-us", "200", "--tokens", "100,33000")
    assert "RESTORE: bringing a prefix back from host memory is faster" in result.stdout
    # 200 us / (5.6 us - 0.86 us) = 42.2 tokens.
    assert "A restore is faster from 42 tokens on." in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_a_model_that_computes_faster_than_it_loads_is_told_no(case: Callable[[str], Any]) -> None:
    report = case("b10_obr_no.json")
    document = answer(
        "--kv-bytes-per-token", str(report["bytes_per_token"]), "--tokens", str(report["prompt"]),
        "--bandwidth", f"{report['h2d_gbps']}GB/s", "--us-per-token", f"{report['prefill_tok_s']}tok/s",
    )  # fmt: skip
    point = document["points"][0]
    assert point["load_s"] * 1e3 == pytest.approx(report["restore_ms"], abs=0.05)
    assert point["recompute_s"] * 1e3 == pytest.approx(report["prefill_ms"], abs=0.05)
    assert document["verdict"] == report["verdict"] == "recompute"
    assert document["advice_codes"] == ["recompute"]
    # Every request also pays its store, which nothing pays back.
    assert point["store_s"] == pytest.approx(point["load_s"])
    assert document["restores_per_store"] is None
    assert document["break_even_tokens"] is None


def test_the_slowest_of_four_gpus_counts_and_is_named(case: Callable[[str], Any]) -> None:
    rates = case("c02_outlier.json")["h2d"]
    document = answer(
        "--kv-bytes-per-token", "24576", "--us-per-token", "5.6", "--bandwidth", ",".join(f"{r}GB/s" for r in rates)
    )
    assert document["bandwidth_gib_s"] == pytest.approx(14.2e9 / 2**30)
    assert document["bandwidth_limited_by"] == "rank 0, the slowest of 4"
    warned = [warning for warning in document["warnings"] if warning["code"] == "lagging-rank"]
    assert len(warned) == 1
    assert warned[0]["text"].startswith("rank 0 copies at 13.2 GiB/s")  # 14.2e9 / 2^30


def test_idle_and_loaded_verdicts_are_both_given(case: Callable[[str], Any]) -> None:
    report = case("c04_loaded.json")
    document = answer(
        "--kv-bytes-per-token", "131072", "--bandwidth", "1", "--tokens", str(report["tokens"]),
        "--us-per-token", f"{report['idle_tok_s']}tok/s", "--loaded-us-per-token", f"{report['loaded_tok_s']}tok/s",
    )  # fmt: skip
    # Load 131,072 B / 1 GiB/s = 122 us; prefill 1/7,009 = 142.7 us idle and 1/3,978 = 251.4 us loaded.
    assert document["points"][0]["obr"] == pytest.approx(1 - 122.07 / 142.67, abs=1e-3)
    assert document["loaded"]["points"][0]["obr"] == pytest.approx(1 - 122.07 / 251.38, abs=1e-3)
    assert "under load" in document["verdict_reason"]


def test_idle_and_loaded_engines_that_disagree_give_no_verdict() -> None:
    # Load 122 us; 100 us idle says no, 250 us loaded says yes.
    document = answer(
        "--kv-bytes-per-token", "131072", "--bandwidth", "1", "--us-per-token", "100", "--loaded-us-per-token", "250"
    )
    assert document["verdict"] == "unclear"
    assert document["points"][-1]["verdict"] == "recompute"
    assert document["loaded"]["verdict"] == "restore"


def test_a_hit_that_slows_the_whole_request_is_no_gain(case: Callable[[str], Any]) -> None:
    report = case("e06_spec.json")
    whole = f"{report['cold']['total']},{report['hit']['total']}"
    document = answer(
        "--kv-bytes-per-token", "24576", "--bandwidth", "26.6", "--us-per-token", "5.6", "--end-to-end", whole
    )
    assert document["points"][-1]["obr"] > 0.8  # prefill alone would say yes
    assert document["verdict"] == "recompute"
    assert "152.62 s instead of 98.99 s" in document["verdict_reason"]
    assert "speculative decoding" in document["verdict_reason"]


def test_the_load_gives_both_pressures_and_the_advice_of_table_12() -> None:
    load = ("--agents", "16", "--mean-prompt-tokens", "33234", "--gpu-kv-tokens", "343408")
    given = ("--kv-bytes-per-token", "24576", "--bandwidth", "26.6", "--us-per-token", "5.6", "--gpu", "H20")
    # gamma_G = 16 * 33,234 / 343,408 = 1.548; 15 * 33,234 * 24 KiB = 11.41 GiB: gamma_H 2.28 at 5 GiB, 0.57 at 20.
    small, large = answer(*given, *load, "--host-gib", "5"), answer(*given, *load, "--host-gib", "20")
    assert small["gamma_g"] == pytest.approx(1.548, abs=1e-3)
    assert small["gamma_h"] == pytest.approx(2.28, abs=0.01)
    assert small["advice_codes"] == ["condition-or-enlarge"]
    assert large["advice_codes"] == ["admit-all"]
    assert large["reference_tokens"] == 33234


def test_twice_the_tp_is_asked_with_the_models_own_heads() -> None:
    # Qwen3-30B has 4 KV heads: from TP 4 to 8 nothing is saved per rank, so with prefill halved less is gained.
    document = answer("--model", "Qwen3-Coder-30B-A3B", "--tp", "4", "--bandwidth", "26.6", "--us-per-token", "5.6")
    flips = {flip["name"]: flip for flip in document["flips"]}
    assert flips["twice the TP"]["obr"] == pytest.approx(1 - 0.8605 / 2.8, abs=1e-3)
    assert flips["fp8 KV instead of 16 bit"]["obr"] == pytest.approx(1 - 0.8605 / 2 / 5.6, abs=1e-3)


def test_a_saved_result_feeds_size(tmp_path: Path, root: Path) -> None:
    from eactl.model.obr import ObrResult

    path = tmp_path / "obr.json"
    result = eactl(*GIVEN, "--us-per-token", "5.6", "-o", str(path))
    assert result.returncode == 0
    saved = ObrResult.from_document(json.loads(path.read_text()))
    assert saved.us_per_token == pytest.approx(5.6)
    assert saved.load_s(33_000) == pytest.approx(33_000 * 24576 / (26.6 * 2**30))
    assert saved.recompute_s(33_000) == pytest.approx(0.1848)
    assert eactl(*GIVEN, "--us-per-token", "5.6", "-o", str(path)).returncode == 2  # never overwritten by accident


def test_fail_under_is_for_scripts() -> None:
    assert eactl(*GIVEN, "--us-per-token", "5.6", "--fail-under", "0.8").returncode == 0
    result = eactl(*GIVEN, "--us-per-token", "5.6", "--fail-under", "0.9", "--json")
    assert result.returncode == 1
    assert "OBR 0.85 is below 0.9" in result.stderr
    assert json.loads(result.stdout)["verdict"] == "restore"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bandwidth", "0", "--us-per-token", "5"), "not a rate: '0', --bandwidth"),
        (("--bandwidth", "fast", "--us-per-token", "5"), "not a rate: 'fast', --bandwidth"),
        (("--bandwidth", "-3", "--us-per-token", "5"), "not a rate: '-3', --bandwidth"),
        (("--bandwidth", "26", "--us-per-token", "0"), "not a prefill cost: '0', --us-per-token"),
        (("--bandwidth", "26", "--us-per-token", "5", "--tokens", "0"), "lengths must be 1 to"),
        (
            ("--bandwidth", "26", "--us-per-token", "5", "--tokens", "1e3"),
            "not a list of token counts: '1e3', --tokens",
        ),
        (("--bandwidth", "26", "--us-per-token", "5", "--overhead-us", "-1"), "-1.0 is out of range, --overhead-us"),
        (("--bandwidth", "26", "--us-per-token", "5", "--overhead-us", "nan"), "nan is out of range, --overhead-us"),
        (("--bandwidth", "26", "--us-per-token", "5", "--agents", "4"), "half of the load, --mean-prompt-tokens"),
        (("--bandwidth", "26", "--us-per-token", "5", "--host-gib", "4"), "no number of agents, --agents"),
        (("--bandwidth", "26", "--us-per-token", "5", "--method", "bound"), "the prefill cost is given and measured"),
        (
            ("--bandwidth", "26", "--method", "magic"),
            "unknown method 'magic', --method, choose from bound, layers, server",
        ),
        (("--bandwidth", "26", "--method", "server"), "no server, --url"),
        (("--bandwidth", "26"), "nothing to derive the prefill cost from, --model"),
        (("--bandwidth", "26", "--gpu", "MI300X"), "no datasheet for 'MI300X', --gpu"),
        (("--bandwidth", "26", "--us-per-token", "5", "--from-logs", "x.log"), "the rate is given twice"),
        (
            ("--bandwidth", "26", "--us-per-token", "5", "--end-to-end", "3"),
            "not two times in seconds: '3', --end-to-end",
        ),
    ],
)
def test_bad_options_are_named(arguments: tuple[str, ...], message: str) -> None:
    result = eactl("probe", "obr", "--kv-bytes-per-token", "24576", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_no_kv_size_is_an_error_before_anything_is_measured() -> None:
    result = eactl("probe", "obr", "--bandwidth", "26", "--us-per-token", "5")
    assert result.returncode == 2
    assert "no KV size, --model, --kv-bytes-per-token, give one of them" in result.stderr
