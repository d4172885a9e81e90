"""What each format means: units of time, partial blocks, sub-agents, sessions, scopes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eactl.errors import TraceError
from eactl.trace import Call, TraceOptions, open_trace
from eactl.trace.stream import TraceStream
from tests.trace.formats import space, write_lines


def read(*paths: Path, **options: Any) -> tuple[list[Call], TraceStream]:
    trace = open_trace(paths, TraceOptions(**options))
    return list(trace), trace


# Mooncake


def test_mooncake_counts_milliseconds_and_drops_the_partial_block(tmp_path: Path) -> None:
    # 1,100 tokens at 512: two full blocks, the third id is of 76 tokens
    path = write_lines(
        tmp_path / "m.jsonl",
        [{"timestamp": 1500, "input_length": 1100, "output_length": 7, "hash_ids": [4, 5, 6]}],
    )
    (call,), _ = read(path)
    assert (call.arrival_s, call.ids.tolist(), call.unit_tokens) == (1.5, [4, 5], 512)
    assert (call.task, call.output_tokens, call.gap_s) == (None, 7, None)


def test_mooncake_with_block_size_sessions_and_delays(tmp_path: Path) -> None:
    lines = [
        {"timestamp": 0.0, "block_size": 64, "hash_ids": [1, 2, 3], "input_length": 192, "output_length": 50,
         "session_id": "s", "id": 7},
        {"block_size": 64, "hash_ids": [1, 2, 3, 4], "input_length": 200, "output_length": 5, "session_id": "s",
         "delay": 2500},
        {"timestamp": 9000, "block_size": 64, "hash_ids": [9], "input_length": 64, "session_id": 12, "model": "m",
         "salt": "t"},
    ]  # fmt: skip
    calls, trace = read(write_lines(tmp_path / "m.jsonl", lines))
    assert [(call.task, call.call, call.arrival_s, call.gap_s) for call in calls] == [
        ("s", 0, 0.0, None), ("s", 1, None, 2.5), ("12", 0, 9.0, None),
    ]  # fmt: skip
    assert (calls[2].model, calls[2].salt, calls[2].output_tokens) == ("m", "t", None)
    assert (trace.unit_tokens, trace.sources[0].tasks, trace.sources[0].output_tokens) == (64, 2, None)


def test_dynamos_field_names_are_read_as_mooncakes(tmp_path: Path) -> None:
    lines = [
        {"created_time": 1000, "input_tokens": 600, "output_tokens": 3, "hash_ids": [1, 2], "session_id": "a"},
        {"delay_ms": 50, "input_tokens": 700, "output_tokens": 3, "hash_ids": [1, 3], "session_id": "a"},
    ]
    calls, _ = read(write_lines(tmp_path / "m.jsonl", lines))
    assert [(call.arrival_s, call.gap_s, call.prompt_tokens) for call in calls] == [(1.0, None, 600), (None, 0.05, 700)]


def test_a_clock_that_goes_back_is_reported_and_the_order_kept(tmp_path: Path) -> None:
    lines = [{"timestamp": at, "input_length": 1, "hash_ids": [0]} for at in (5000, 3000, 8000, 1000)]
    calls, trace = read(write_lines(tmp_path / "m.jsonl", lines))
    assert [call.arrival_s for call in calls] == [5, 3, 8, 1]
    assert [notice.text for notice in trace.sources[0].warnings] == [
        "timestamps go back 2 times; the order of the file was kept"
    ]


def incremental_rows(sessions: int, turns: int) -> list[dict[str, Any]]:
    """Rows as AIPerf writes them: a session's first line is whole, the others hold only what they add."""
    rows: list[dict[str, Any]] = []
    fresh = 1000
    for session in range(sessions):
        rows.append({"session_id": f"s{session}", "input_length": 40, "output_length": 8,
                     "hash_ids": [1, 2, 50 + session], "timestamp": session, "block_size": 16})  # fmt: skip
        for _ in range(turns - 1):
            fresh += 2
            rows.append({"session_id": f"s{session}", "input_length": 20, "output_length": 4,
                         "hash_ids": [fresh, fresh + 1], "delay": 5.0, "block_size": 16})  # fmt: skip
    return rows


def test_rows_that_hold_only_what_a_turn_adds_are_not_taken_for_prompts(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "aiperf.jsonl", incremental_rows(3, 5))
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.what.startswith("12 of 12 follow-up turns are shorter")
    assert caught.value.hint == "--format mooncake-delta adds the turns of a session up"


