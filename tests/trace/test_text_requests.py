"""Request logs: the plain JSONL, OpenAI-style logs, batches, LiteLLM payloads, bodies of Anthropic's API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import TraceError
from eactl.trace import open_trace
from eactl.trace.chat import RAW_ROLE, ChatRequest, Usage
from eactl.trace.chatforms import add_response_item, from_anthropic, from_responses, seconds, usage_of
from eactl.trace.readers.timeorder import TimeOrder
from tests.trace.textlogs import calls, chats, jsonl, roles, stream, texts, warnings_of

HELLO = [{"role": "user", "content": "hello"}]
INPUT_TEXT = {"type": "input_text", "text": "hello"}


def one(path: Path, record: object) -> Any:
    (request,) = chats(jsonl(path / "log.jsonl", record))
    return request


def test_the_plain_line_is_read_as_the_contract_says(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = one(tmp_path, {"session": "s", "turn": 3, "messages": HELLO, "tools": tools, "salt": "x", "model": "m",
                             "usage": {"prompt_tokens": 10, "cached_tokens": 4}, "unknown": {"key": 1}})  # fmt: skip
    assert (request.session, request.turn, request.salt, request.model) == ("s", 3, "x", "m")
    assert request.messages == HELLO and request.tools == tools
    assert request.usage == Usage(prompt_tokens=10, cached_tokens=4)
    assert request.exact and request.where.endswith("log.jsonl:1")


def test_turns_are_counted_where_they_are_not_recorded(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"session": name, "messages": HELLO} for name in "abab"))
    assert [(request.session, request.turn) for request in chats(path)] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.mark.parametrize("record", [
    {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": HELLO}},
    {"request": {"model": "m", "messages": HELLO}},
    {"request": {"body": {"model": "m", "messages": HELLO}}},
    {"call_type": "acompletion", "model": "m", "messages": HELLO, "startTime": 1.7e9, "endTime": 1.7e9 + 2},
    {"model": "m", "input": "hello"},
    {"model": "m", "input": [{"type": "message", "role": "user", "content": [INPUT_TEXT]}]},
])  # fmt: skip
def test_requests_are_found_wherever_they_lie(tmp_path: Path, record: dict[str, Any]) -> None:
    request = one(tmp_path, {**record, "session": "s"} if "input" in record else record)
    assert (texts(request), request.model) == (["hello"], "m")


def test_litellm_payloads_have_sessions_times_and_cached_tokens(tmp_path: Path) -> None:
    request = one(tmp_path, {
        "id": "1", "trace_id": "t-1", "model": "m", "messages": HELLO, "startTime": 1.7e9, "endTime": 1.7e9 + 2.5,
        "response": {"choices": [{"message": {"role": "assistant", "content": "hi"}}],
                     "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}}},
    })  # fmt: skip
    assert request.session == "t-1"
    assert request.service_s == 2.5
    assert request.usage.cached_tokens == 8
    assert request.response == {"role": "assistant", "content": "hi"}


def test_adapters_and_salts_separate_kv(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"session": "s", "messages": HELLO, "lora": "a", "cache_salt": "t1"},
        {"session": "s", "messages": HELLO, "lora_request": {"lora_name": "b"}, "extra_body": {"cache_salt": "t2"}},
    )
    requests = chats(path)
    assert [(request.adapter, request.salt) for request in requests] == [("a", "t1"), ("b", "t2")]
    assert len({(call.model, call.salt) for call in calls(path)}) == 2


def test_a_prompt_without_messages_is_taken_as_it_is(tmp_path: Path) -> None:
    request = one(tmp_path, {"prompt": "Once upon a time", "id": 0})
    assert request.messages == [{"role": RAW_ROLE, "content": "Once upon a time"}]
    request = one(tmp_path, {"prompt": [1, 2, 3], "prompt_token_ids": [1, 2, 3]})
    assert request.prompt_token_ids == [1, 2, 3]


def test_chat_template_options_of_the_request_are_kept(tmp_path: Path) -> None:
    request = one(tmp_path, {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}})
    assert request.template_options == {"enable_thinking": False}


def test_usage_alone_is_a_request_for_a_checker_but_not_for_a_sizer(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"session": "s", "turn": 0, "prompt_tokens": 50160, "cached_tokens": 28160})
    (request,) = chats(path)
    assert request.messages == [] and not request.exact
    assert request.usage == Usage(50160, 28160)
    with pytest.raises(TraceError, match="holds no prompts") as caught:
        calls(path)
    assert caught.value.hint is not None and "condenser-check" in caught.value.hint


def test_a_response_logged_twice_counts_once(tmp_path: Path) -> None:
    line = {"session": "s", "messages": HELLO, "response": {"id": "r-1", "choices": []}}
    path = jsonl(tmp_path / "a.jsonl", line, line, {**line, "response": {"id": "r-2"}})
    assert len(chats(path)) == 2
    assert "repeated-responses" in warnings_of(path)


def at(second: float, session: str = "s", **fields: Any) -> dict[str, Any]:
    return {"session": session, "messages": [{"role": "user", "content": f"{session}{second}"}],
            "timestamp": 1.7e9 + second, **fields}  # fmt: skip


def test_lines_out_of_time_order_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    """A log is written when requests end: one that took long stands behind others sent after it."""
    path = jsonl(tmp_path / "a.jsonl", at(5, "a"), at(1, "b"), at(3, "a"), at(3, "b"), at(3.5, "b"))
    requests = chats(path)
    assert [texts(request)[0] for request in requests] == ["b1", "a3", "b3", "b3.5", "a5"]
    assert [(request.session, request.turn) for request in requests] == [
        ("b", 0), ("a", 0), ("b", 1), ("b", 2), ("a", 1),
    ]  # fmt: skip
    assert warnings_of(path) == ["sorted-by-time"]
    assert [call.arrival_s for call in calls(path)] == [0.0, 2.0, 2.0, 2.5, 4.0]


def test_a_log_in_order_is_not_touched_and_a_line_without_a_time_stays_where_it_is(tmp_path: Path) -> None:
    lines = [at(1), {"session": "s", "messages": HELLO}, at(1), at(2)]
    path = jsonl(tmp_path / "a.jsonl", *lines)
    assert [request.where for request in chats(path)] == [f"{path}:{number}" for number in (1, 2, 3, 4)]
    assert warnings_of(path) == []


def test_an_export_that_is_newest_first_is_turned_round_within_a_second_too(tmp_path: Path) -> None:
    newest_first = [at(second, n=n) for n, second in enumerate((9, 9, 8, 7, 7, 7, 1))]
    path = jsonl(tmp_path / "a.jsonl", *newest_first)
    assert [request.where for request in chats(path)] == [f"{path}:{number}" for number in (7, 6, 5, 4, 3, 2, 1)]


def test_turns_that_lines_name_decide_over_times_and_file_order(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl", at(9, turn=0), at(5, turn=2), {**at(1), "timestamp": None, "turn": 1},
        at(2, "other", turn=3), at(3, "other", turn=3),
    )  # fmt: skip
    assert [request.turn for request in chats(path) if request.session == "s"] == [0, 1, 2]
    assert [texts(request) for request in chats(path) if request.session == "other"] == [["other2"], ["other3"]]
    assert "sorted-by-turn" in warnings_of(path)


@given(times=st.lists(st.integers(0, 30), max_size=40), window=st.integers(1, 3000))
def test_a_window_gives_every_request_once_and_in_order_but_for_the_late_ones(times: list[int], window: int) -> None:
    order = TimeOrder(window)
    requests = [ChatRequest("s", [], arrival_s=float(second), where=str(n)) for n, second in enumerate(times)]
    given = [each for request in requests for each in order.take(request, None, 100)] + list(order.rest())
    assert sorted(int(each.where) for each in given) == list(range(len(times)))
    found = [each.arrival_s or 0.0 for each in given]
    falls = sum(second < max(found[: n + 1]) for n, second in enumerate(found))
    assert order.late == falls
    assert [each.turn for each in given] == list(range(len(times)))
    if 100 * len(times) <= window:
        assert order.late == 0 and found == sorted(found)


def test_rotated_files_are_read_from_the_oldest_on(tmp_path: Path) -> None:
    jsonl(tmp_path / "log.jsonl", at(5), at(6))
    jsonl(tmp_path / "log.jsonl.1", at(1), at(2))
    assert [texts(request)[0] for request in chats(tmp_path)] == ["s1", "s2", "s5", "s6"]


def test_sessionless_requests_become_tasks_by_their_prefix(tmp_path: Path) -> None:
    more = [*HELLO, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]
    path = jsonl(
        tmp_path / "a.jsonl",
        {"messages": HELLO},
        {"messages": [{"role": "user", "content": "other"}]},
        {"messages": more},
    )
    opened = open_trace([path])
    from eactl.trace.workload import load_workload

    work = load_workload(opened)
    assert work.task.tolist() == [0, 1, 0]


# Anthropic's API

BODY = {
    "model": "claude-x", "max_tokens": 10,
    "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "Bash", "description": "run", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "user_1_account__session_0a1b2c3d-aaaa"},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"},
                                          {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"b": 1, "a": 2}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "out"},
                                     {"type": "text", "text": "well?"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("record", [
    BODY,
    {"request": {"timestamp": 1.7e9, "url": "https://h/v1/messages?beta=true", "headers": {}, "body": BODY},
     "response": {"timestamp": 1.7e9 + 2, "body": {"content": [{"type": "text", "text": "hi"}],
                                                   "usage": {"input_tokens": 3, "cache_read_input_tokens": 20}}}},
    {"requestId": "1", "timestamp": "2026-01-01T00:00:00Z", "endpoint": "/v1/messages", "headers": {}, "body": BODY,
     "response": {"statusCode": 200, "responseTime": 1500, "bodyText": '{"content":[{"type":"text","text":"hi"}]}'}},
])  # fmt: skip
def test_anthropic_bodies_become_the_chat_format(tmp_path: Path, record: dict[str, Any]) -> None:
    (request,) = chats(jsonl(tmp_path / "a.jsonl", record))
    assert stream(tmp_path / "a.jsonl").sources[0].format == "anthropic"
    assert roles(request) == ["system", "user", "assistant", "tool", "user"]
    assert request.session == "0a1b2c3d-aaaa"
    assert request.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"b":1,"a":2}', "in recorded order"
    assert request.messages[2]["reasoning_content"] == "hm"
    assert request.tools is not None and request.tools[0]["function"]["parameters"] == {"type": "object"}
    assert "cache_control" not in str(request.messages)
    assert request.exact
    if "response" in record:
        assert request.response is not None and request.response["content"] == "hi"
        assert request.service_s in (2.0, 1.5)


def test_moving_cache_marks_do_not_change_a_prompt(tmp_path: Path) -> None:
    plain = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    marked = [{"role": "user", "content": [{"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]}]
    assert from_anthropic(plain) == from_anthropic(marked)


def test_a_streamed_answer_is_put_together_with_its_counts(tmp_path: Path) -> None:
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 95}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "he"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "llo"}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "f"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "usage": {"output_tokens": 30}},
    ]  # fmt: skip
    import json

    raw = "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events) + "data: {cut"
    record = {"request": {"url": "/v1/messages", "body": BODY}, "response": {"body_raw": raw}}
    (request,) = chats(jsonl(tmp_path / "a.jsonl", record))
    assert request.usage == Usage(100, 95, None, 30)
    assert request.response is not None and request.response["content"] == "hello"
    assert request.response["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


def test_other_addresses_are_passed_over(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"request": {"url": "https://h/v1/messages", "body": BODY}},
        {"request": {"url": "https://h/v1/messages/count_tokens", "body": BODY}},
        {"request": {"url": "https://h/api/telemetry", "body": {"events": []}}},
    )
    assert len(chats(path)) == 1


# Shapes


@pytest.mark.parametrize(("value", "expected"), [
    (1.7e9, 1.7e9), (1.7e12, 1.7e9), (1.7e15, 1.7e9), ("1970-01-01T00:00:01Z", 1.0), ("1970-01-01T00:00:01.5Z", 1.5),
    ("1970-01-01T00:00:01.9799600", 1.97996), ("1970-01-01 01:00:01+01:00", 1.0), ("[trimmed]", None), (None, None),
    (True, None), (-5, None), ("", None), ("2026-13-45T99:99:99Z", None), (float("nan"), None), (float("inf"), None),
])  # fmt: skip
def test_times_are_seconds_whatever_their_unit(value: Any, expected: float | None) -> None:
    assert seconds(value) == (None if expected is None else pytest.approx(expected))


FOUR_FIFTHS = Usage(10, 8, None, 2)


@pytest.mark.parametrize(("record", "expected"), [
    ({"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}, FOUR_FIFTHS),
    ({"input_tokens": 10, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 8}}, Usage(10, 8, None, 2)),
    ({"input_tokens": 1, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 1}, Usage(10, 8, 1, None)),
    ({"prompt_tokens": 10, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 0}, Usage(10, 8, 0, None)),
    ({"promptTokenCount": 10, "candidatesTokenCount": 2, "cachedContentTokenCount": 8}, Usage(10, 8, None, 2)),
    ({"inputTokens": 1, "cacheReadInputTokens": 8, "cacheWriteInputTokens": 1, "outputTokens": 2}, Usage(10, 8, 1, 2)),
    ({"input_tokens": 0, "output_tokens": 0}, None), ({}, None), (None, None), ({"prompt_tokens": "10"}, None),
])  # fmt: skip
def test_prompt_counts_always_hold_what_came_from_the_cache(record: Any, expected: Usage | None) -> None:
    assert usage_of(record) == expected


def test_responses_items_of_one_answer_are_one_message() -> None:
    messages = from_responses([
        {"type": "message", "role": "user", "content": "go"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {"type": "function_call_output", "call_id": "2", "output": {"a": 1}},
    ], "be brief")  # fmt: skip
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [call["function"]["name"] for call in messages[2]["tool_calls"]] == ["f", "g"]
    before = messages[2]
    add_response_item(
        messages, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}
    )
    assert messages[2] is before and messages[-1]["content"] == "x", "what a prompt holds is not changed later"


def test_events_between_the_requests_are_passed_over_and_counted(tmp_path: Path) -> None:
    line = {"session": "s", "messages": HELLO}
    events = [{"type": "heartbeat"}, {"event": "retry", "session": "s"}]
    path = jsonl(tmp_path / "a.jsonl", line, events[0], line, events[1])
    opened = stream(path)
    assert len(list(opened)) == 2
    (notice,) = opened.sources[0].warnings
    assert notice.code == "other-lines" and "2 lines of another kind" in notice.text and "line 2" in notice.text
    # A line that says nothing of itself may be a request with its messages lost.
    with pytest.raises(TraceError, match="no 'messages'"):
        chats(jsonl(tmp_path / "b.jsonl", line, {"session": "s", "turn": 1}))
