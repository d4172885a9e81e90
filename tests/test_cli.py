"""The contract that every command keeps: help, exit statuses, errors of one form, nothing half written."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import click
import pytest

import eactl as package
from eactl.cli import run
from tests.cli_runner import COMMAND, eactl, environment
from tools.commands import Entry, all_commands

COMMANDS = all_commands()
LEAVES = [entry for entry in COMMANDS if not entry.children]
MODEL = "Qwen3-Coder-30B-A3B"
FOOTPRINT = ("probe", "footprint", "--model", MODEL, "--tp", "8")


def named(entry: Entry) -> str:
    return entry.page_name


@pytest.mark.parametrize("entry", COMMANDS, ids=named)
def test_every_command_explains_itself(entry: Entry) -> None:
    done = eactl(*entry.name.split()[1:], "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: {entry.name} ")


@pytest.mark.parametrize("entry", LEAVES, ids=named)
def test_every_command_shows_an_example_of_itself(entry: Entry) -> None:
    examples = (entry.ctx.command.epilog or "").partition("Examples:")[2]
    assert re.search(rf"^ +(\S+=\S+ )?{entry.name} ", examples, re.MULTILINE), "give it an epilog with 'Examples:'"


@pytest.mark.parametrize("entry", COMMANDS, ids=named)
def test_help_holds_printable_text_only(entry: Entry) -> None:
    odd = {character for character in entry.help_text() if not character.isprintable() and character != "\n"}
    assert not odd, "in an epilog each \\b begins its own paragraph, after an empty line"


@pytest.mark.parametrize("entry", LEAVES, ids=named)
def test_every_option_says_what_it_does(entry: Entry) -> None:
    options = [parameter for parameter in entry.ctx.command.params if isinstance(parameter, click.Option)]
    assert not [option.name for option in options if not option.hidden and not (option.help or "").strip()]


@pytest.mark.parametrize("entry", LEAVES, ids=named)
def test_every_command_can_answer_in_json(entry: Entry) -> None:
    assert any("--json" in parameter.opts for parameter in entry.ctx.command.params)


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; from eactl.cli import run; run(['--help']); print(*sys.modules, sep='\\n', file=sys.stderr)"
    done = subprocess.run(
        [COMMAND[0], "-c", script], env=environment(), capture_output=True, text=True, check=True, encoding="utf-8"
    )
    loaded = {module.split(".")[0] for module in done.stderr.split()}
    heavy = {"numpy", "orjson", "matplotlib", "tabulate", "psutil", "zstandard", "torch", "vllm", "lmcache", "asyncio"}
    assert "click" in loaded
    assert not loaded & heavy


def test_it_tells_its_version() -> None:
    assert eactl("--version").stdout == f"eactl, version {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prob"], "no such command 'prob', did you mean 'probe'?, try 'eactl --help'"),
        (["probe", "footprnt"], "no such command 'footprnt', did you mean 'footprint'?, try 'eactl probe --help'"),
        (["--nope"], "No such option '--nope', try 'eactl --help'"),
        (["size"], "Missing option '--trace', try 'eactl size --help'"),
        ([*FOOTPRINT, "surplus"], "Got unexpected extra argument (surplus), try 'eactl probe footprint --help'"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_to_try(arguments: list[str], message: str) -> None:
    done = eactl(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"eactl: error: {message}\n"


def test_a_word_like_nothing_known_lists_the_commands() -> None:
    done = eactl("qqqq")
    assert done.returncode == 2
    assert f"choose from {', '.join(name for name, _ in COMMANDS[0].children)}" in done.stderr


def test_without_a_command_the_help_is_shown_as_an_error() -> None:
    done = eactl()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: eactl ")


def test_debugging_shows_where_an_error_came_from_and_nothing_else_does() -> None:
    arguments = ("probe", "footprint", "--model", "/nowhere")
    assert "Traceback" not in eactl(*arguments).stderr
    assert "Traceback" not in eactl(*arguments, env={"EACTL_DEBUG": "0"}).stderr
    assert "Traceback" in eactl(*arguments, env={"EACTL_DEBUG": "1"}).stderr


def test_a_fault_of_ours_is_one_readable_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("eactl.configs.resolve_model", broken)
    monkeypatch.delenv("EACTL_DEBUG", raising=False)
    assert run(list(FOOTPRINT)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(
        r"eactl: error: a fault in eactl itself \(ZeroDivisionError: .*\), please report it, .*\n", captured.err
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", [("--help",), FOOTPRINT, (*FOOTPRINT, "--json")], ids=["help", "table", "json"])
def test_a_full_disk_is_an_error_and_not_a_silent_0(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = eactl(*arguments, stdout=full)
    assert done.returncode == 2
    assert re.fullmatch(r"eactl: error: No space left on device, .*\n", done.stderr)


@pytest.mark.parametrize("arguments", [("--help",), FOOTPRINT, (*FOOTPRINT, "--json")], ids=["help", "table", "json"])
def test_a_reader_that_leaves_early_is_no_error(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = eactl(*arguments, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_json_is_one_document_that_begins_with_its_schema() -> None:
    done = eactl(*FOOTPRINT, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "eactl.footprint/1"


def test_an_output_file_is_never_overwritten_unasked(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert eactl(*FOOTPRINT, "--output", target).returncode == 0
    first = target.read_bytes()
    refused = eactl(*FOOTPRINT, "--output", target)
    assert refused.returncode == 2
    assert refused.stderr == f"eactl: error: {target} exists, --output, choose another name or add --force\n"
    assert eactl(*FOOTPRINT, "--output", target, "--force").returncode == 0
    assert target.read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_an_output_file_in_a_missing_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    done = eactl(*FOOTPRINT, "--output", tmp_path / "missing" / "out.json")
    assert done.returncode == 2
    assert f"{tmp_path / 'missing'} is not a directory, --output" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens and cannot be read")
@pytest.mark.parametrize("arguments", [("size", "--kv-bytes-per-token", "24576", "--trace")], ids=["size"])
def test_a_file_that_cannot_be_read_is_named(arguments: tuple[str, ...]) -> None:
    done = eactl(*arguments, "/proc/self/mem")  # even root reads no byte at offset 0 of it
    assert (done.returncode, done.stdout) == (2, "")
    assert "/proc/self/mem" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_stops_with_130_and_leaves_no_file_behind(tmp_path: Path) -> None:
    target = tmp_path / "big.jsonl"
    arguments = ("trace", "synth", "--profile", "swebench-openhands", "--output", str(target))
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    deadline = time.monotonic() + 60
    while (
        not any(path.stat().st_size for path in tmp_path.iterdir())
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)  # until it writes
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.splitlines()[-1:]) == (130, ["eactl: interrupted"])
    assert list(tmp_path.iterdir()) == []
