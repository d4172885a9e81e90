"""``eactl trace convert`` as a user meets it."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import orjson
import pytest
import zstandard

from tests.cli_runner import COMMAND, eactl, environment
from tests.trace import formats
from tests.trace.formats import Request
from tests.trace.textlogs import jsonl

REQUESTS = [
    Request(0, (1, 2, 3, 4, 5), 0, 3),
    Request(1, (1, 2, 9, 9), 500, 3),
    Request(0, (1, 2, 3, 4, 5, 6, 7), 2500, 3),
]


PLANTED = "xylophone"
OWN_SALT = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """Two requests of one session, the second twice as long; a word that must come out nowhere is everywhere."""
    prompts = [f"{PLANTED} 1 2 3 4 5 6 7 8 " * times for times in (8, 16)]
    return jsonl(tmp_path / f"{PLANTED}.jsonl", *(
        {"session": PLANTED, "turn": turn, "messages": [{"role": "user", "content": prompt}], "timestamp": 1.7e9 + turn}
        for turn, prompt in enumerate(prompts)
    ))  # fmt: skip


@pytest.fixture
def mooncake(tmp_path: Path) -> Path:
    return formats.write_mooncake(tmp_path, REQUESTS, 2)


def test_the_summary_goes_to_standard_error_and_the_trace_to_the_file(tmp_path: Path, mooncake: Path) -> None:
    result = eactl("trace", "convert", mooncake, "-o", tmp_path / "out.jsonl")
    size = (tmp_path / "out.jsonl").stat().st_size
    assert (result.returncode, result.stdout) == (0, "")
    # 5 + 4 + 7 prompt tokens
    assert result.stderr == (
        f"eactl: 3 calls of 2 tasks, 16 prompt tokens as blocks of 2 tokens, written to {tmp_path / 'out.jsonl'} "
        f"({size} B)\n"
    )


def test_the_suffix_chooses_the_compression(tmp_path: Path, mooncake: Path) -> None:
    for name in ("plain.jsonl", "zipped.jsonl.gz", "packed.jsonl.zst"):
        assert eactl("trace", "convert", mooncake, "-o", tmp_path / name).returncode == 0
    plain = (tmp_path / "plain.jsonl").read_bytes()
    assert gzip.decompress((tmp_path / "zipped.jsonl.gz").read_bytes()) == plain
    packed = zstandard.ZstdDecompressor().decompressobj().decompress((tmp_path / "packed.jsonl.zst").read_bytes())
    assert packed == plain


def test_json_says_what_was_read_and_written(tmp_path: Path, mooncake: Path) -> None:
    mooncake.write_text(mooncake.read_text() + "half a li")
    result = eactl("trace", "convert", mooncake, "-o", tmp_path / "out.jsonl", "--json", "--skip-bad-lines")
    assert result.returncode == 0
    document = json.loads(result.stdout)
    assert next(iter(document)) == "schema"
    assert document["schema"] == "eactl.convert/1"
    assert (document["calls"], document["tasks"], document["prompt_tokens"], document["output_tokens"]) == (3, 2, 16, 9)
    assert (document["prompt"], document["block_tokens"], document["format"]) == ("blocks", 2, "native")
    (source,) = document["sources"]
    assert (source["format"], source["skipped"], source["skipped_lines"]) == ("mooncake", 1, [4])
    assert [warning["code"] for warning in document["warnings"]] == ["lines-skipped"]
    assert "1 bad line left out (line 4): the last line is cut" in result.stderr


def test_a_pipeline_from_standard_input_to_standard_output(mooncake: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "trace", "convert", "-", "-o", "-", "--to", "mooncake"],
        input=mooncake.read_bytes(), capture_output=True, env=environment(), check=True,
    )  # fmt: skip
    lines = [orjson.loads(line) for line in result.stdout.splitlines()]
    assert [line["timestamp"] for line in lines] == [0, 500, 2500]
    assert [line["session_id"] for line in lines] == ["s0", "s1", "s0"]
    assert result.stderr.endswith(b"written to standard output\n")


def test_a_named_pipe_is_written_to_and_not_replaced(tmp_path: Path, mooncake: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    result = eactl("trace", "convert", mooncake, "-o", pipe)
    reader.join()
    assert result.returncode == 0
    assert pipe.is_fifo()
    assert len(heard[0].splitlines()) == 4


def test_an_existing_file_is_kept_without_force(tmp_path: Path, mooncake: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    result = eactl("trace", "convert", mooncake, "-o", out)
    assert result.returncode == 2
    assert result.stderr == f"eactl: error: {out} exists, --output, choose another name or add --force\n"
    assert out.read_text() == "mine"
    assert eactl("trace", "convert", mooncake, "-o", out, "--force").returncode == 0


def test_a_trace_can_replace_itself(mooncake: Path) -> None:
    assert eactl("trace", "convert", mooncake, "-o", mooncake, "--force").returncode == 0
    assert mooncake.read_text().startswith('{"schema":"eactl.trace/1"')


def test_nothing_is_left_behind_when_the_input_is_bad(tmp_path: Path, mooncake: Path) -> None:
    mooncake.write_text(mooncake.read_text() + '{"timestamp":-1}\n')
    result = eactl("trace", "convert", mooncake, "-o", tmp_path / "out.jsonl")
    assert result.returncode == 2
    assert result.stderr == (
        f"eactl: error: no 'input_length', {mooncake}:4, --skip-bad-lines leaves such lines out and counts them\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mooncake.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "-", "--json"], "standard output holds the trace, --json, write the trace to a file"),
        (["-o", "x.jsonl", "--no-sessions"], "only Mooncake lines have sessions, --no-sessions, add --to mooncake"),
        (["-o", "nowhere/x.jsonl"], "nowhere is not a directory, --output, create it first"),
        (["-o", "x.jsonl", "--format", "zip"], "no trace format 'zip', --format, known are native, mooncake, "),
        ([], "Missing option '-o' / '--output', try 'eactl trace convert --help'"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, mooncake: Path, arguments: list[str], message: str) -> None:
    result = eactl("trace", "convert", mooncake, *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"eactl: error: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--salt-file", "none"], "none cannot be read (No such file or directory), --salt-file, "
                                  "name a file that holds the salt"),
        (["--salt-file", "weak"], "a salt of 7 bytes can be guessed, --salt-file, make one of 16 bytes or more: "
                                  "openssl rand -hex 32"),
        (["--token-ids", "--to", "mooncake"], "Mooncake lines hold no token ids, --token-ids, leave out --to"),
        (["--token-ids", "--block-tokens", "16"], "token ids come in no blocks, --token-ids, leave out --block-tokens"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_with_a_text_log_is_said(
    tmp_path: Path, chat: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "weak").write_text("hunter2\n")
    result = eactl("trace", "convert", chat, "-o", "x.jsonl", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (2, f"eactl: error: {message}\n")
    assert not (tmp_path / "x.jsonl").exists()


def test_a_block_trace_has_no_token_ids_to_write(tmp_path: Path, mooncake: Path) -> None:
    result = eactl("trace", "convert", mooncake, "-o", tmp_path / "x.jsonl", "--token-ids")
    assert result.stderr == "eactl: error: a block trace holds no token ids, --token-ids, leave it out\n"


def test_an_empty_salt_in_the_environment_is_refused(tmp_path: Path, chat: Path) -> None:
    result = eactl("trace", "convert", chat, "-o", tmp_path / "x.jsonl", env={"EACTL_TRACE_SALT": ""})
    assert result.returncode == 2
    assert result.stderr.startswith("eactl: error: a salt of 0 bytes can be guessed, EACTL_TRACE_SALT, ")


@pytest.mark.parametrize(
    ("suffix", "arguments", "lines"),
    [(".jsonl", ["--to", "mooncake"], 2), (".jsonl.gz", ["--block-tokens", "1"], 3), (".jsonl.zst", [], 3)],
)
def test_no_word_of_a_text_log_is_in_the_file(
    tmp_path: Path, chat: Path, suffix: str, arguments: list[str], lines: int
) -> None:
    out = tmp_path / f"out{suffix}"
    result = eactl("trace", "convert", chat, "-o", out, *arguments, env={"EACTL_TRACE_SALT": OWN_SALT})
    assert result.returncode == 0, result.stderr
    data = out.read_bytes()
    assert PLANTED.encode() not in data
    if suffix == ".jsonl.gz":
        data = gzip.decompress(data)
    if suffix == ".jsonl.zst":
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert len(data.splitlines()) == lines
    for hidden in (PLANTED, OWN_SALT, str(tmp_path)):
        assert hidden.encode() not in data


def test_a_text_log_becomes_hashes_that_only_its_salt_gives_again(tmp_path: Path, chat: Path) -> None:
    (tmp_path / "salt").write_text(OWN_SALT + "\n")
    written: list[bytes] = []
    answers: list[tuple[str, str]] = []
    for arguments, variable in (
        ([], None), ([], None), (["--salt-file", tmp_path / "salt"], None), ([], OWN_SALT),
        (["--salt-file", tmp_path / "salt"], "another salt of 16 bytes or more"),
    ):  # fmt: skip
        env = {} if variable is None else {"EACTL_TRACE_SALT": variable}
        out = tmp_path / "out.jsonl"
        result = eactl("trace", "convert", chat, "-o", out, "--force", "--json", *arguments, env=env)
        document = json.loads(result.stdout)
        assert (document["prompt"], document["block_tokens"]) == ("blocks", 16)
        answers.append((document["ids"], document["salt"]))
        kept = "random, not kept" if document["salt"] == "random" else "yours"
        assert f"prompt tokens as salted hashes (salt: {kept}) of blocks of 16 tokens, written to" in result.stderr
        written.append(out.read_bytes())
    assert answers == [("salted", "random")] * 2 + [("salted", "given")] * 3
    assert written[2] == written[3] == written[4], "a file comes before the environment"
    assert len(set(written)) == 3


def test_token_ids_are_written_on_request_alone_and_said_to_be_readable(tmp_path: Path, chat: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = eactl("trace", "convert", chat, "-o", out, "--token-ids", "--json")
    document = json.loads(result.stdout)
    assert (document["ids"], document["prompt"], document["salt"]) == ("tokens", "tokens", "random")
    assert document["warnings"][-1]["code"] == "token-ids"
    assert "can be turned back into the text of the log (keep the trace as private as the log)" in result.stderr
    assert PLANTED.encode() not in out.read_bytes(), "names are hashed all the same"


def test_a_salt_that_nothing_needs_is_said_to_be_unused(tmp_path: Path, mooncake: Path) -> None:
    out = tmp_path / "out.jsonl"
    result = eactl("trace", "convert", mooncake, "-o", out, "--json", env={"EACTL_TRACE_SALT": OWN_SALT})
    document = json.loads(result.stdout)
    assert (document["ids"], document["salt"]) == ("recorded", None)
    assert [warning["code"] for warning in document["warnings"]] == ["salt-unused"]


def test_condenser_check_says_that_a_converted_log_holds_no_text(tmp_path: Path, chat: Path) -> None:
    eactl("trace", "convert", chat, "-o", tmp_path / "out.jsonl")
    result = eactl("condenser-check", tmp_path / "out.jsonl")
    assert result.returncode == 2
    assert result.stderr.startswith(f"eactl: error: a native trace holds no text, {tmp_path / 'out.jsonl'}, ")


def test_a_full_disk_is_said_without_a_traceback(mooncake: Path) -> None:
    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full here")
    result = eactl("trace", "convert", mooncake, "-o", "/dev/full")
    assert result.returncode == 2
    assert result.stderr.startswith("eactl: error: No space left on device")
    assert Path("/dev/full").is_char_device()


def test_every_block_trace_beside_the_checkout_converts(tmp_path: Path, shared_data: Path) -> None:
    for source in (shared_data / "mooncake", shared_data / "kv-cache-tester"):
        out = tmp_path / f"{source.name}.jsonl.zst"
        result = eactl("trace", "convert", source, "-o", out, "--json")
        assert result.returncode == 0, result.stderr
        first = json.loads(result.stdout)
        again = json.loads(eactl("trace", "convert", out, "-o", tmp_path / "again.jsonl", "--json", "--force").stdout)
        totals = ("calls", "tasks", "prompt_tokens", "output_tokens", "block_tokens")
        assert [again[name] for name in totals] == [first[name] for name in totals]


def test_known_counts_of_the_public_sessions(tmp_path: Path, shared_data: Path) -> None:
    # 23 sessions, of which 0403 and 0427 are one conversation; 936 requests with those of the 7 sub-agents
    result = eactl("trace", "convert", shared_data / "kv-cache-tester", "-o", tmp_path / "all.jsonl", "--json")
    document = json.loads(result.stdout)
    assert (len(document["sources"]), document["calls"], document["tasks"]) == (23, 936, 23 + 7)
    (repeated,) = (source for source in document["sources"] if source["duplicate_of"])
    assert Path(repeated["path"]).name == "trace_0427.json"
    assert Path(repeated["duplicate_of"]).name == "trace_0403.json"


def test_an_interrupt_leaves_no_file_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "trace", "convert", "-", "-o", tmp_path / "out.jsonl"],
        env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stderr is not None
    line = b'{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}\n'
    process.stdin.write(line * 20_000)  # more than the pipe holds: the command is reading
    process.stdin.flush()
    while process.poll() is None:  # one that arrives just as a read begins is heard with the next, as on a terminal
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    errors = process.stderr.read()
    process.stdin.close()
    process.stderr.close()
    assert (process.returncode, errors.strip()) == (130, b"eactl: interrupted")
    assert list(tmp_path.iterdir()) == []
