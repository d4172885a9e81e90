"""The other formats of text logs, on small files made here: what is a request, and what was its prompt."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from eactl.errors import TraceError
from eactl.trace.chat import RAW_ROLE, Usage
from tests.trace.textlogs import SKIP, calls, chats, document, jsonl, roles, stream, texts, warnings_of


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


SYSTEM = {"role": "system", "content": "be brief"}


# pi


def pi_answer(words: str, usage: tuple[int, int, int], **fields: Any) -> dict[str, Any]:
    plain, read, written = usage
    counts = {"input": plain, "cacheRead": read, "cacheWrite": written, "output": 5}
    message = {"role": "assistant", "content": [{"type": "text", "text": words}], "usage": counts,
               "provider": "p", "model": "m", "timestamp": 1_700_000_000_000, **fields}  # fmt: skip
    return {"type": "message", "timestamp": "2023-11-14T22:13:22.000Z", "message": message}


def test_pi_counts_measured_answers_and_starts_over_at_a_compaction(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"type": "session", "id": "s", "cwd": "/", "provider": "p", "modelId": "m"},  # entry 0
        {"type": "message", "message": user([{"type": "text", "text": "go"}])},  # 1
        pi_answer("", (0, 0, 0), stopReason="aborted"),  # 2
        pi_answer("on it", (10, 80, 10)),  # 3
        {"type": "message", "message": user([{"type": "text", "text": "more"}])},  # 4
        {"type": "compaction", "summary": "so far", "firstKeptEntryIndex": 4},  # 5
        pi_answer("done", (1, 2, 3)),
    )
    first, second = chats(path)
    assert first.usage == Usage(100, 80, 10, 5)
    assert (texts(first), texts(second)) == (["go"], ["so far", "more"])
    assert second.events == ["compaction"]
    assert (first.session, first.model) == ("s", "p/m")
    assert first.service_s == 2.0, "from the message's own time to the line's"


# Codex


def codex_line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}


def codex_count(total: int, last: int, cached: int) -> dict[str, Any]:
    usage = {"input_tokens": last, "cached_input_tokens": cached, "output_tokens": 1}
    info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": usage}
    return codex_line("event_msg", type="token_count", info=info)


def codex_said(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex_line("response_item", type="message", role=role, content=[{"type": kind, "text": words}])


def test_codex_counts_a_request_where_the_total_changes(tmp_path: Path) -> None:
    call = codex_line("response_item", type="function_call", call_id="1", name="shell", arguments="{}")
    output = codex_line("response_item", type="function_call_output", call_id="1", output="ok")
    path = jsonl(
        tmp_path / "a.jsonl",
        codex_line("session_meta", id="s", instructions="be brief"),
        codex_line("turn_context", model="m"),
        codex_line("event_msg", type="token_count", info=None),
        codex_said("user", "go"), call, output,
        codex_count(100, 100, 60), codex_count(100, 100, 60),
        codex_said("assistant", "done"), codex_count(250, 150, 100),
        codex_line("compacted", message="the story so far"), codex_said("user", "next"),
        codex_said("assistant", "ok"), codex_count(290, 40, 0),
    )  # fmt: skip
    first, second, third = chats(path)
    assert first.usage == Usage(100, 60, None, 1), "input_tokens holds the cached ones already"
    assert roles(first) == ["system", "user"]
    assert roles(second) == ["system", "user", "assistant", "tool"]
    assert texts(third) == ["the story so far", "next"]
    assert third.events == ["compaction"]
    assert [request.turn for request in (first, second, third)] == [0, 1, 2]


def test_a_codex_rollout_without_counts_yields_its_answers(tmp_path: Path) -> None:
    said = [codex_said(role, f"{role} {turn}") for turn in range(3) for role in ("user", "assistant")]
    requests = chats(jsonl(tmp_path / "a.jsonl", codex_line("session_meta", id="s"), *said))
    assert [len(request.messages) for request in requests] == [1, 3, 5]
    assert [request.turn for request in requests] == [0, 1, 2]


# LMCache agent traces


def test_lmcache_lines_are_sorted_and_their_times_are_microseconds(tmp_path: Path) -> None:
    def line(seconds: float, prompt: str, output: str) -> dict[str, Any]:
        return {"timestamp": int(seconds * 1e6), "input": prompt, "output": output, "session_id": "s"}

    path = jsonl(tmp_path / "a.jsonl", line(1.7e9 + 5, "ab", ""), line(1.7e9, "a", "b"), line(1.7e9 + 9, "", "x"))
    requests = chats(path)
    assert texts(requests[0]) == ["a"] and requests[0].messages[0]["role"] == RAW_ROLE
    assert [request.turn for request in requests] == [0, 1, 2]
    assert requests[1].arrival_s == 1.7e9 + 5
    assert requests[1].response is None
    assert len(calls(path)) == 2, "an empty prompt is no call"
    assert not requests[0].exact


# SWE-agent and mini-swe-agent


def test_swe_agent_steps_with_their_prompt_are_exact_others_are_rebuilt(tmp_path: Path) -> None:
    history = [{**SYSTEM, "agent": "main"}, {**user("demo"), "is_demo": True},
               {**assistant("demo answer"), "is_demo": True}, user("issue"), assistant("one"), user("seen"),
               assistant("two")]  # fmt: skip
    steps = [
        {"action": "ls", "observation": "seen", "response": "one"},
        {"action": "cat", "observation": "", "response": "two"},
    ]
    path = document(tmp_path / "task-1.traj", {"trajectory": steps, "history": history, "info": {}})
    first, second = chats(path)
    assert texts(first) == ["be brief", "demo", "demo answer", "issue"]
    assert texts(second) == ["be brief", "demo", "demo answer", "issue", "one", "seen"]
    assert first.session == "task-1" and not first.exact and "agent" not in first.messages[0]
    assert "rebuilt-prompts" in warnings_of(path)

    for key in ("messages", "query"):
        exact = [{**step, key: [SYSTEM, user(f"step {number}")]} for number, step in enumerate(steps)]
        requests = chats(document(tmp_path / f"{key}.traj", {"trajectory": exact, "history": history}))
        assert [texts(request)[1] for request in requests] == ["step 0", "step 1"]
        assert all(request.exact for request in requests)


def test_mini_swe_agent_appends_only(tmp_path: Path) -> None:
    messages = [SYSTEM, user("issue"), assistant("one"), user("seen"), assistant("two")]
    requests = chats(document(tmp_path / "a.traj.json", messages))
    assert [len(request.messages) for request in requests] == [2, 4]
    assert all(request.exact for request in requests)

    answer = {**assistant("one"), "extra": {"timestamp": 1.7e9, "response": {"usage": {"prompt_tokens": 12}}}}
    info = {"mini_version": "2", "config": {"model": {"model_name": "m"}}, "model_stats": {"api_calls": 1}}
    value = {"trajectory_format": "mini-swe-agent-1.1", "info": info, "messages": [SYSTEM, user("x"), answer]}
    (request,) = chats(document(tmp_path / "b.traj.json", value))
    assert request.usage == Usage(12) and request.model == "m" and request.arrival_s == 1.7e9


# OpenHands


def openhands_log(prompt: int, ended: float, messages: list[Any], **fields: Any) -> dict[str, Any]:
    response = {"id": str(prompt), "model": "m", "usage": {"prompt_tokens": prompt},
                "choices": [{"message": assistant("ok")}]}  # fmt: skip
    return {"messages": messages, "tools": [{"type": "function"}], "kwargs": {}, "response": response, "cost": 0.1,
            "timestamp": ended, "latency_sec": 2.0, **fields}  # fmt: skip


def test_openhands_files_of_a_folder_are_one_session_by_time(tmp_path: Path) -> None:
    folder = tmp_path / "task-7"
    document(folder / "m-1700000020.5.json", openhands_log(20, 1.7e9 + 20.5, [user("a"), assistant("b"), user("c")]))
    document(folder / "m-1700000003.5.json", openhands_log(10, 1.7e9 + 3.5, [user("a")]))
    first, second = chats(folder)
    assert (first.session, second.session) == ("task-7", "task-7")
    assert first.arrival_s == 1.7e9 + 1.5, "the recorded time is the response's: 2 s of latency before it"
    assert second.gap_s == 15.0  # asked at 18.5, answered before at 3.5
    assert first.exact and first.tools == [{"type": "function"}]
    opened = stream(folder)
    list(opened)
    assert [source.calls for source in opened.sources] == [1, 1]


def test_openhands_v0_names_are_read(tmp_path: Path) -> None:
    value = openhands_log(10, 1.7e9, [])
    value = {"fncall_messages": [user("a")], "fncall_response": value["response"], "args": {"model": "m"},
             "timestamp": 1.7e9, "cost": 0}  # fmt: skip
    (request,) = chats(document(tmp_path / "a.json", value))
    assert texts(request) == ["a"] and request.usage == Usage(10)


def test_a_bad_file_among_completion_logs_is_refused_or_left_out_and_named(tmp_path: Path) -> None:
    document(tmp_path / "m-1700000001.5.json", openhands_log(10, 1.7e9, [user("a")]))
    bad = tmp_path / "m-1700000002.5.json"
    bad.write_bytes(document(bad, openhands_log(20, 1.7e9, [user("a")])).read_bytes()[:-40])
    with pytest.raises(TraceError, match="the JSON document is cut"):
        chats(tmp_path)
    assert len(chats(tmp_path, options=SKIP)) == 1
    assert "skipped-file" in warnings_of(tmp_path, options=SKIP)


def openhands_action(answer: str, prompt: int, number: int) -> dict[str, Any]:
    reply = {"id": answer, "usage": {"prompt_tokens": prompt}, "choices": [{"message": assistant(answer)}]}
    metadata = {"tool_call_id": answer, "function_name": "run", "model_response": reply}
    return {"id": number, "timestamp": "2026-01-01T00:00:00", "source": "agent", "action": "run", "args": {},
            "tool_call_metadata": metadata}  # fmt: skip


def test_openhands_events_make_a_request_of_each_model_response(tmp_path: Path) -> None:
    def seen(answer: str) -> dict[str, Any]:
        call = openhands_action(answer, 0, 0)["tool_call_metadata"]
        return {"observation": "run", "content": f"saw {answer}", "tool_call_metadata": call}

    history = [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "issue"}},
        openhands_action("r1", 100, 1), openhands_action("r1", 100, 2), seen("r1"), openhands_action("r2", 150, 4),
        {"action": "condensation", "args": {"summary": "so far"}}, openhands_action("r3", 90, 6),
    ]  # fmt: skip
    path = jsonl(
        tmp_path / "output.jsonl", {"instance_id": "i", "history": history, "metadata": {"llm_config": {"model": "m"}}}
    )
    first, second, third = chats(path)
    assert [request.usage.prompt_tokens for request in (first, second, third) if request.usage] == [100, 150, 90]
    assert texts(second) == ["issue", "r1", "saw r1"]
    assert texts(third) == ["issue", "so far"] and third.events == ["condensation"]
    assert first.session == "i" and not first.exact


def test_openhands_events_without_responses_are_refused_with_the_reason(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"issue": {"number": 3}, "history": [{"observation": "x", "content": "y"}]})
    with pytest.raises(TraceError, match="where requests begin is not known"):
        chats(path)


# inspect-ai


def inspect_sample(number: int, started: str) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 112, "input_tokens_cache_read": 90}
    event = {"event": "model", "timestamp": started, "model": "m", "tools": [{"name": "f", "description": "attachment://t"}],
             "input": [{"id": "random", "role": "user", "content": "attachment://q"}],
             "output": {"choices": [{"message": assistant("hi")}], "usage": usage}}  # fmt: skip
    pooled = {**event, "input": [], "input_refs": [[0, 2]], "timestamp": started.replace(":00Z", ":30Z")}
    return {"id": number, "epoch": 1, "attachments": {"q": "a long question", "t": "a tool"},
            "message_pool": [user("one"), assistant("two")],
            "events": [{**event, "pending": True}, event, {**event, "cache": "read"}, {"event": "x"},
                       pooled]}  # fmt: skip


def inspect_archive(path: Path, *samples: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", orjson.dumps({"eval": {"task": "t", "run_id": "r"}}))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", orjson.dumps(sample))
    return path


def test_inspect_events_are_requests_with_their_attachments_in_place(tmp_path: Path) -> None:
    samples = [inspect_sample(1, "2026-01-01T00:05:00Z"), inspect_sample(2, "2026-01-01T00:01:00Z")]
    log = {"version": 2, "eval": {"task": "t", "run_id": "r"}, "samples": samples}
    for path in (document(tmp_path / "a.json", log), inspect_archive(tmp_path / "a.eval", *samples)):
        requests = chats(path)
        assert [request.session for request in requests] == ["r/2_epoch_1"] * 2 + ["r/1_epoch_1"] * 2, "by time"
        assert texts(requests[0]) == ["a long question"] and "id" not in requests[0].messages[0]
        assert texts(requests[1]) == ["one", "two"], "from the pool"
        assert requests[0].usage == Usage(110, 90, None, 2), "112 in all, 2 of them output"
        assert requests[0].tools is not None
        assert requests[0].tools[0]["function"]["description"] == "a tool"


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b"{}")
        with archive.open("samples/1_epoch_1.json", "w") as out:
            for _ in range(64):
                out.write(b" " * (1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(TraceError, match="packed more than 200 times"):
        chats(path)


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    path = inspect_archive(tmp_path / "a.eval", inspect_sample(1, "2026-01-01T00:00:00Z"))
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("samples/1_epoch_1.json").file_size
    raw = path.read_bytes()
    path.write_bytes(raw.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises(TraceError):
        chats(path)


@pytest.mark.parametrize("cut", [30, 200, 600])
def test_a_cut_archive_is_a_clear_error(tmp_path: Path, cut: int) -> None:
    path = inspect_archive(tmp_path / "a.eval", inspect_sample(1, "2026-01-01T00:00:00Z"))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(TraceError, match=r"damaged zip archive|not known"):
        chats(path)


# NeMo-Gym


def test_nemo_gym_rollouts_begin_a_request_after_each_tool_output(tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "ok"}
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    tools = [{"type": "function", "name": "f", "parameters": {}, "strict": True}]
    path = jsonl(tmp_path / "a.jsonl", {
        "responses_create_params": {"input": [user("go")], "instructions": "be brief", "tools": tools},
        "response": {"output": [{"type": "reasoning", "summary": []}, call, output, answer],
                     "usage": {"input_tokens": 99}},
        "_ng_task_index": 4, "_ng_rollout_index": 2,
    })  # fmt: skip
    first, second = chats(path)
    assert (roles(first), roles(second)) == (["system", "user"], ["system", "user", "assistant", "tool"])
    assert first.session == "4/2" and first.usage is None, "99 is the sum of two calls"
    assert first.tools == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


# Langfuse, OpenTelemetry, ATIF


def generation(key: str, start: str, prompt: Any, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": key, "type": "GENERATION", "traceId": "t", "parentObservationId": parent, "input": prompt,
            "startTime": f"2026-01-01T00:00:{start}Z", "model": "m",
            "usageDetails": {"input": 1, "output": 2, "total": 12}, **fields}  # fmt: skip


def test_langfuse_generations_are_ordered_and_wrappers_left_out(tmp_path: Path) -> None:
    prompt = orjson.dumps([SYSTEM, user("go")]).decode()
    lang_chain = [[{"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "go"}}]]
    observations = [
        generation("b", "05", prompt), generation("a", "01", {"messages": [user("first")], "tools": [{"name": "f"}]}),
        generation("w", "06", "python repr"), generation("c", "07", orjson.dumps(lang_chain).decode(), parent="w"),
        {"id": "s", "type": "SPAN", "traceId": "t", "input": "x"}, generation("d", "08", None),
    ]  # fmt: skip
    path = document(tmp_path / "a.json", {"trace": {"id": "t", "sessionId": "session"}, "observations": observations})
    requests = chats(path)
    assert [texts(request) for request in requests] == [["first"], ["be brief", "go"], ["go"], []]
    assert requests[0].tools == [{"name": "f"}]
    assert {request.session for request in requests} == {"session"}
    assert requests[0].usage == Usage(10, None, None, 2)
    assert "unclear-prompts" in warnings_of(path)
    assert len(calls(path)) == 3


def test_langfuse_blob_exports_are_read_line_by_line(tmp_path: Path) -> None:
    line = {"id": "a", "type": "GENERATION", "trace_id": "t", "start_time": "2026-01-01 00:00:00.000000",
            "input": orjson.dumps([user("go")]).decode(), "usage_details": '{"input": 3, "output": 1}'}  # fmt: skip
    (request,) = chats(jsonl(tmp_path / "a.jsonl", line, {**line, "id": "s", "type": "SPAN"}))
    assert texts(request) == ["go"] and request.usage == Usage(3, None, None, 1) and request.session == "t"


def test_otel_spans_hold_prompts_in_three_ways(tmp_path: Path) -> None:
    parts = [{"role": "user", "parts": [{"type": "text", "content": "go"}]},
             {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"a": 1}}]},
             {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "ok"}]}]  # fmt: skip
    modern = {"gen_ai.input.messages": orjson.dumps(parts).decode(), "gen_ai.usage.input_tokens": 9,
              "gen_ai.system_instructions": '[{"type": "text", "content": "brief"}]',
              "gen_ai.conversation.id": "c"}  # fmt: skip
    older = {"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "be brief", "gen_ai.prompt.1.content": "go"}
    inference = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "go",
                 "session.id": "s"}  # fmt: skip
    spans = [{"trace_id": "t", "span_id": str(at), "start_time": f"2026-01-01T00:00:0{at}", "attributes": attributes}
             for at, attributes in enumerate((modern, older, inference, {"http.method": "GET"}))]  # fmt: skip
    requests = chats(document(tmp_path / "a.json", {"trace_id": "t", "spans": spans}))
    assert [request.session for request in requests] == ["c", "t", "s"]
    assert roles(requests[0])[-3:] == ["user", "assistant", "tool"]
    assert texts(requests[1]) == ["be brief", "go"]
    assert requests[0].usage == Usage(9)

    listed = [{"key": "gen_ai.input.messages", "value": {"stringValue": orjson.dumps(parts).decode()}},
              {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "9"}}]  # fmt: skip
    span = {"traceId": "t", "spanId": "1", "startTimeUnixNano": "1700000000000000000", "attributes": listed}
    (request,) = chats(document(tmp_path / "b.json", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    assert request.usage == Usage(9) and request.arrival_s == 1.7e9 and len(request.messages) == 3


def test_otel_spans_without_content_are_refused_with_the_switch(tmp_path: Path) -> None:
    span = {
        "trace_id": "t",
        "span_id": "1",
        "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9},
    }
    with pytest.raises(TraceError, match="no span holds its prompt") as caught:
        chats(document(tmp_path / "a.json", {"spans": [span]}))
    assert caught.value.hint is not None and "CAPTURE_MESSAGE_CONTENT" in caught.value.hint


def test_atif_steps_of_the_agent_are_requests_exact_where_ids_are_recorded(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "user", "message": "go"},
        {"step_id": 2, "source": "agent", "message": "look", "metrics": {"prompt_tokens": 9, "cached_tokens": 4},
         "tool_calls": [{"tool_call_id": "1", "function_name": "f", "arguments": {}}],
         "observation": {"results": [{"source_call_id": "1", "content": "seen"}]}},
        {"step_id": 3, "source": "agent", "message": "done", "metrics": {"prompt_token_ids": [1, 2, 3]}},
    ]  # fmt: skip
    value = {"schema_version": "ATIF-v1.4", "session_id": "s", "agent": {"model_name": "m"}, "steps": steps}
    path = document(tmp_path / "a.json", value)
    first, second = chats(path)
    assert (roles(first), roles(second)) == (["user"], ["user", "assistant", "tool"])
    assert first.usage == Usage(9, 4) and not first.exact and second.exact
    assert [call.prompt_tokens for call in calls(path)] == [9, 3]


# Server logs


def test_vllm_lines_hold_the_prompts_own_ids(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        "INFO 10-01 18:43:26 api_server.py:1] Starting\n"
        "INFO 10-01 18:43:27 x.py:3] Received request cmpl-1-0: prompt: 'it\\'s [1, 2]', params: SamplingParams(), "
        "prompt_token_ids: [5, 6, 7], lora_request: None.\n"
        "INFO 10-01 18:43:29 x.py:3] Received request cmpl-2-0: prompt: 'only text', params: SamplingParams(), "
        "prompt_token_ids: None, lora_request: LoRARequest(lora_name='a', lora_int_id=1).\n"
        "DEBUG 10-01 18:43:30 x.py:3] Received request cmpl-3-0: params: SamplingParams(), lora_request: None.\n"
    )
    first, second = chats(path)
    assert first.prompt_token_ids == [5, 6, 7] and first.exact
    assert texts(first) == ["it's [1, 2]"]
    assert second.adapter == "a" and not second.exact
    assert (second.arrival_s or 0) - (first.arrival_s or 0) == 2.0
    assert "lines-without-prompt" in warnings_of(path)
    assert calls(path)[0].ids.tolist() == [5, 6, 7]


def test_a_vllm_log_that_shows_no_prompts_is_refused_with_the_switch(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text("INFO 10-01 18:43:27 x.py:3] Received request cmpl-1-0: params: SamplingParams(n=1).\n")
    with pytest.raises(TraceError, match="hold neither token ids nor text") as caught:
        chats(path)
    assert caught.value.hint is not None and "VLLM_LOGGING_LEVEL=DEBUG" in caught.value.hint


SGLANG = (
    "[2026-03-03 17:53:04] Receive: obj=GenerateReqInput(text=None, input_ids=[1, 2, 3], sampling_params={}, rid='a')\n"
    "[2026-03-03 17:53:05] Receive: obj=GenerateReqInput(text=None, input_ids=[1, 2], sampling_params={}, rid='b')\n"
    "[2026-03-03 17:53:06] Finish: obj=GenerateReqInput(text=None, input_ids=[1, 2], rid='b'), out={'meta_info': "
    "{'prompt_tokens': 2, 'completion_tokens': 7, 'cached_tokens': 1}}\n"
    "[2026-03-03 17:53:08] Finish: obj=GenerateReqInput(text=None, input_ids=[1, 2, 3], rid='a'), out={'meta_info': "
    "{'prompt_tokens': 3, 'completion_tokens': 9, 'cached_tokens': 0}}\n"
)


def test_sglang_lines_pair_receive_and_finish(tmp_path: Path) -> None:
    path = tmp_path / "sglang.log"
    path.write_text(SGLANG)
    first, second = chats(path)
    assert (first.prompt_token_ids, second.prompt_token_ids) == ([1, 2, 3], [1, 2])
    assert (first.usage, second.usage) == (Usage(3, 0, None, 9), Usage(2, 1, None, 7))
    assert (first.service_s, second.service_s) == (4.0, 1.0)


def test_shortened_sglang_ids_are_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "sglang.log"
    path.write_text(SGLANG.replace("input_ids=[1, 2, 3], sampling", "input_ids=[1, 2] ... [3], sampling"))
    with pytest.raises(TraceError, match="'input_ids' is shortened") as caught:
        chats(path)
    assert caught.value.where == f"{path}:1"
    assert caught.value.hint is not None and "--log-requests-level 3" in caught.value.hint


def test_kimi_answers_are_messages_only_once_something_was_said(tmp_path: Path) -> None:
    """A step begins before its request is sent: no empty answer may stand at the end of the prompt."""

    def event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "context.append_loop_event", "event": {"type": kind, **fields}}

    def record(prompt: int) -> dict[str, Any]:
        return {"inputOther": prompt, "inputCacheRead": 0, "inputCacheCreation": 0, "output": 3}

    path = jsonl(
        tmp_path / "wire.jsonl",
        {"type": "metadata", "protocol_version": "1.4"},
        {"type": "config.update", "systemPrompt": "Be brief."},
        {"type": "context.append_message", "message": {"role": "user", "content": "list"}},
        event("step.begin"),
        {"type": "llm.request", "kind": "loop", "time": 1_000},
        event("content.part", part={"type": "think", "think": "hm"}),
        event("tool.call", toolCallId="a", name="ls", args={}),
        event("tool.call", toolCallId="b", name="pwd", args={}),
        event("tool.result", toolCallId="a", result={"output": "x.py"}),
        event("tool.result", toolCallId="b", result={"output": "/"}),
        event("step.end", usage=record(100)),
        {"type": "usage.record", "usage": record(100), "usageScope": "turn", "time": 2_000},
        event("step.begin"),
        {"type": "llm.request", "kind": "loop", "time": 3_000},
        event("content.part", part={"type": "text", "text": "Done."}),
        event("step.end", usage=record(120)),
        {"type": "usage.record", "usage": record(120), "usageScope": "turn", "time": 4_000},
        {"type": "llm.request", "kind": "compaction", "time": 5_000},
        {"type": "usage.record", "usage": record(140), "usageScope": "session", "time": 6_000},
        {"type": "context.apply_compaction", "contextSummary": "It was listed."},
    )
    first, second, compaction = chats(path)
    assert roles(first) == ["system", "user"]
    assert roles(second) == ["system", "user", "assistant", "tool", "tool"]
    assert roles(compaction) == [*roles(second), "assistant"]
    assert first.response == second.messages[2]  # whole, though results came after it
    assert [call["function"]["name"] for call in second.messages[2]["tool_calls"]] == ["ls", "pwd"]
    assert second.response == {"role": "assistant", "content": "Done."}
    usages = [request.usage.prompt_tokens for request in (first, second, compaction) if request.usage is not None]
    assert usages == [100, 120, 140]  # each once: the record that follows a step's end repeats it
