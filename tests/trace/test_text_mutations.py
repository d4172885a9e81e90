"""Logs with a few bytes or values changed: every reader refuses or reads on, and nothing but our own errors comes out.

Unlike text made up from nothing, these get past detection and deep into the readers.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eactl.condense.check import CheckSettings, check
from eactl.errors import EactlError
from eactl.trace import TraceOptions
from tests.trace.textlogs import calls, chats

VLLM = b"".join(
    b"INFO 10-01 18:43:%02d logger.py:36] Received request cmpl-%d-0: prompt: 'How to make \\'pizza\\'%s', params: "
    b"SamplingParams(n=1, temperature=0.7), prompt_token_ids: [1, 2, 3%s], lora_request: %s.\n"
    % (n, n, b"?" * n, b", 4" * n, b"LoRARequest(lora_name='a', lora_int_id=1)" if n % 2 else b"None")
    for n in range(4)
)
SGLANG = b"".join(
    b"[2025-03-03 17:53:%02d] Receive: obj=GenerateReqInput(text=None, input_ids=[151646, 198%s], rid='r%d', "
    b"lora_path='x')\n[2025-03-03 17:53:%02d] Finish: obj=GenerateReqInput(rid='r%d'), out={'meta_info': {'id': 'r%d', "
    b"'prompt_tokens': %d, 'completion_tokens': 2, 'cached_tokens': 1, 'request_received_ts': 1741024384.%d}}\n"
    % (n, b", 5" * n, n, n + 1, n, n, 2 + n, n)
    for n in range(4)
)


def model_event(n: int) -> dict[str, Any]:
    return {
        "event": "model", "timestamp": f"2026-01-01T00:00:0{n}+00:00", "completed": f"2026-01-01T00:00:0{n + 1}+00:00",
        "model": "m", "input": [], "input_refs": [[0, n + 1]], "tools": [{"name": "ls", "parameters": {}}],
        "output": {"choices": [{"message": {"role": "assistant", "content": "attachment://a"}}],
                   "usage": {"input_tokens": 9 + n, "output_tokens": 2, "input_tokens_cache_read": 3}, "time": 0.5},
        "call": {"request": {}, "response": {}}, "retries": 0,
    }  # fmt: skip


SAMPLE: dict[str, Any] = {
    "id": 1, "epoch": 1, "uuid": "u", "messages": [], "attachments": {"a": "long text"},
    "message_pool": [{"role": "user", "content": f"message {n}", "id": f"m{n}"} for n in range(3)],
    "events": [{"event": "sample_init"}, *(model_event(n) for n in range(3))],
}  # fmt: skip
HEADER: dict[str, Any] = {"version": 2, "status": "success", "eval": {"eval_id": "e", "task": "t", "model": "m"}}


def archive(header: object, sample: object) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as stream:
        stream.writestr("header.json", orjson.dumps(header))
        stream.writestr("samples/1_epoch_1.json", orjson.dumps(sample))
        stream.writestr("summaries.json", b"[]")
    return made.getvalue()


KINDS = st.sampled_from(["flip", "delete", "double", "insert", "cut"])
PLACES = st.floats(0, 1, exclude_max=True)
STEPS = st.lists(st.tuples(KINDS, PLACES, st.integers(0, 255), st.integers(1, 40)), min_size=1, max_size=4)
Steps = list[tuple[str, float, int, int]]


def mutated(data: bytes, steps: Steps) -> bytes:
    for kind, place, byte, length in steps:
        at = int(place * len(data))
        head, tail = data[:at], data[at:]
        if kind == "flip" and tail:
            data = head + bytes([tail[0] ^ (byte or 1)]) + tail[1:]
        elif kind == "delete":
            data = head + tail[length:]
        elif kind == "double":
            data = head + tail[:length] + tail
        elif kind == "insert":
            data = head + bytes([byte]) * length + tail
        elif kind == "cut" and at:
            data = head
    return data


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=4) | st.just([]) | st.just({})


def changed(value: Any, place: float, leaf: object) -> Any:
    """``value`` with one of its values, at any depth, replaced."""
    places = list(paths(value))
    path = places[int(place * len(places))]
    copy = orjson.loads(orjson.dumps(value))
    if not path:
        return leaf
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = leaf
    return copy


def paths(value: Any, so_far: tuple[Any, ...] = ()) -> Any:
    yield so_far
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from paths(inner, (*so_far, key))


def survives(path: Path, name: str | None) -> None:
    for skip in (False, True):
        options = TraceOptions(format=name, skip_bad_lines=skip)
        with suppress(EactlError):
            calls(path, options=options)
        with suppress(EactlError):
            check(chats(path, options=options), CheckSettings())


LOGS: dict[str, tuple[str, bytes]] = {
    "vllm-log": ("a.log", VLLM), "sglang-log": ("a.log", SGLANG), "inspect-ai": ("a.eval", archive(HEADER, SAMPLE)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_the_logs_to_be_changed_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    file, data = LOGS[name]
    path = tmp_path / file
    path.write_bytes(data)
    requests = chats(path)
    assert len(requests) == (3 if name == "inspect-ai" else 4)
    assert len(calls(path)) == len(requests)


@pytest.mark.parametrize("name", LOGS)
@given(steps=STEPS)
def test_changed_bytes_are_survived(name: str, steps: Steps, tmp_path_factory: pytest.TempPathFactory) -> None:
    file, data = LOGS[name]
    path = tmp_path_factory.getbasetemp() / f"changed-{name}-{file}"
    path.write_bytes(mutated(data, steps))
    for forced in (None, name):
        survives(path, forced)


@given(place=PLACES, leaf=LEAVES, in_header=st.booleans())
def test_changed_values_in_an_archive_are_survived(
    place: float, leaf: object, in_header: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.eval"
    if in_header:
        path.write_bytes(archive(changed(HEADER, place, leaf), SAMPLE))
    else:
        path.write_bytes(archive(HEADER, changed(SAMPLE, place, leaf)))
    survives(path, None)


REAL = ("agent-sessions-fixtures/claude_small.jsonl", "agent-sessions-fixtures/codex_large.jsonl",
        "agent-sessions-fixtures/kimi_subagent_agent-0.jsonl", "agent-sessions-fixtures/copilot_small.jsonl",
        "inspect-ai/log_streaming.eval", "lmcache-agent-trace/taubench/22ffaaf33001ec7197ccd612e03d428e.jsonl",
        "mini-swe-agent/github_issue.traj.json", "spotter-claude-code/short.jsonl",
        "swe-agent/demonstrations__function_calling_simple.traj")  # fmt: skip


@pytest.mark.parametrize("name", REAL)
@settings(max_examples=25)  # nine logs
@given(steps=STEPS, place=PLACES, leaf=LEAVES)
def test_changed_public_logs_are_survived(
    name: str, steps: Steps, place: float, leaf: object, shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = (shared_data / name).read_bytes()
    path = tmp_path_factory.getbasetemp() / f"public{Path(name).suffix}"
    path.write_bytes(mutated(data, steps))
    survives(path, None)
    change_value: Callable[[bytes], bytes] = lambda line: orjson.dumps(changed(orjson.loads(line), place, leaf))  # noqa: E731
    if path.suffix == ".jsonl":
        lines = data.splitlines()
        at = int(place * len(lines))
        lines[at] = change_value(lines[at])
        path.write_bytes(b"\n".join(lines) + b"\n")
    elif path.suffix != ".eval":
        path.write_bytes(change_value(data))
    survives(path, None)


@pytest.mark.parametrize("old", [b"lora_path='x'", b"'prompt_tokens': 2", b"1741024384.0"])
@pytest.mark.parametrize(
    "new", [b"lora_path='\x9e'", b"'prompt_tokens': 2.5.", b"'prompt_tokens': " + b"9" * 400, b"1.2.3"]
)
def test_numbers_and_names_of_a_server_log_may_be_anything(old: bytes, new: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(SGLANG.replace(old, new))
    survives(path, "sglang-log")
    assert all(len(each.prompt_token_ids or ()) < 10 for each in chats(path, options=TraceOptions(skip_bad_lines=True)))


def made_up(name: str, odd: object) -> list[object]:
    """Lines or a document of a format with ``odd`` where the model, the session or the salt is named."""
    hello = [{"role": "user", "content": "hello"}]
    span = {"span_id": odd, "start_time": "2026-01-01T00:00:00", "attributes": {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": odd, "gen_ai.conversation.id": odd,
        "gen_ai.input.messages": orjson.dumps(hello).decode()}}  # fmt: skip
    action = {"id": 1, "source": "agent", "action": "run", "args": {}, "tool_call_metadata": {
        "function_name": "run", "tool_call_id": "c", "model_response": {"id": "r", "model": odd,
                                                                         "usage": {"prompt_tokens": 5}}}}  # fmt: skip
    made: dict[str, list[object]] = {
        "claude-code": [
            {"type": "user", "uuid": "u", "parentUuid": None, "sessionId": odd, "message": hello[0]},
            {"type": "assistant", "uuid": "v", "parentUuid": "u", "sessionId": odd, "agentId": odd,
             "message": {"id": "m", "role": "assistant", "model": odd, "content": [], "usage": {"input_tokens": 3}}}],
        "chat-jsonl": [{"session": odd, "model": odd, "salt": odd, "lora": odd, "messages": hello}],
        "otel-genai": [{"trace_id": odd, "spans": [span]}],
        "atif": [{"schema_version": "ATIF-v1.4", "session_id": odd, "agent": {"model_name": odd}, "steps": [
            {"step_id": 1, "source": "user", "message": "hello"}, {"step_id": 2, "source": "agent", "message": "hi"}]}],
        "openhands-output": [{"instance_id": odd, "metadata": {"llm_config": {"model": odd}}, "history": [
            {"id": 0, "source": "user", "action": "message", "args": {"content": "hello"}}, action]}],
        "langfuse": [{"trace": {"id": odd, "sessionId": odd}, "observations": [
            {"id": odd, "traceId": odd, "type": "GENERATION", "model": odd, "input": hello,
             "startTime": "2026-01-01T00:00:00Z"}]}],
        "nemo-gym": [{"instance_id": odd, "responses_create_params": {"input": hello, "model": odd},
                      "response": {"model": odd, "output": [{"type": "message", "role": "assistant", "content": []}]}}],
        "lmcache-agent": [{"timestamp": 1, "input": "hello", "output": "", "session_id": odd}],
        "pi": [{"type": "session", "id": odd, "provider": odd, "modelId": odd},
               {"type": "message", "message": {"role": "assistant", "content": [], "model": odd, "provider": odd,
                                               "usage": {"input": 5, "output": 1}}}],
        "codex": [{"type": "session_meta", "payload": {"id": odd}}, {"type": "turn_context", "payload": {"model": odd}},
                  {"type": "event_msg", "payload": {"type": "token_count", "info": {
                      "total_token_usage": {"input_tokens": 5}, "last_token_usage": {"input_tokens": 5}}}}],
        "copilot": [{"type": "session.start", "data": {"sessionId": odd, "selectedModel": odd}},
                    {"type": "assistant.message", "data": {"messageId": odd, "model": odd, "content": "hi"}}],
    }  # fmt: skip
    return made[name]


@pytest.mark.parametrize("odd", ["name", [], {}, 5, True, None, 1.5], ids=repr)
@pytest.mark.parametrize("name", ["claude-code", "chat-jsonl", "otel-genai", "atif", "openhands-output", "langfuse",
                                  "nemo-gym", "lmcache-agent", "pi", "codex", "copilot"])  # fmt: skip
def test_names_may_be_anything(name: str, odd: object, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in made_up(name, odd)))
    survives(path, name)
    if odd == "name":
        assert len(chats(path, options=TraceOptions(format=name))) == 1
