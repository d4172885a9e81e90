"""``eactl size`` from the command line: its answer, and what it says to input that has none."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from eactl.cli import run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Five agents of four 512-token blocks each take six turns: a cyclic scan of 20 blocks."""
    path = tmp_path / "cyclic.jsonl"
    lines = [
        {"timestamp": 1000 * (5 * turn + agent), "input_length": 2049, "output_length": 9, "session_id": f"s{agent}",
         "hash_ids": [10 * agent, 10 * agent + 1, 10 * agent + 2, 10 * agent + 3, 1000 + 10 * turn + agent]}
        for turn in range(6) for agent in range(5)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def size(*arguments: object) -> int:
    return run(["size", *map(str, arguments)])


def test_the_answer_ends_in_one_sentence_with_the_size_and_the_next_command(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 20 blocks of 512 tokens at 2 MiB per token are 20 GiB; one rank
    assert size("--trace", trace, "--kv-bytes-per-token", 2 << 20, "--host-memory", "1TiB") == 0
    out = capsys.readouterr().out
    last = " ".join(out.strip().split("\n\n")[-1].split())
    assert last.startswith("Give the tier 20 GiB per rank, 20 GiB in total (one rank): it restores")
    assert "eactl serve" in last or "eactl" in last
    assert "Recorded order" in out


def test_json_is_one_document_that_starts_with_its_schema(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert size("--trace", trace, "--kv-bytes-per-token", 2 << 20, "--capacity", "15,20GiB,512MiB", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document.items())) == ("schema", "eactl.size/1")
    [order] = document["orders"]
    assert [point["host_gib"] for point in order["curve"]] == [0, 0.5, 15, 20]
    # 25 later turns of 4 blocks, none of which survives in 15 GiB
    assert [point["coverage_tokens"] for point in order["curve"]] == [0, 0, 0, 25 * 4 * 512]
    assert document["recommendation"]["host_gib_rank"] == 20
    assert document["sources"][0]["calls"] == 30


def test_a_file_takes_the_document_and_is_not_replaced_without_force(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "size.json"
    arguments = ("--trace", trace, "--kv-bytes-per-token", 2 << 20, "-o", target)
    assert size(*arguments) == 0
    assert json.loads(target.read_text())["schema"] == "eactl.size/1"
    assert size(*arguments) == 2
    assert "exists" in capsys.readouterr().err
    assert size(*arguments, "--force") == 0


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_a_plot_is_written_whole_in_the_form_its_name_asks_for(trace: Path, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    target = tmp_path / f"curve.{suffix}"
    assert size("--trace", trace, "--kv-bytes-per-token", 2 << 20, "--agents", 3, "--plot", target) == 0
    data = target.read_bytes()
    if suffix == "png":
        assert data.startswith(b"\x89PNG")
    elif suffix == "svg":
        assert ET.fromstring(data).tag.endswith("svg")  # noqa: S314 - our own file
    else:
        page = data.decode()
        assert "Give the tier" in page
        assert not re.search(r'(src|href)="(https?:)?//', page)  # nothing is loaded from elsewhere


def test_one_directory_and_several_files_are_read_as_one_workload(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "second.jsonl"
    copy.write_text(trace.read_text().replace('"s', '"t'))
    assert size("--trace", trace, copy, "--kv-bytes-per-token", 100, "--json") == 0
    both = json.loads(capsys.readouterr().out)["workload"]
    assert size("--trace", tmp_path, "--kv-bytes-per-token", 100, "--json") == 0
    assert json.loads(capsys.readouterr().out)["workload"] == both
    assert both["calls"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "neither a model nor a KV size, --model, --kv-bytes-per-token, give one of them"),
        (["--model", "x", "--kv-bytes-per-token", "1"], "both a model and a KV size"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--kv-bytes-per-token", "0"], "--kv-bytes-per-token"),
        (["--kv-bytes-per-token", "1", "--capacity", "5,five"], "not a size: 'five', --capacity"),
        (["--kv-bytes-per-token", "1", "--capacity", "-5"], "not a size: '-5', --capacity"),
        (["--kv-bytes-per-token", "1", "--target", "95"], "target 95.0 is not a share, --target"),
        (["--kv-bytes-per-token", "1", "--order", "random"], "no order 'random', --order"),
        (["--kv-bytes-per-token", "1", "--agents", "0"], "--agents"),
        (["--kv-bytes-per-token", "1", "--plot", "curve.pdf"], "no plot format for 'curve.pdf', --plot"),
        (["--kv-bytes-per-token", "1", "--host-memory", "lots"], "not a size: 'lots', --host-memory"),
        (["--kv-bytes-per-token", "1", "--format", "telex"], "telex"),
        (["--kv-bytes-per-token", "1", "--tokens", "1"], "No such option"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_read(
    arguments: list[str], message: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert size("--trace", trace, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("eactl: error: ")
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"\x00" * 4096, "the format is not known"),
        (b'{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]}\n', ":1"),
        (b'{"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": null}\n', ":1"),
    ],
)
def test_input_that_cannot_be_sized_is_refused_with_its_place(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert size("--trace", path, "--kv-bytes-per-token", 1) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert str(path) in captured.err


def test_skipped_lines_are_counted_and_named(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_text(trace.read_text() + '{"timestamp": 1, "input_len')
    assert size("--trace", trace, "--kv-bytes-per-token", 100, "--skip-bad-lines", "--json") == 0
    captured = capsys.readouterr()
    [source] = json.loads(captured.out)["sources"]
    assert (source["skipped"], source["skipped_lines"]) == (1, [31])
    assert "31" in captured.err


def test_a_saved_obr_brings_seconds(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "obr.json"
    saved.write_text(json.dumps({
        "schema": "eactl.obr/1", "bytes_per_token_rank": 2 << 20, "bandwidth_gib_s": 20.0, "us_per_token": 1000.0,
        "overhead_us": 0.0, "quadratic_us_per_token2": 0.0,
    }))  # fmt: skip
    assert size("--trace", trace, "--kv-bytes-per-token", 2 << 20, "--obr", saved, "--json") == 0
    seconds = json.loads(capsys.readouterr().out)["seconds"]
    # 25 x 2,048 tokens: 51.2 s at 1 ms each; 100 GiB at 20 GiB/s are 5 s
    assert seconds == {"recompute_s": 51.2, "restore_s": 5.0, "saved_s": 46.2}


def test_a_file_that_is_no_obr_is_refused(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("{", "[]", "{}"):
        saved = tmp_path / "obr.json"
        saved.write_text(content)
        assert size("--trace", trace, "--kv-bytes-per-token", 1, "--obr", saved) == 2
        assert str(saved) in capsys.readouterr().err


def test_one_task_is_no_tasks_and_equal_bounds_are_one_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n')
    assert size("--trace", path, "--kv-bytes-per-token", 1 << 20) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Trace 1 task, 1 call, 600 prompt tokens, mean 600, longest 600; 0.0% stable since the last")


def test_sizes_of_thousands_of_gib_are_written_out(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 20 GiB at 2 MiB per token is 20,480 GiB at 2 GiB per token, which %.4g calls 2.048e+04
    assert size("--trace", trace, "--kv-bytes-per-token", 2 << 30) == 0
    out = capsys.readouterr().out
    assert "20,480" in out
    assert "e+0" not in out


def test_calls_recorded_twice_and_tasks_inferred_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n'
    path = tmp_path / "twice.jsonl"
    path.write_text(2 * line)
    assert size("--trace", path, "--kv-bytes-per-token", 1 << 20, "--json") == 0
    captured = capsys.readouterr()
    assert {"tasks-inferred", "repeated-calls"} <= {entry["code"] for entry in json.loads(captured.out)["warnings"]}
    assert "eactl: warning: 1 call repeats an earlier one: same time, same prompt" in captured.err


def test_files_without_times_are_said_to_follow_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = (
        '{"schema":"eactl.trace/1","prompt":"blocks","block_tokens":16,"tokenizer":null,"source":"x","warnings":[]}'
    )
    for name in "ab":
        call = {"task": name, "call": 0, "arrival_s": None, "gap_s": None, "prompt": {"blocks": [1], "tokens": 16},
                "output": None, "service_s": None, "salt": None, "model": None}  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text(f"{header}\n{json.dumps(call)}\n")
    assert size("--trace", tmp_path, "--kv-bytes-per-token", 1 << 20) == 0
    err = capsys.readouterr().err
    assert "the files hold no times: in recorded order they follow one another" in err
    assert "begin together" not in err
