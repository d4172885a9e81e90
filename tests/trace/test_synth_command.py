"""``eactl trace synth`` from the command line, the files it writes, and the trace that comes with the package."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import orjson
import pytest
import zstandard

from eactl.cli import run
from eactl.cli.trace_synth import _EPILOG, _WORKLOAD
from eactl.trace import open_trace
from eactl.trace.call import Call
from eactl.trace.compress import compressed
from eactl.trace.native import NativeWriter
from eactl.trace.synth import PROFILES, SynthSettings, make_plan, synthesise
from tests.cli_runner import eactl

SMALL = ("--tasks", "3", "--calls-per-task", "4", "--system-tokens", "64", "--result-tokens", "50")


def synth(*arguments: object) -> int:
    return run(["trace", "synth", *map(str, arguments)])


def plain(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


def test_the_bundled_demo_is_what_its_header_says_made_it(root: Path, tmp_path: Path) -> None:
    bundled = root / "eactl" / "data" / "demo.jsonl.zst"
    assert bundled.stat().st_size < 200_000
    header = orjson.loads(plain(bundled).split(b"\n", 1)[0])
    assert header["source"] == "eactl trace synth --profile demo"
    again = tmp_path / "demo.jsonl.zst"
    assert run([*header["source"].split()[1:], "-o", str(again)]) == 0
    assert plain(again) == plain(bundled)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
@pytest.mark.parametrize("blocks", [(), ("--block-tokens", "16")])
def test_what_is_written_reads_back_as_the_same_calls(tmp_path: Path, suffix: str, blocks: tuple[str, ...]) -> None:
    path = tmp_path / f"made{suffix}"
    extra = ("--condense-every", "3", "--subagents", "1", "--seed", "4")
    assert synth(*SMALL, *extra, *blocks, "-o", path) == 0
    made = SynthSettings(tasks=3, calls_per_task=4, system_tokens=64, result_tokens=50, condense_every=3, subagents=1,
                         seed=4, block_tokens=16 if blocks else None)  # fmt: skip
    wanted = list(synthesise(make_plan(made)))
    read = list(open_trace([path]))
    assert len(read) == len(wanted)
    for one, other in zip(read, wanted, strict=True):
        assert (one.task, one.call, one.prompt_tokens, one.output_tokens) == (
            other.task, other.call, other.prompt_tokens, other.output_tokens,
        )  # fmt: skip
        assert (one.arrival_s, one.gap_s, one.service_s) == (other.arrival_s, other.gap_s, other.service_s)
        assert np.array_equal(one.ids, other.ids)
        assert blocks or np.array_equal(one.output_ids, other.output_ids)


def test_a_writer_that_is_not_told_what_prompts_keep_finds_it_out(tmp_path: Path) -> None:
    calls = list(
        synthesise(make_plan(SynthSettings(tasks=3, calls_per_task=6, condense_every=3, retokenised_share=0.5)))
    )
    told, found = tmp_path / "told.jsonl", tmp_path / "found.jsonl"
    for path, known in ((told, True), (found, False)):
        with path.open("wb") as stream:
            writer = NativeWriter(stream, "tokens", keeps_known=known)
            for call in calls:
                writer.write(call)
    assert found.read_bytes() == told.read_bytes()


def test_a_compressed_trace_depends_on_its_contents_alone(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst"):
        made = []
        for name in ("a", "another"):
            path = tmp_path / f"{name}{suffix}"
            with path.open("wb") as stream, compressed(stream, path) as packed:
                packed.write(b"the same lines\n")
            made.append(path.read_bytes())
        assert made[0] == made[1]


def test_a_call_of_unknown_output_is_written_as_null(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    with path.open("wb") as stream:
        NativeWriter(stream, "tokens").write(Call("t", 2, np.array([5, 6]), 1))
    assert orjson.loads(path.read_bytes().splitlines()[1])["output"] is None


def test_json_tells_what_was_made(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "made.jsonl"
    assert synth("--profile", "delegating", "--seed", 9, "-o", path, "--json") == 0
    document = json.loads(capsysbinary.readouterr().out)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "eactl.trace-synth/1"
    assert (document["profile"], document["settings"]["seed"]) == ("delegating", 9)
    assert (document["output"], document["output_bytes"]) == (str(path), path.stat().st_size)
    assert document["workload"]["calls"] == sum(1 for _ in open_trace([path]))


def test_a_dry_run_writes_nothing_and_tells_the_same_statistics(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "made.jsonl"
    assert synth(*SMALL, "-o", path, "--dry-run", "--json") == 0
    planned = json.loads(capsysbinary.readouterr().out)
    assert not path.exists()
    assert (planned["output"], planned["output_bytes"]) == (None, None)
    assert synth(*SMALL, "-o", path, "--json") == 0
    made = json.loads(capsysbinary.readouterr().out)
    assert planned["workload"] == made["workload"]
    assert planned["duration_s"] == made["duration_s"]


def test_the_published_workload_is_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl.zst"
    assert synth("--profile", "swebench-openhands", "-o", path) == 0
    assert path.stat().st_size < 1_000_000  # 147.1M prompt tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no file to write, --output, name one, or add --dry-run to see what it would be"),
        (("--profile", "dmeo", "--dry-run"), "no profile 'dmeo', --profile, did you mean 'demo'?"),
        (("--agents", "2", "--arrival-rate", "1", "--dry-run"), "give one of them"),
        (("--result-tokens", "9", "--mean-prompt-tokens", "9000", "--dry-run"), "give one of them"),
        (("--condense-every", "1", "--dry-run"), "--condense-every, give 2 or more, or 0 for never"),
        (("--json", "-o", "-"), "cannot share standard output, --json, --output -, give the trace a file"),
        (("--tasks", "100000000", "--dry-run"), "--tasks, give 1 to 2e+07"),
        (("--tasks", "1000000", "--dry-run"), "40,000,000 calls are more than can be planned at once"),
        (("--mean-prompt-tokens", "nan", "--dry-run"), "--mean-prompt-tokens"),
        (("--output-tokens", "1e12", "--dry-run"), "--output-tokens, give 1 to 1e+07"),
        (("-o", "no/such/folder/made.jsonl"), "no/such/folder is not a directory, --output, create it first"),
    ],
)
def test_wrong_use_says_what_where_and_what_to_try(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert synth(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("eactl: error: ")
    assert captured.out == ""


def test_an_existing_file_is_not_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text("mine")
    assert synth(*SMALL, "-o", path) == 2
    assert path.read_text() == "mine"
    assert "exists, --output, choose another name or add --force" in capsys.readouterr().err
    assert synth(*SMALL, "-o", path, "--force") == 0
    assert path.read_bytes().startswith(b'{"schema":"eactl.trace/1"')


def test_a_failed_writing_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: NativeWriter, call: Call) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(NativeWriter, "write", fail)
    assert synth(*SMALL, "-o", tmp_path / "made.jsonl") == 130
    assert list(tmp_path.iterdir()) == []


def test_a_trace_on_standard_output_is_the_trace_alone() -> None:
    done = eactl("trace", "synth", *SMALL, "-o", "-")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert lines[0]["schema"] == "eactl.trace/1"
    assert len(lines) == 1 + 12


def test_the_help_names_every_profile_and_the_real_defaults() -> None:
    defaults = SynthSettings()
    for name in PROFILES:
        assert f"  {name} " in _EPILOG
    for option, _, _, shown, _ in _WORKLOAD:
        value = getattr(defaults, option.removeprefix("--").replace("-", "_"), None)
        if shown and shown not in ("never", "all tasks"):
            assert float(shown) == value, option
        else:
            assert not value, option


def test_a_header_names_the_command_that_makes_the_same_trace(tmp_path: Path) -> None:
    first, again = tmp_path / "first.jsonl", tmp_path / "again.jsonl"
    assert synth("--gap-s", "0.25", *SMALL, "--profile", "chat", "--no-service-times", "-o", first) == 0
    source = orjson.loads(first.read_bytes().split(b"\n", 1)[0])["source"]
    assert source.startswith("eactl trace synth --profile chat ")
    assert run([*source.split()[1:], "-o", str(again)]) == 0
    assert again.read_bytes() == first.read_bytes()
