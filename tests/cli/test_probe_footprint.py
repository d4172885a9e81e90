"""``eactl probe footprint`` as a user runs it: tables, the document, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli_runner import eactl

QWEN = ("probe", "footprint", "--model", "Qwen3-Coder-30B-A3B")


def test_the_document_holds_the_contract_and_adds_up() -> None:
    result = eactl(*QWEN, "--tp", "8", "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (0, "")
    assert next(iter(document)) == "schema"
    assert document["schema"] == "eactl.footprint/1"
    assert document["bytes_per_token_rank"] == 24576  # 48 layers x 1 head x (128 + 128) x 2 B
    assert document["growing_bytes_per_token_rank"] == 24576
    assert document["bytes_per_token_total"] == 8 * 24576
    assert document["unique_bytes_per_token"] == 4 * 24576
    assert document["chunk_bytes_rank"] == 24 << 20  # 1,024 tokens of 24 KiB
    assert [(g["kind"], g["count"], g["bytes_per_token_rank"]) for g in document["layers"]] == [("full", 48, 24576)]
    assert any("max_local_cpu_size is a size per rank" in note for note in document["notes"])
    assert document["warnings"] == []


def test_several_tps_make_a_table_and_the_first_one_leads() -> None:
    document = json.loads(eactl(*QWEN, "--tp", "8,1,3", "--json").stdout)
    assert document["tp"] == 8
    assert [(entry["tp"], entry.get("bytes_per_token_rank")) for entry in document["by_tp"]] == [
        (1, 98304), (3, None), (8, 24576),
    ]  # fmt: skip
    assert document["by_tp"][1]["error"] == "32 query heads do not divide by 3"


def test_the_table_for_people() -> None:
    result = eactl(*QWEN, "--tp", "1,2,4,8,3")
    assert result.returncode == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["8", "24", "192", "96", "24", "MiB", "192", "MiB"] in rows
    assert ["1", "96", "96", "96", "96", "MiB", "96", "MiB"] in rows
    assert "Not TP 3: 32 query heads do not divide by 3." in result.stdout
    assert result.stdout.startswith("Qwen3-Coder-30B-A3B: one token's KV takes 96 KiB on one rank.\n")


def test_windowed_layers_are_told_apart(tmp_path: Path) -> None:
    result = eactl("probe", "footprint", "--model", "gpt-oss-120b")
    assert "one token's KV takes 72 KiB on one rank, 36 KiB of it growing with the context" in result.stdout
    assert "Sizing uses all attention layers" in result.stdout.replace("\n  ", " ")


def test_no_table_is_wider_than_a_terminal() -> None:
    for model in ("gpt-oss-120b", "DeepSeek-V3.2", "Qwen3.5-35B-A3B", "MiMo-V2-Flash"):
        result = eactl("probe", "footprint", "--model", model, "--tp", "1,2,4,8")
        assert max(map(len, result.stdout.splitlines())) <= 120, model


def test_a_size_that_is_not_known_is_null_with_a_warning() -> None:
    document = json.loads(eactl("probe", "footprint", "--model", "Nemotron-H-56B", "--json").stdout)
    assert document["state_bytes_per_sequence_rank"] is None
    assert [warning["code"] for warning in document["warnings"]] == ["state-size-unknown"]


def test_chunks_may_have_another_size() -> None:
    document = json.loads(eactl(*QWEN, "--chunk-tokens", "256", "--json").stdout)
    assert document["chunk_bytes_rank"] == 256 * 98304


def test_the_list_of_bundled_names() -> None:
    text = eactl("probe", "footprint", "--list")
    assert text.returncode == 0
    assert any(line.split()[:2] == ["Qwen3-Coder-30B-A3B", "96"] for line in text.stdout.splitlines())
    document = json.loads(eactl("probe", "footprint", "--list", "--json").stdout)
    shapes = {shape["name"]: shape for shape in document["models"]}
    assert shapes["Llama-3.1-8B"]["bytes_per_token"] == 131072
    assert shapes["DeepSeek-V4-Flash"]["bytes_per_token"] is None


def test_a_saved_document_is_not_replaced_unasked(tmp_path: Path) -> None:
    target = tmp_path / "footprint.json"
    assert eactl(*QWEN, "-o", target).returncode == 0
    assert json.loads(target.read_text())["bytes_per_token_rank"] == 98304
    again = eactl(*QWEN, "-o", target)
    assert again.returncode == 2
    assert again.stderr == f"eactl: error: {target} exists, --output, choose another name or add --force\n"
    assert eactl(*QWEN, "-o", target, "--force").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model, --model, name one, or see the bundled names with --list"),
        (
            ["--model", "Qwen3-32B", "--tp", "0"],
            "not a number of ranks: '0', --tp, write it as 8, or 1,2,4,8 for a table",
        ),
        (["--model", "Qwen3-32B", "--tp", "two"], "not a number of ranks: 'two'"),
        (["--model", "Qwen3-32B", "--tp", "1,,2"], "not a number of ranks: '1,,2'"),
        (["--model", "Qwen3-32B", "--tp", "-8"], "not a number of ranks: '-8'"),
        (["--model", "Qwen3-32B", "--tp", "9999999"], "not a number of ranks: '9999999'"),
        (["--model", "Qwen3-32B", "--tp", "4096"], "4096 ranks, --tp, give a whole number from 1 to 1024"),
        (["--model", "Qwen3-32B", "--tp", "6"], "Qwen3-32B cannot run on 6 ranks: 64 query heads do not divide by 6"),
        (["--model", "Qwen3-32B", "--kv-dtype", "fp7"], "unknown KV data type 'fp7', --kv-dtype, choose from auto"),
        (["--model", "DeepSeek-V4-Flash"], "unsupported config: compress_ratios"),
        (["--model", "qwen3-32x"], "no model 'qwen3-32x' here"),
        (["--model", "Qwen3-32B", "--chunk-tokens", "0"], "--chunk-tokens"),
    ],
)
def test_bad_usage_is_one_line_with_the_option_and_exit_status_2(arguments: list[str], message: str) -> None:
    result = eactl("probe", "footprint", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("eactl: error: ")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{")
    result = eactl("probe", "footprint", "--model", path)
    assert result.returncode == 2
    assert f"{path}:1" in result.stderr


def test_help_shows_examples() -> None:
    result = eactl("probe", "footprint", "--help")
    assert result.returncode == 0
    assert "eactl probe footprint --model ./my-model --tp 1,2,4,8" in result.stdout
