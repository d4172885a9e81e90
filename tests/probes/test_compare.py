"""Two machines side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eactl.errors import UsageError
from eactl.report.probe_compare import compare_rows
from tests.cli_runner import eactl


def saved(tmp_path: Path, name: str, *arguments: str) -> Path:
    path = tmp_path / name
    result = eactl("probe", "obr", "--kv-bytes-per-token", "24576", *arguments, "-o", path)
    assert result.returncode == 0, result.stderr
    return path


def test_every_figure_of_both_and_which_is_better(tmp_path: Path) -> None:
    a = saved(tmp_path, "h20.json", "--gpu", "H20", "--bandwidth", "26.6", "--us-per-token", "5.6")
    b = saved(tmp_path, "h800.json", "--gpu", "H800", "--bandwidth", "53.2", "--us-per-token", "2.8")
    document = json.loads(eactl("probe", "compare", a, b, "--json").stdout)
    rows = {row["name"]: row for row in document["rows"]}
    assert (rows["bandwidth_gib_s"]["ratio"], rows["bandwidth_gib_s"]["better"]) == (pytest.approx(2), "b")
    assert (rows["us_per_token"]["ratio"], rows["us_per_token"]["better"]) == (pytest.approx(0.5), "b")
    # Twice the link and half the prefill: the same benefit.
    assert rows["limit_obr"]["better"] is None
    assert rows["flop_per_host_byte"]["better"] is None  # neither more nor less is good in itself
    assert rows["obr_1024"]["a"] == pytest.approx(rows["obr_1024"]["b"])
    text = eactl("probe", "compare", a, b).stdout
    assert "h20.json" in text
    assert "h800.json" in text
    assert "Answers: h20.json restore, h800.json restore." in text


def test_a_difference_within_the_noise_has_no_winner() -> None:
    a = {"schema": "eactl.h2d/1", "bandwidth_gib_s": 50.0}
    assert compare_rows(a, {**a, "bandwidth_gib_s": 50.5})[0].better is None  # 1 %
    assert compare_rows(a, {**a, "bandwidth_gib_s": 55.0})[0].better == "b"


def test_a_figure_that_one_side_lacks_is_shown_without_a_winner() -> None:
    a = {"schema": "eactl.h2d/1", "bandwidth_gib_s": 50.0, "concurrent_gib_s": None}
    rows = {row.name: row for row in compare_rows(a, {**a, "concurrent_gib_s": 40.0})}
    assert (rows["concurrent_gib_s"].a, rows["concurrent_gib_s"].better) == (None, None)


def test_results_of_different_kinds_are_not_compared() -> None:
    with pytest.raises(UsageError, match="different kinds"):
        compare_rows({"schema": "eactl.h2d/1"}, {"schema": "eactl.obr/1"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\0\0", "not JSON"),
        (b"[]", "not a saved probe result"),
        (b'{"schema": "x"}', "not a saved"),
    ],
)
def test_files_that_are_no_results_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    good = saved(tmp_path, "a.json", "--bandwidth", "26.6", "--us-per-token", "5.6")
    bad = tmp_path / "b.json"
    bad.write_bytes(content)
    result = eactl("probe", "compare", good, bad)
    assert result.returncode == 2
    assert message in result.stderr
    assert "b.json" in result.stderr
    assert eactl("probe", "compare", good, tmp_path / "absent.json").returncode == 2