def test_incremental_rows_add_up_to_whole_prompts(tmp_path: Path) -> None:
    # 40 tokens, then 40 + 8 output + 20 new = 68, then 68 + 4 + 20 = 92
    path = write_lines(tmp_path / "aiperf.jsonl", incremental_rows(2, 3))
    calls, trace = read(path, format="mooncake-delta")
    assert [(call.task, call.call, call.prompt_tokens) for call in calls] == [
        ("s0", 0, 40), ("s0", 1, 68), ("s0", 2, 92), ("s1", 0, 40), ("s1", 1, 68), ("s1", 2, 92),
    ]  # fmt: skip
    assert trace.sources[0].prompt_tokens == 2 * (40 + 68 + 92)
    first, second, third = (call.ids.tolist() for call in calls[:3])
    assert first == [1, 2]  # the partial third block is dropped
    assert second[:2] == first and third[: len(second)] == second
    assert (len(second), len(third)) == (68 // 16, 92 // 16)
    assert not set(second[2:]) & set(calls[4].ids.tolist())  # sessions share their first prompt only


# Bailian


def bailian(chat: int, parent: int, at: float, ids: list[int], tokens: int) -> dict[str, Any]:
    return {"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": tokens, "output_length": 2,
            "type": "text", "turn": 1, "hash_ids": ids}  # fmt: skip


def test_bailian_counts_seconds_and_follows_parents_to_the_root(tmp_path: Path) -> None:
    lines = [
        bailian(3, -1, 0.25, [1, 2], 32),
        bailian(5, 3, 1.5, [1, 2, 7], 40),
        bailian(9, 77, 2.0, [4], 16),  # its parent lies before the window
        bailian(11, 5, 3.0, [1, 2, 8, 9], 64),
        bailian(12, 77, 4.0, [4, 5], 32),  # a sibling of chat 9
    ]
    calls, trace = read(write_lines(tmp_path / "b.jsonl", lines))
    assert [(call.task, call.call, call.arrival_s) for call in calls] == [
        ("3", 0, 0.25), ("3", 1, 1.5), ("77", 0, 2.0), ("3", 2, 3.0), ("77", 1, 4.0),
    ]  # fmt: skip
    assert calls[1].ids.tolist() == [1, 2]  # 40 tokens are two full blocks of 16
    assert not trace.sources[0].chained


@pytest.mark.parametrize("ids", [[1, 2], [1, 2, 3]])
def test_bailian_may_list_the_partial_block_or_not(tmp_path: Path, ids: list[int]) -> None:
    (call,), _ = read(write_lines(tmp_path / "b.jsonl", [bailian(1, -1, 0.0, ids, 40)]))
    assert call.ids.tolist() == [1, 2]


# kv-cache-tester


def request(at: float, ids: list[int], model: str = "big", **more: Any) -> dict[str, Any]:
    return {"t": at, "type": "s", "model": model, "in": 64 * len(ids) + 10, "out": 5, "hash_ids": ids, **more}


def session(path: Path, requests: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text(
        json.dumps({"id": path.stem, "block_size": 64, "hash_id_scope": "local", "requests": requests, **more})
    )
    return path


def test_a_sub_agent_ends_at_its_t_and_is_a_task_of_its_own(tmp_path: Path) -> None:
    # ended at 100 s after 60 s, so it began at 40 s; its requests lie at 40 and 65 s
    path = session(tmp_path / "trace.json", [
        request(0.0, [1, 2], api_time=4.0, think_time=0.0),
        request(30.0, [1, 2, 3], api_time=2.0, think_time=26.0),
        {"t": 100.0, "type": "subagent", "agent_id": "agent_001", "subagent_type": "Explore", "duration_ms": 60000,
         "requests": [request(0.0, [8], "small"), request(25.0, [8, 9], "small")]},
        request(110.0, [1, 2, 3, 4], think_time=8.0),
    ])  # fmt: skip
    calls, trace = read(path)
    assert [(call.task, call.call, call.arrival_s, call.model) for call in calls] == [
        ("trace", 0, 0.0, "big"), ("trace", 1, 30.0, "big"), ("trace/agent_001", 0, 40.0, "small"),
        ("trace/agent_001", 1, 65.0, "small"), ("trace", 2, 110.0, "big"),
    ]  # fmt: skip
    assert [(call.gap_s, call.service_s) for call in calls[:2]] == [(None, 4.0), (26.0, 2.0)]
    assert trace.sources[0].tasks == 2


def test_calls_of_parent_and_sub_agent_come_in_order_of_time(tmp_path: Path) -> None:
    path = session(tmp_path / "trace.json", [
        request(0.0, [1]),
        {"t": 50.0, "type": "subagent", "agent_id": "a", "duration_ms": 45000,
         "requests": [request(0.0, [8]), request(9.0, [9])]},
        {"t": 50.2, "type": "subagent", "agent_id": "b", "duration_ms": 45200, "requests": [request(3.0, [7])]},
        request(60.0, [1, 2]),
    ])  # fmt: skip
    calls, _ = read(path)
    assert [(call.task, call.arrival_s) for call in calls] == [
        ("trace", 0.0), ("trace/a", 5.0), ("trace/b", 8.0), ("trace/a", 14.0), ("trace", 60.0),
    ]  # fmt: skip


def test_a_background_sub_agent_counts_from_its_launch_and_says_so(tmp_path: Path) -> None:
    path = session(tmp_path / "trace.json", [
        request(0.0, [1]),
        {"t": 20.0, "type": "subagent", "agent_id": "a", "duration_ms": None, "status": "async_launched",
         "requests": [request(0.0, [8]), request(7.0, [8, 9])]},
    ])  # fmt: skip
    calls, trace = read(path)
    assert [call.arrival_s for call in calls] == [0.0, 20.0, 27.0]
    assert [notice.code for notice in trace.sources[0].warnings] == ["subagent-start-unknown"]


def test_a_sub_agent_of_a_sub_agent_is_a_task_of_its_own(tmp_path: Path) -> None:
    inner = {"t": 10.0, "type": "subagent", "agent_id": "b", "duration_ms": 4000, "requests": [request(1.0, [5])]}
    path = session(tmp_path / "trace.json", [
        request(0.0, [1]),
        {"t": 30.0, "type": "subagent", "agent_id": "a", "duration_ms": 20000, "requests": [request(0.0, [4]), inner]},
    ])  # fmt: skip
    calls, _ = read(path)
    # a began at 10; b ended 10 s later after 4 s, so it began at 16; its request came 1 s after that
    assert [(call.task, call.arrival_s) for call in calls] == [("trace", 0.0), ("trace/a", 10.0), ("trace/a/b", 17.0)]


def test_ids_local_to_a_file_are_never_shared_and_global_ones_are(tmp_path: Path) -> None:
    one = session(tmp_path / "one.json", [request(0.0, [1, 2])])
    two = session(tmp_path / "two.json", [request(1.0, [1, 2, 3])])
    calls, _ = read(one, two)
    assert space(calls[0]) != space(calls[1])
    one = session(tmp_path / "one.json", [request(0.0, [1, 2])], hash_id_scope="global")
    two = session(tmp_path / "two.json", [request(1.0, [1, 2, 3])], hash_id_scope="global")
    calls, _ = read(one, two)
    assert space(calls[0]) == space(calls[1])


def test_the_same_conversation_under_another_id_is_reported(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        requests = [request(0.0, [1, 2]), request(5.0, [1, 2, 3 + (name == "b")])]
        session(tmp_path / f"{name}.json", requests)
    calls, trace = read(tmp_path)
    assert len(calls) == 6
    assert [source.duplicate_of for source in trace.sources] == [None, None, str(tmp_path / "a.json")]
    calls, trace = read(tmp_path, drop_duplicates=True)
    assert {call.task for call in calls} == {"a", "b"}
    assert [source.calls for source in trace.sources] == [2, 2, 0]


def test_a_block_size_behind_the_requests_is_found(tmp_path: Path) -> None:
    path = tmp_path / "late.json"
    many = [
        {"t": float(at), "in": 32, "out": 1, "hash_ids": [at], "model": "m", "note": "x" * 200} for at in range(3000)
    ]
    path.write_text(json.dumps({"requests": many, "id": "late", "hash_id_scope": "local", "block_size": 32}))
    calls, trace = read(path, format="kv-cache-tester")
    assert (len(calls), trace.sources[0].unit_tokens, calls[0].unit_tokens) == (3000, 32, 32)


# LMCache


def lookup(at: float, request_id: str, hashes: list[str], tokens: int) -> dict[str, Any]:
    return {"timestamp": at, "request_id": request_id, "model_name": "m", "chunk_size": 256, "seq_len": tokens,
            "dtypes": ["torch.bfloat16"], "shapes": [[2, 48, 256, 512]], "chunk_hashes": hashes}  # fmt: skip


HASH = "0x" + "ab" * 24 + "{:016x}"


def test_lookups_count_from_the_first_one_over_all_files(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "lookup_hashes_1.jsonl", [lookup(1.7e9 + 9, "b", [HASH.format(1)], 300)])
    two = write_lines(tmp_path / "lookup_hashes_2.jsonl", [
        lookup(1.7e9 + 2, "a", [HASH.format(1), HASH.format(2)], 600), lookup(1.7e9 + 12, "c", [HASH.format(1)], 257),
    ])  # fmt: skip
    calls, trace = read(one, two)
    assert [(call.arrival_s, call.prompt_tokens) for call in calls] == [(0.0, 600), (7.0, 300), (10.0, 257)]
    assert len({space(call) for call in calls}) == 1  # a hash is the same in every file of one server
    assert calls[0].ids[0] == calls[1].ids[0] == calls[2].ids[0]
    assert (calls[0].output_tokens, calls[0].task, calls[0].model) == (None, None, "m")
    # 2 × 48 layers × 256 tokens × 512 × 2 bytes per chunk of 256 tokens
    assert trace.sources[0].kv_bytes_per_token_rank == 2 * 48 * 512 * 2


def test_what_the_lookup_log_cannot_tell_is_said(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "l.jsonl", [lookup(1.0, "r", ["0x1f"], 300), lookup(2.0, "r", ["0x1f"], 310)])
    _, trace = read(path)
    assert [notice.code for notice in trace.sources[0].warnings] == ["salt-not-recorded", "repeated-lookups"]


def test_a_chunk_that_was_not_looked_up_is_unlike_any_other(tmp_path: Path) -> None:
    # 512 tokens are two chunks, but a connector that reserves the last token looks up one
    path = write_lines(tmp_path / "l.jsonl", [lookup(1.0, "r", ["0x1f"], 512), lookup(2.0, "s", ["0x1f"], 512)])
    calls, _ = read(path)
    assert calls[0].ids[0] == calls[1].ids[0]
    assert calls[0].ids[1] != calls[1].ids[1]


# native


def native(path: Path, kind: str, calls: list[dict[str, Any]], **header: Any) -> Path:
    first = {"schema": "eactl.trace/1", "prompt": kind, "block_tokens": 16 if kind == "blocks" else None,
             "tokenizer": None, "source": "", "warnings": [], **header}  # fmt: skip
    empty = {"arrival_s": None, "gap_s": None, "output": None, "service_s": None, "salt": None, "model": None}
    return write_lines(path, [first, *({**empty, **call} for call in calls)])


def test_keep_counts_the_previous_prompt_and_its_output(tmp_path: Path) -> None:
    path = native(tmp_path / "t.jsonl", "tokens", [
        {"task": "a", "call": 0, "prompt": {"keep": 0, "append": [1, 2, 3]}, "output": {"append": [4, 5]}},
        {"task": "b", "call": 0, "prompt": {"keep": 0, "append": [1]}},
        {"task": "a", "call": 1, "prompt": {"keep": 5, "append": [6]}, "output": {"tokens": 9}},
        {"task": "a", "call": 2, "prompt": {"keep": 4, "append": [7, 8]}, "output": {"append": [9]}},
        {"task": "a", "call": 3, "prompt": {"keep": 7, "append": []}},
    ])  # fmt: skip
    calls, _ = read(path)
    assert [call.ids.tolist() for call in calls] == [
        [1, 2, 3], [1], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8], [1, 2, 3, 4, 7, 8, 9],
    ]  # fmt: skip
    assert [call.keep for call in calls] == [0, 0, 5, 4, 7]
    assert [call.output_tokens for call in calls] == [2, None, 9, 1, None]


def test_notices_of_a_header_are_passed_on(tmp_path: Path) -> None:
    path = native(tmp_path / "t.jsonl", "blocks", [{"task": "a", "call": 0, "prompt": {"blocks": [1], "tokens": 20}}],
                  warnings=[{"code": "approximate", "text": "tokens are estimated", "hint": ""}, 7])  # fmt: skip
    _, trace = read(path)
    assert [notice.as_dict() for notice in trace.sources[0].warnings] == [
        {"code": "approximate", "text": "tokens are estimated", "hint": ""}
    ]
    assert not trace.sources[0].has_times


def test_token_ids_mean_the_same_in_files_of_one_tokenizer(tmp_path: Path) -> None:
    call = {"task": "a", "call": 0, "prompt": {"keep": 0, "append": [1, 2]}}
    one = native(tmp_path / "1.jsonl", "tokens", [call], tokenizer="qwen")
    two = native(tmp_path / "2.jsonl", "tokens", [call], tokenizer="qwen")
    other = native(tmp_path / "3.jsonl", "tokens", [call], tokenizer="llama")
    calls, _ = read(one, two, other)
    assert space(calls[0]) == space(calls[1]) != space(calls[2])
    assert [call.task for call in calls] == ["a", "a#2", "a#3"]  # tasks of different files are never one
