"""Text logs that are cut, damaged or strange: read on by the rules, or refused with file and line."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import EactlError, TraceError
from eactl.trace import TraceOptions
from eactl.trace.readers.texttable import TEXT_READERS
from tests.trace.textlogs import SKIP, Transcript, calls, chats, jsonl, stream, text, texts, warnings_of

HELLO = {"session": "s", "messages": [{"role": "user", "content": "hello"}]}
NAMES = [reader.name for reader in TEXT_READERS]


def refused(path: Path, options: TraceOptions | None = None) -> TraceError:
    with pytest.raises(TraceError) as caught:
        chats(path, options=options)
    assert caught.value.hint, "an error says what to try"
    return caught.value


def test_a_cut_last_line_of_a_live_log_is_left_out_with_a_warning(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", HELLO, HELLO, orjson.dumps(HELLO)[:-9])
    assert len(chats(path)) == 2
    assert "cut-line" in warnings_of(path)


@pytest.mark.parametrize(("line", "what"), [
    (b"\x00" * 40 + b"\n", "the line holds NUL bytes"), (b"[1, 2]\n", "the line holds an array, not a JSON object"),
    (b"{broken}\n", "not JSON"), (b'{"session": "s", "turn": 1}\n', "no 'messages'"),
    (b'{"session": "s", "messages": "hi"}\n', "'messages' is no list"),
    (b'{"session": "s", "messages": [5]}\n', "a message is no JSON object"),
    (b"[" * 5000 + b"\n", "nested too deeply"),
])  # fmt: skip
def test_a_bad_line_in_the_middle_is_refused_with_its_place_or_skipped_and_counted(
    tmp_path: Path, line: bytes, what: str
) -> None:
    path = jsonl(tmp_path / "a.jsonl", HELLO, line, HELLO)
    error = refused(path)
    assert what in error.what and error.where == f"{path}:2"
    opened = stream(path, options=SKIP)
    assert len(list(opened)) == 2
    (source,) = opened.sources
    assert (source.skipped, source.skipped_lines) == (1, [2])
    assert "lines-skipped" in {notice.code for notice in source.warnings}


def test_mostly_bad_lines_are_refused_even_when_skipping(tmp_path: Path) -> None:
    assert "3 of 4 lines" in refused(jsonl(tmp_path / "a.jsonl", HELLO, b"x\n", b"x\n", b"x\n"), SKIP).what


def test_an_empty_file_is_refused_and_passed_over_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert "the file is empty" in refused(tmp_path / "empty.jsonl").what
    jsonl(tmp_path / "full.jsonl", HELLO)
    opened = stream(tmp_path)
    assert len(list(opened)) == 1
    assert any("empty.jsonl" in notice.text for notice in opened.warnings)


def test_a_file_of_no_format_lists_what_is_known(tmp_path: Path) -> None:
    error = refused(jsonl(tmp_path / "a.jsonl", {"some": "thing"}))
    for name in ("claude-code", "chat-jsonl", "codex"):
        assert name in error.what


def test_mixed_sessions_in_one_file_are_told_apart(tmp_path: Path) -> None:
    one = Transcript(tmp_path / "one.jsonl", session="one", prefix="a")
    two = Transcript(tmp_path / "two.jsonl", session="two", prefix="b")
    for log in (one, two):
        log.user("go")
        log.assistant(f"m-{log.path.stem}", text("ok"), (1, 0, 10, 1))
    mixed = [line for pair in zip(one.lines, two.lines, strict=True) for line in pair]
    requests = chats(jsonl(tmp_path / "mixed" / "a.jsonl", *mixed))
    assert [request.session for request in requests] == ["one", "two"]
    assert [texts(request) for request in requests] == [["go"], ["go"]]


def test_compressed_logs_are_read_and_a_cut_one_up_to_its_cut(tmp_path: Path) -> None:
    data = b"".join(
        orjson.dumps({**HELLO, "turn": turn, "noise": str(hash(str(turn)))}) + b"\n" for turn in range(3000)
    )
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.jsonl.zst").write_bytes(zstandard.compress(data))
    assert len(chats(tmp_path / "a.jsonl.gz")) == len(chats(tmp_path / "a.jsonl.zst")) == 3000
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(data)[:-3000])
    assert 0 < len(chats(tmp_path / "cut.jsonl.gz")) < 3000
    assert "cut-file" in warnings_of(tmp_path / "cut.jsonl.gz")


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + (orjson.dumps(HELLO) + b"\r\n") * 2)
    assert len(chats(path)) == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data", [
    b"{}\n", b"[]\n", b"null\n", b"5\n", b"{", b"\x00\x00", b"PK\x03\x04", b"\xff\xfe{}", b'{"messages": null}\n',
    b'{"type": "assistant", "message": null}\n{"type": "user", "message": 5}\n', b"[[[[[[[[", b'{"spans": [5]}',
    b'{"trace": {}, "observations": [5, {}]}', b'{"trajectory": [5], "history": [5]}', b'{"samples": [5], "eval": {}}',
    b'{"steps": [5, {"source": "agent", "metrics": 5}]}', b'{"history": [5, {"action": {}}], "instance_id": 1}\n',
    b'{"responses_create_params": {"input": 5}, "response": {"output": [5]}}\n', b"Received request x: prompt: 'a\n",
    b"Receive: obj=GenerateReqInput(input_ids=[a]\n", b'{"type": "session", "payload": 5, "message": {"role": 5}}\n',
    b'{"type": "message", "message": {"role": "assistant", "content": 5, "usage": {"input": "x"}}}\n',
    b'{"type": "response_item", "payload": {"type": 5, "content": {}}}\n', b'{"type": "llm.request", "event": 5}\n',
    b'{"type": "context.append_loop_event", "event": {"type": "tool.call", "args": 5}}\n',
    b'{"timestamp": "x", "input": 5, "output": null, "session_id": []}\n', b'{"body": {"messages": [{}]}}\n',
    b'{"messages": [{"role": "user", "content": [{"type": "tool_result"}, 5, null, {"type": 5}]}]}\n',
    b'{"messages": [{"role": {}, "content": {"a": 1}, "tool_calls": [5, {"function": 5}]}], "tools": 5, "usage": 5}\n',
])  # fmt: skip
def test_every_reader_survives_what_is_not_its_format(tmp_path: Path, name: str, data: bytes) -> None:
    """Forced upon the wrong file, a reader refuses or finds what it finds; nothing but our own errors comes out."""
    path = tmp_path / "a"
    path.write_bytes(data)
    survives(path, name)


def survives(path: Path, name: str) -> None:
    for skip in (False, True):
        options = TraceOptions(format=name, skip_bad_lines=skip)
        for read in (chats, calls):
            with suppress(EactlError):
                read(path, options=options)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=5)
    | st.sampled_from(["user", "assistant", "message", "text", "tool_use", "tool_result", "GENERATION", "model"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "role", "content", "message", "messages", "payload", "usage", "id", "event", "input",
                         "output", "tools", "uuid", "parentUuid", "sessionId", "timestamp", "history", "steps", "spans",
                         "attributes", "observations", "samples", "trajectory", "response", "body", "name", "info"]),
        inner, max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip


KEYS = ["type", "message", "payload", "messages", "event", "data", "uuid", "sessionId", "parentUuid", "history",
        "instance_id", "spans", "trace", "observations", "eval", "samples", "steps", "input", "responses_create_params",
        "response", "trajectory"]  # fmt: skip
RECORDS = st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), min_size=1, max_size=4)


@given(records=RECORDS, name=st.sampled_from(NAMES))
def test_no_json_whatever_makes_a_reader_fail(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], name: str
) -> None:
    survives(jsonl(tmp_path_factory.getbasetemp() / "fuzz.jsonl", *records), name)


def test_absurd_token_counts_are_no_measurement(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {**HELLO, "usage": {"prompt_tokens": 2**62, "completion_tokens": 2}})
    (call,) = calls(path)
    assert call.prompt_tokens < 100


QUOTED = "vLLM (PR 9023): `INFO 10-01 18:43:27 logger.py:36] Received request cmpl-1: prompt: 'Hi', params: None`\n"


def test_a_document_that_quotes_a_log_line_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "FORMATS.md").write_text(
        f"# Formats\n\n{QUOTED}\nSGLang: `[t] Receive: obj=GenerateReqInput(rid='1')`\n"
    )
    error = refused(tmp_path / "FORMATS.md")
    assert "holds no JSON and no request lines" in error.what
    (tmp_path / "vllm.log").write_text("2026-01-01T00:00:00Z stdout F " + QUOTED.split("`")[1] + "\n")
    assert len(chats(tmp_path / "vllm.log")) == 1


def test_files_of_a_folder_that_hold_no_text_are_named_together(tmp_path: Path) -> None:
    block = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    for name in "abcde":
        jsonl(tmp_path / f"{name}.jsonl", {**block, "timestamp": ord(name)})
    assert "all 5 files are traces that hold no text" in refused(tmp_path).what
    jsonl(tmp_path / "text.jsonl", HELLO)
    notices = [notice for notice in stream(tmp_path).warnings if notice.code == "no-text"]
    assert len(notices) == 1
    assert "a.jsonl" in notices[0].text and "and 2 more: mooncake traces without text" in notices[0].text
