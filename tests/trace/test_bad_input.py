"""What is wrong with a file is said with file and line, and nothing partial passes for whole."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import EactlError, TraceError, UsageError
from eactl.trace import Call, TraceOptions, open_trace
from eactl.trace.readers import names

SKIP = TraceOptions(skip_bad_lines=True)
MOONCAKE = {"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}
BAILIAN = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 1,
           "type": "text", "turn": 1, "hash_ids": [5, 6, 7]}  # fmt: skip
LOOKUP = {"timestamp": 1.7e9, "request_id": "r", "model_name": "m", "chunk_size": 256, "seq_len": 600, "dtypes": [],
          "shapes": [], "chunk_hashes": ["0x1f", "0x2f"]}  # fmt: skip
HEADER = {
    "schema": "eactl.trace/1",
    "prompt": "blocks",
    "block_tokens": 16,
    "tokenizer": None,
    "source": "",
    "warnings": [],
}
BLOCKS = {"task": "a", "call": 0, "arrival_s": 0.0, "gap_s": None, "prompt": {"blocks": [1, 2], "tokens": 40},
          "output": {"tokens": 3}, "service_s": None, "salt": None, "model": None}  # fmt: skip
TOKENS = {**BLOCKS, "prompt": {"keep": 0, "append": [1, 2, 3]}, "output": {"append": [4]}}


def jsonl(path: Path, *lines: object) -> Path:
    """A file of these lines: bytes and strings as they are, other things as JSON."""
    path.write_bytes(b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines))
    return path


def read(path: Path, options: TraceOptions | None = None) -> list[Call]:
    return list(open_trace([path], options))


def refused(path: Path, options: TraceOptions | None = None) -> TraceError:
    with pytest.raises(TraceError) as caught:
        read(path, options)
    assert caught.value.hint, "an error says what to try"
    return caught.value


BAD_MOONCAKE: list[tuple[dict[str, Any], str]] = [
    ({"hash_ids": None}, "'hash_ids' is null, not a list"),
    ({"hash_ids": "12"}, "'hash_ids' is '12', not a list"),
    ({"hash_ids": {}}, "'hash_ids' is an object, not a list"),
    ({"hash_ids": [1, 2.0]}, "'hash_ids' holds 2.0, not a whole number"),
    ({"hash_ids": [1, "2"]}, "'hash_ids' holds '2', not a whole number"),
    ({"hash_ids": [1, None]}, "'hash_ids' holds null, not a whole number"),
    ({"hash_ids": [1, [2]]}, "'hash_ids' holds an array, not a whole number"),
    ({"hash_ids": [True, 2]}, "'hash_ids' holds true, not a whole number"),
    ({"hash_ids": [9, False]}, "'hash_ids' holds false, not a whole number"),
    ({"hash_ids": [-1, 2]}, "'hash_ids' holds the negative id -1"),
    ({"hash_ids": [1, 2**63]}, "'hash_ids' holds a number outside 64-bit range"),
    ({"hash_ids": [1]}, "'hash_ids' lists 1 where 600 tokens make 2 blocks of 512"),
    ({"hash_ids": []}, "'hash_ids' lists 0 where 600 tokens make 2 blocks of 512"),
    ({"hash_ids": [1, 2, 3]}, "'hash_ids' lists 3 where 600 tokens make 2 blocks of 512"),
    ({"input_length": "600"}, "'input_length' is '600', not a whole number"),
    ({"input_length": 600.0}, "'input_length' is 600.0, not a whole number"),
    ({"input_length": True}, "'input_length' is true, not a whole number"),
    ({"input_length": 0, "hash_ids": []}, "'input_length' is 0, expected at least 1"),
    ({"input_length": -600}, "'input_length' is -600, expected at least 1"),
    ({"input_length": 2**62}, "'input_length' is 4611686018427387904, expected at most 1099511627776"),
    ({"input_length": None}, "'input_length' is null, not a whole number"),
    ({"output_length": -1}, "'output_length' is -1, expected at least 0"),
    ({"output_length": "x"}, "'output_length' is 'x', not a whole number"),
    ({"timestamp": -1}, "'timestamp' is -1, a time before the start"),
    ({"timestamp": "0"}, "'timestamp' is '0', not a number"),
    ({"timestamp": True}, "'timestamp' is true, not a number"),
    ({"timestamp": 1e18}, "'timestamp' is 1e+18, a time beyond any clock; check its unit"),
    ({"timestamp": None}, "no 'timestamp'"),
    ({"session_id": ["s"]}, "'session_id' is an array, not a name"),
    ({"session_id": "s", "delay": -5}, "'delay' is -5, a time before the start"),
    ({"block_size": 64}, "'block_size' is 64, but the file is read with blocks of 512 tokens"),
    ({"block_size": "512"}, "'block_size' is '512', but the file is read with blocks of 512 tokens"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_MOONCAKE)
def test_a_bad_mooncake_line_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = jsonl(tmp_path / "m.jsonl", MOONCAKE, MOONCAKE, {**MOONCAKE, **change}, MOONCAKE)
    error = refused(path)
    assert error.what.startswith(reason)
    assert error.where == f"{path}:3"

    trace = open_trace([path], SKIP)
    assert [call.line for call in trace] == [1, 2, 4]
    (source,) = trace.sources
    assert (source.skipped, source.skipped_lines, source.calls) == (1, [3], 3)
    assert "1 bad line left out (line 3)" in source.warnings[-1].text


@pytest.mark.parametrize("missing", ["timestamp", "input_length", "hash_ids"])
def test_a_missing_field_is_named(tmp_path: Path, missing: str) -> None:
    line = {key: value for key, value in MOONCAKE.items() if key != missing}
    error = refused(jsonl(tmp_path / "m.jsonl", MOONCAKE, line))
    assert error.what == f"no {missing!r}"


BAD_LINES = [
    (b'{"timestamp": 0, "input_len\n', "not JSON"),
    (b"\x00\x00\x00\x00\n", "the line holds NUL bytes"),
    (orjson.dumps(MOONCAKE).replace(b"5", b"NaN", 1) + b"\n", "not JSON: NaN and Infinity are no JSON numbers"),
    (b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"\n", "JSON nested too deeply"),
    (b'{"a": "\xff\xfe"}\n', "not JSON"),
    (b"[1, 2]\n", "the line holds an array, not a JSON object"),
    (b"7\n", "the line holds a number, not a JSON object"),
    (b"null\n", "the line holds null, not a JSON object"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    path = jsonl(tmp_path / "m.jsonl", MOONCAKE, line, MOONCAKE)
    error = refused(path)
    assert error.what.startswith(reason)
    assert error.where == f"{path}:2"
    assert len(read(path, SKIP)) == 2


def test_a_cut_last_line_may_still_be_being_written(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "m.jsonl", MOONCAKE, MOONCAKE, orjson.dumps(MOONCAKE)[:30])
    error = refused(path)
    assert (error.what, error.where) == ("the last line is cut", f"{path}:3")
    assert "still be being written" in str(error)
    assert len(read(path, SKIP)) == 2


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_cut_compressed_data_is_an_error_unless_bad_lines_are_skipped(tmp_path: Path, pack: Any) -> None:
    lines = [{**MOONCAKE, "hash_ids": [at * 7919 % 1000, at]} for at in range(20_000)]  # several blocks of the codec
    whole = pack(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    path = tmp_path / "m.jsonl"
    path.write_bytes(whole[: len(whole) * 2 // 3])
    error = refused(path)
    assert "data is cut at its end" in error.what
    trace = open_trace([path], SKIP)
    assert 0 < len(list(trace)) < 20_000
    assert any(notice.code == "cut-file" for notice in trace.sources[0].warnings)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_damaged_compressed_data_is_an_error(tmp_path: Path, pack: Any) -> None:
    lines = [{**MOONCAKE, "hash_ids": [at * 7919 % 1000, at]} for at in range(2000)]
    packed = bytearray(pack(b"".join(orjson.dumps(line) + b"\n" for line in lines)))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = b"\xff" * 64
    path = tmp_path / "m.jsonl"
    path.write_bytes(packed)
    with pytest.raises(EactlError):
        read(path)


def test_other_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b"BZh91AY&SY" + bytes(100))
    assert refused(path).what == "bzip2 compression is not read here"


@pytest.mark.parametrize("contents", [b"", b"\n\n  \n", gzip.compress(b"")])
def test_an_empty_file_is_an_error(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(contents)
    assert refused(path).what == "the file is empty"


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.jsonl").what == "no such file"


def test_a_header_without_calls_is_an_error(tmp_path: Path) -> None:
    assert refused(jsonl(tmp_path / "t.jsonl", HEADER)).what == "the trace holds no calls"


def test_a_file_of_which_most_is_bad_is_not_skipped_through(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "m.jsonl", MOONCAKE, b"x\n", b"y\n")
    error = refused(path, SKIP)
    assert error.what.startswith(f"2 of 3 lines cannot be read, the first {path}:2: not JSON")


def test_the_list_of_skipped_lines_is_bounded(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "m.jsonl", *[MOONCAKE] * 3000, *[b"x\n"] * 2000)
    trace = open_trace([path], SKIP)
    assert len(list(trace)) == 3000
    (source,) = trace.sources
    assert source.skipped == 2000
    assert source.skipped_lines == list(range(3001, 4001))


BAD_NATIVE_HEADERS: list[tuple[dict[str, Any], str]] = [
    ({"schema": "eactl.trace/2"}, "schema 'eactl.trace/2' is not eactl.trace/1"),
    ({"prompt": "text"}, "'prompt' is 'text'"),
    ({"prompt": None}, "'prompt' is null"),
    ({"block_tokens": None}, "'block_tokens' is null"),
    ({"block_tokens": 0}, "'block_tokens' is 0"),
    ({"block_tokens": True}, "'block_tokens' is true"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_NATIVE_HEADERS)
def test_a_bad_native_header_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = jsonl(tmp_path / "t.jsonl", {**HEADER, **change}, BLOCKS)
    error = refused(path)
    assert error.what.startswith(reason)
    assert error.where == f"{path}:1"


BAD_NATIVE: list[tuple[str, list[dict[str, Any]], str]] = [
    ("blocks", [BLOCKS, BLOCKS], "call 0 of task 'a' is there twice"),
    ("blocks", [{**BLOCKS, "call": 3}, {**BLOCKS, "call": 1}], "call 1 of task 'a' comes after call 3"),
    ("blocks", [{**BLOCKS, "task": 7}], "'task' is 7, not a name"),
    ("blocks", [{**BLOCKS, "task": None}], "'task' is null, not a name"),
    ("blocks", [{**BLOCKS, "call": -1}], "'call' is -1, expected at least 0"),
    ("blocks", [{**BLOCKS, "arrival_s": -0.1}], "'arrival_s' is -0.1, a time before the start"),
    ("blocks", [{**BLOCKS, "gap_s": "1"}], "'gap_s' is '1', not a number"),
    ("blocks", [{**BLOCKS, "salt": {}}], "'salt' is an object, not a name"),
    ("blocks", [{**BLOCKS, "output": 3}], "'output' is 3, not an object or null"),
    ("blocks", [{**BLOCKS, "output": {}}], "no 'tokens'"),
    ("blocks", [{**BLOCKS, "prompt": [1]}], "'prompt' is an array, not an object"),
    ("blocks", [{**BLOCKS, "prompt": {"blocks": [1, 2, 3], "tokens": 40}}],
     "'blocks' lists 3 where 40 tokens make 2 full blocks of 16"),
    ("tokens", [TOKENS, TOKENS], "call 0 of task 'a' is there twice"),
    ("tokens", [{**TOKENS, "prompt": {"keep": 0, "append": []}}], "the prompt is empty"),
    ("tokens", [{**TOKENS, "prompt": {"keep": 1, "append": [1]}}],
     "call 0 of task 'a' keeps 1 tokens of call -1, which is not in the file"),
    ("tokens", [TOKENS, {**TOKENS, "call": 1, "prompt": {"keep": 5, "append": [1]}}],
     "'keep' is 5: the task's previous prompt and output hold 4 known tokens"),
    ("tokens", [TOKENS, {**TOKENS, "call": 2, "prompt": {"keep": 3, "append": [1]}}],
     "call 2 of task 'a' keeps 3 tokens of call 1, which is not in the file"),
    ("tokens", [{**TOKENS, "prompt": {"keep": 0, "append": [1.5]}}], "'append' holds 1.5, not a whole number"),
    ("tokens", [{**TOKENS, "prompt": {"keep": -1, "append": [1]}}], "'keep' is -1, expected at least 0"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "lines", "reason"), BAD_NATIVE)
def test_a_bad_native_line_is_named(tmp_path: Path, kind: str, lines: list[dict[str, Any]], reason: str) -> None:
    path = jsonl(tmp_path / "t.jsonl", {**HEADER, "prompt": kind}, *lines)
    error = refused(path)
    assert error.what == reason
    assert error.where == f"{path}:{len(lines) + 1}"


def test_calls_that_keep_tokens_of_a_skipped_line_are_skipped_too(tmp_path: Path) -> None:
    # call 1 is damaged, so what call 2 keeps of it is not known; call 3 starts afresh and is whole again
    lines = [
        TOKENS,
        b'{"task":"a","call":1,"prompt":{"keep":3,"app\n',
        {**TOKENS, "call": 2, "prompt": {"keep": 3, "append": [8]}},
        {**TOKENS, "call": 3, "prompt": {"keep": 0, "append": [5, 6]}},
        {**TOKENS, "call": 4, "prompt": {"keep": 3, "append": [7]}},
    ]
    path = jsonl(tmp_path / "t.jsonl", {**HEADER, "prompt": "tokens"}, *lines)
    trace = open_trace([path], SKIP)
    assert [(call.call, call.ids.tolist()) for call in trace] == [(0, [1, 2, 3]), (3, [5, 6]), (4, [5, 6, 4, 7])]
    assert trace.sources[0].skipped_lines == [3, 4]


BAD_BAILIAN: list[tuple[dict[str, Any], str]] = [
    ({"chat_id": 1}, "'chat_id' 1 is there twice"),
    ({"chat_id": "x"}, "'chat_id' is 'x', not a whole number"),
    ({"parent_chat_id": None}, "'parent_chat_id' is null, not a whole number"),
    ({"timestamp": None}, "'timestamp' is null, not a number"),
    ({"hash_ids": [1]}, "'hash_ids' lists 1 where 40 tokens make 3 blocks of 16"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_BAILIAN)
def test_a_bad_bailian_line_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = jsonl(tmp_path / "b.jsonl", BAILIAN, {**BAILIAN, "chat_id": 2, **change})
    error = refused(path)
    assert (error.what, error.where) == (reason, f"{path}:2")


def test_a_bailian_line_without_hashes_is_refused_with_the_reason(tmp_path: Path) -> None:
    line = {key: value for key, value in BAILIAN.items() if key != "hash_ids"}
    error = refused(jsonl(tmp_path / "b.jsonl", line))
    assert error.what.startswith("no 'hash_ids': the line has lengths only")


BAD_LOOKUPS: list[tuple[dict[str, Any], str]] = [
    ({"chunk_hashes": ["0x1f", 3]}, "'chunk_hashes' holds 3, not a hash like \"0x1f\""),
    ({"chunk_hashes": ["zz"]}, "'chunk_hashes' holds 'zz', not a hash like \"0x1f\""),
    ({"chunk_hashes": ["0x-1"]}, "'chunk_hashes' holds '0x-1', not a hash like \"0x1f\""),
    ({"chunk_hashes": None}, "'chunk_hashes' is null, not a list"),
    ({"chunk_hashes": ["0x1", "0x2", "0x3"]}, "'chunk_hashes' lists 3 chunks, but the request holds 2 full ones"),
    ({"seq_len": -4}, "'seq_len' is -4, expected at least 1"),
    ({"chunk_size": 64}, "'chunk_size' is 64, but the file began with 256"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_LOOKUPS)
def test_a_bad_lookup_line_is_named(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = jsonl(tmp_path / "l.jsonl", LOOKUP, {**LOOKUP, **change})
    error = refused(path)
    assert (error.what, error.where) == (reason, f"{path}:2")


SESSION = {"id": "s", "block_size": 64, "hash_id_scope": "local",
           "requests": [{"t": 0.0, "model": "m", "in": 130, "out": 1, "hash_ids": [1, 2]}]}  # fmt: skip
BAD_SESSIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"requests": [{"t": 0.0, "in": 130, "hash_ids": [1, 2, 3]}]},
     "'hash_ids' lists 3 where 130 tokens make 2 full blocks of 64", ":requests[0]"),
    ({"requests": [SESSION["requests"][0], {"t": -2, "in": 130, "hash_ids": [1, 2]}]},  # type: ignore[index]
     "'t' is -2, a time before the start", ":requests[1]"),
    ({"requests": [{"type": "subagent", "t": 9.0, "duration_ms": None, "agent_id": "a", "requests": [{"in": 1}]}]},
     "no 'hash_ids'", ":requests[0].requests[0]"),
    ({"requests": [{"type": "subagent", "t": None, "duration_ms": 5, "requests": []}]},
     "'t' is null, not a number", ":requests[0]"),
    ({"requests": None}, "'requests' is null, not a list of requests", ""),
    ({"requests": [7]}, "the line holds a number, not a JSON object", ":requests[0]"),
    ({"block_size": 0}, "'block_size' is 0, not a number of tokens", ""),
    ({"id": None}, "'id' names no session", ""),
    ({"hash_id_scope": "galaxy"}, "'hash_id_scope' is 'galaxy', neither local nor global", ""),
]  # fmt: skip


@pytest.mark.parametrize(("change", "reason", "where"), BAD_SESSIONS)
def test_a_bad_session_is_named(tmp_path: Path, change: dict[str, Any], reason: str, where: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**SESSION, **change, "totals": "hash_ids"}))
    error = refused(path, TraceOptions(format="kv-cache-tester"))
    assert (error.what, error.where) == (reason, f"{path}{where}")


def test_a_cut_session_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SESSION, indent=1)[:-20])
    error = refused(path)
    assert error.what == "the document is cut"
    assert error.where == f"{path}:12"


def test_two_sessions_in_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(SESSION) + "\n" + json.dumps(SESSION))
    assert refused(path).what == "more than one JSON document"


AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n"
BURST = b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"


@pytest.mark.parametrize(("contents", "who"), [(AZURE, "the Azure trace"), (BURST, "the BurstGPT trace")])
def test_counts_alone_are_refused_with_the_reason(tmp_path: Path, contents: bytes, who: str) -> None:
    path = tmp_path / "counts.csv"
    path.write_bytes(contents)
    error = refused(path)
    assert error.what.startswith(f"{who} holds token counts only, no prefix identity")
    assert error.hint is not None
    assert "record block hashes" in error.hint


def test_an_unknown_file_says_why_each_format_was_not_it(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"hello": "world"}\n')
    error = refused(path)
    for name in set(names()) - {"mooncake-delta"}:  # which looks like mooncake
        assert f"{name} (" in error.what


def test_a_file_of_no_kind_of_log_says_so_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    error = refused(path)
    assert "holds no JSON and no request lines" in error.what
    assert error.hint is not None and "--format" in error.hint


def test_an_unknown_format_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(jsonl(tmp_path / "m.jsonl", MOONCAKE), TraceOptions(format="moonshine"))
    assert caught.value.where == "--format"
    assert caught.value.hint is not None
    assert "mooncake" in caught.value.hint


def test_a_block_size_that_contradicts_the_trace_is_refused(tmp_path: Path) -> None:
    error = refused(jsonl(tmp_path / "t.jsonl", HEADER, BLOCKS), TraceOptions(block_tokens=32))
    assert error.what == "--block-tokens 32 contradicts the trace, which records 16"


@given(contents=st.binary(max_size=300), format_name=st.sampled_from([None, *names()]))
def test_no_bytes_whatever_cause_anything_but_an_error_of_ours(contents: bytes, format_name: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(contents)
        with pytest.raises(EactlError):
            read(path, TraceOptions(format=format_name, skip_bad_lines=True))


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)


@pytest.mark.parametrize(
    "line", [MOONCAKE, BAILIAN, LOOKUP, BLOCKS, TOKENS], ids=["mooncake", "bailian", "lookup", "blocks", "tokens"]
)
@given(data=st.data())
def test_no_value_in_any_field_causes_anything_but_an_error_of_ours(line: dict[str, Any], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(line)))
    value = json.loads(json.dumps(data.draw(values), allow_nan=True, default=str).replace("Infinity", "1e309"))
    header = [{**HEADER, "prompt": "tokens" if line is TOKENS else "blocks"}] if "task" in line else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        texts = [json.dumps(record) for record in (*header, line, {**line, key: value})]
        path.write_text("\n".join(texts) + "\n")
        try:
            calls = read(path)
        except EactlError:
            return
    unit = calls[0].unit_tokens
    assert all(len(call.ids) == call.prompt_tokens // unit for call in calls)


def test_a_broken_session_among_others_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SESSION))
    (tmp_path / "b.json").write_text(json.dumps({**SESSION, "id": "b"}, indent=1)[:-20])
    error = refused(tmp_path)
    assert error.what == "the document is cut"
    trace = open_trace([tmp_path], SKIP)
    assert [call.task for call in trace] == ["s"]
    assert [source.skipped for source in trace.sources] == [0, 1]
    assert trace.sources[1].warnings[0].text.startswith("the session was left out: the document is cut (")


def test_when_nothing_is_left_the_first_reason_is_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "m.jsonl", {**MOONCAKE, "hash_ids": None})
    error = refused(path, SKIP)
    assert error.what == f"nothing could be read, the first {path}:1: 'hash_ids' is null, not a list"


def test_a_request_left_out_of_a_session_is_named_as_the_error_would_name_it(tmp_path: Path) -> None:
    def request(at_s: float, *ids: int) -> dict[str, Any]:
        return {"t": at_s, "type": "s", "model": "m", "in": 64 * len(ids), "out": 1, "hash_ids": list(ids)}

    session = {"id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local",
               "requests": [request(0, 1), request(-4, 1, 2), request(9, 1, 2)]}  # fmt: skip
    path = tmp_path / "session.json"
    path.write_text(json.dumps(session))
    assert refused(path).where == f"{path}:requests[1]"
    trace = open_trace([path], SKIP)
    assert len(list(trace)) == 2
    assert "1 bad line left out (requests[1]): 't' is -4" in trace.sources[0].warnings[-1].text
