"""A converted text log says the same of tiers as the log, and nothing of what was written in it."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from eactl.condense.check import CheckSettings, check
from eactl.model.summary import summarise
from eactl.model.workload import Workload
from eactl.sizing import SizeSettings, TokenWeight, size_trace
from eactl.sizing.advice import Available
from eactl.trace import Call, TraceOptions, open_trace
from eactl.trace.chatlog import open_chat
from eactl.trace.convert import convert
from eactl.trace.convert_plan import ConvertSettings
from eactl.trace.readers.textbase import make_encoder
from eactl.trace.salt import Salt
from eactl.trace.workload import load_workload
from tests.trace import formats
from tests.trace.textlogs import Transcript, document, jsonl, text, tool_use

PLANTED = "xylophone"  # not in any of the texts that the product itself writes
SALT = Salt.given(b"0123456789abcdef", where="test")
DIGITS = re.compile("[0-9a-f]{16}")
WORDS = ["alpha", "beta", "gamma delta", "epsilon", "2 plus 2\n"]
sizes = st.sampled_from([1, 2, 4, 16])


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Lines of a chat log: sessions that append, fork and rewrite over a system prompt, or lines without any."""
    said = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
    system = [{"role": "system", "content": draw(said)}]
    history: dict[str | None, list[dict[str, Any]]] = {}
    lines = []
    named = draw(st.booleans())
    for number in range(draw(st.integers(1, 10))):
        session = draw(st.sampled_from(["one", "two", "task-0"])) if named else None
        before = history.get(session, system)
        if draw(st.integers(0, 3)) == 0:
            before = before[: draw(st.integers(0, len(before)))]
        added = [{"role": draw(st.sampled_from(["user", "assistant", "tool"])), "content": draw(said)}]
        history[session] = [*before, *added]
        lines.append({
            "session": session, "turn": number, "messages": history[session], "timestamp": 1.7e9 + number,
            "salt": draw(st.sampled_from([None, None, "tenant"])), "model": "m",
            "usage": draw(st.sampled_from([None, {"completion_tokens": number}])),
        })  # fmt: skip
    return lines


def converted(paths: list[Path], settings: ConvertSettings | None = None, **options: Any) -> bytes:
    out = io.BytesIO()
    convert(open_trace(paths, TraceOptions(**options)), out, settings or ConvertSettings())
    return out.getvalue()


def saved(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def both(folder: Path, lines: list[dict[str, Any]], block: int) -> tuple[Path, Path]:
    """The log, and what it becomes in blocks of ``block`` tokens."""
    log = jsonl(folder / "log.jsonl", *lines)
    return log, saved(folder / "trace.jsonl", converted([log], ConvertSettings(block_tokens=block)))


def block_ids(data: bytes) -> list[list[int]]:
    return [orjson.loads(line)["prompt"]["blocks"] for line in data.splitlines()[1:]]


# What stays the same


@given(lines=chats(), block=sizes)
def test_prompts_share_as_many_whole_blocks_as_before(lines: list[dict[str, Any]], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, trace = both(Path(folder), lines, block)
        before, after = list(open_trace([log])), list(open_trace([trace]))
    # the longest common prefix in tokens, cut to whole blocks
    assert formats.sharing(after) == formats.sharing(before, block)
    for call, same in zip(before, after, strict=True):
        assert (same.prompt_tokens, same.output_tokens) == (call.prompt_tokens, call.output_tokens)
        assert (same.arrival_s, same.gap_s, same.service_s) == (call.arrival_s, call.gap_s, call.service_s)
        assert same.model == call.model
        assert len(same.ids) == call.prompt_tokens // block
    if lines[0]["session"] is not None:
        assert len({(call.task, same.task) for call, same in zip(before, after, strict=True)}) == len(
            {call.task for call in before}
        )


def sized(work: Workload, chunk: int, gpu: int | None, agents: int | None) -> dict[str, Any]:
    settings = SizeSettings(TokenWeight(1 << 16), chunk, gpu_kv_tokens=gpu, agents=agents)
    return size_trace(work, settings, Available(1 << 40, "the test host")).as_dict()


@examples(max_examples=40)
@given(
    lines=chats(), block=sizes, blocks_per_chunk=st.sampled_from([1, 2]), gpu=st.sampled_from([None, 64]),
    agents=st.sampled_from([None, 2]),
)  # fmt: skip
def test_size_is_the_same_for_chunks_of_whole_blocks(
    lines: list[dict[str, Any]], block: int, blocks_per_chunk: int, gpu: int | None, agents: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before, after = (load_workload(open_trace([path])) for path in both(Path(folder), lines, block))
    answers = [sized(work, block * blocks_per_chunk, gpu, agents) for work in (before, after)]
    for answer in answers:
        del answer["workload"]  # compared below: its stable tokens are bounds
    assert answers[1] == answers[0]


@given(lines=chats(), block=sizes)
def test_the_profile_is_the_same_up_to_a_block_per_call(lines: list[dict[str, Any]], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        works = [load_workload(open_trace([path])) for path in both(Path(folder), lines, block)]
    before, after = works
    shared = [work.shared_with_previous(with_output=False) for work in works]
    assert shared[1].tolist() == (shared[0] // block * block).tolist()
    fine, coarse = (summarise(work).as_dict() for work in works)
    for bounded in ("stable_tokens", "stable_share", "previous_prompt_shared_tokens"):
        del fine[bounded], coarse[bounded]
    lower = [summary.pop("stable_tokens_lower") for summary in (fine, coarse)]
    upper = [summary.pop("stable_tokens_upper") for summary in (fine, coarse)]
    assert coarse == fine
    later = len(before) - len(before.task_names)  # calls that have a previous one
    assert 0 <= lower[0] - lower[1] <= later * (block - 1)
    assert upper[1] >= upper[0]
    assert after.task.tolist() == before.task.tolist()


def test_breaks_that_condenser_check_finds_are_where_the_trace_loses_blocks(root: Path, tmp_path: Path) -> None:
    log = root / "docs" / "examples" / "clock.jsonl"
    checked = check(open_chat([log]), CheckSettings())
    turns = checked.sessions[0].turns
    breaks = [turn.turn for turn in turns if turn.cause not in ("first-call", "append")]
    assert breaks == [2, 4, 5]
    calls = list(open_trace([saved(tmp_path / "t.jsonl", converted([log]))]))
    shorter = [
        now.call
        for earlier, now in pairwise(calls)
        if formats.shared(earlier.ids.tolist(), now.ids.tolist()) < len(earlier.ids)
    ]
    assert shorter == breaks


def test_stable_tokens_of_condenser_check_are_those_of_the_trace_in_whole_blocks(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    from tests.trace.tinytokenizer import write_model

    log = root / "docs" / "examples" / "clock.jsonl"
    model = str(write_model(tmp_path / "model"))
    encoder = make_encoder(TraceOptions(tokenizer=model))
    checked = check(open_chat([log]), CheckSettings(), encoder.tokenizer, encoder.template)
    trace = saved(tmp_path / "t.jsonl", converted([log], tokenizer=model))
    work = load_workload(open_trace([trace]))
    assert [turn.prompt_tokens for turn in checked.sessions[0].turns] == work.prompt_tokens.tolist()
    stable = np.array([turn.stable_tokens_lower for turn in checked.sessions[0].turns])
    assert work.shared_with_previous(with_output=False).tolist() == (stable // 16 * 16).tolist()


def test_public_logs_are_sized_the_same_after_conversion(shared_data: Path, tmp_path: Path) -> None:
    for name in ("spotter-claude-code", "lmcache-agent-trace"):
        trace = saved(tmp_path / f"{name}.jsonl", converted([shared_data / name]))
        before, after = (load_workload(open_trace([path])) for path in (shared_data / name, trace))
        answers = [sized(work, 256, 100_000, 4) for work in (before, after)]
        for answer in answers:
            del answer["workload"]
        assert answers[1] == answers[0]
        assert after.prompt_tokens.tolist() == before.prompt_tokens.tolist()


# Salts


@examples(max_examples=40)
@given(lines=chats(), block=sizes)
def test_two_conversions_have_no_id_and_no_name_in_common(lines: list[dict[str, Any]], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = jsonl(Path(folder) / "log.jsonl", *lines)
        one, two = (converted([log], ConvertSettings(block_tokens=block)) for _ in range(2))
    ids = [{number for prompt in block_ids(data) for number in prompt} for data in (one, two)]
    assert not ids[0] & ids[1]
    names = [set(DIGITS.findall(data.decode())) for data in (one, two)]
    assert not names[0] & names[1]


@examples(max_examples=40)
@given(lines=chats(), block=sizes)
def test_the_same_salt_gives_the_same_bytes(lines: list[dict[str, Any]], block: int) -> None:
    settings = ConvertSettings(block_tokens=block, salt=SALT)
    with tempfile.TemporaryDirectory() as folder:
        log = jsonl(Path(folder) / "log.jsonl", *lines)
        assert converted([log], settings) == converted([log], settings)


@examples(max_examples=40)
@given(lines=chats(), cut=st.integers(1, 9))
def test_parts_converted_with_one_salt_share_what_the_whole_shares(lines: list[dict[str, Any]], cut: int) -> None:
    settings = ConvertSettings(block_tokens=2, salt=SALT)
    for line in lines:
        line["session"] = line["salt"] = None
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        whole = list(open_trace([jsonl(here / "whole.jsonl", *lines)]))
        logs = [jsonl(here / f"{at}.jsonl", *lines[at : at + cut]) for at in range(0, len(lines), cut)]
        parts = [saved(here / f"{log.stem}.trace.jsonl", converted([log], settings)) for log in logs]
        opened = open_trace(parts)
        joined = list(opened)
        again = list(open_trace([saved(here / "again.jsonl", converted(parts))]))
    assert not opened.warnings
    # The parts' times count from their own starts, so their calls come in another order: sorted, then compared.
    assert overlaps(joined, 1) == overlaps(whole, 2)
    assert sorted(call.ids.tolist() for call in again) == sorted(call.ids.tolist() for call in joined)
    assert {call.scope for call in again} == {call.scope for call in joined} == {SALT.id_space(2)}


def overlaps(calls: list[Call], unit: int) -> list[tuple[int, int, int]]:
    """Of every two calls the lengths and what they share, in whole blocks of ``unit`` ids."""
    ids = [call.ids.tolist() for call in calls]
    return sorted((len(a) // unit, len(b) // unit, formats.shared(a, b) // unit) for a, b in product(ids, ids))


def test_parts_with_random_salts_are_said_not_to_be_comparable(tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "a b c d e f g h"}], "timestamp": 1.7e9}
    log = jsonl(tmp_path / "log.jsonl", line)
    traces = [saved(tmp_path / f"{n}.jsonl", converted([log], ConvertSettings(block_tokens=1))) for n in range(2)]
    opened = open_trace(traces)
    assert [notice.code for notice in opened.warnings] == ["local-ids"]
    assert len({call.scope for call in opened}) == 2


@given(requests=formats.requests(), block=st.sampled_from([1, 3, 4]))
def test_hashes_and_numbers_of_block_traces_go_through_unchanged(requests: list[Any], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = formats.write_mooncake(Path(folder), requests, block)
        before = list(open_trace([source]))
        first, second = converted([source]), converted([source], ConvertSettings(salt=SALT))
    assert first == second
    assert block_ids(first) == [call.ids.tolist() for call in before]
    assert [orjson.loads(line)["task"] for line in first.splitlines()[1:]] == [call.task for call in before]


@given(requests=formats.requests(), block=st.sampled_from([1, 3, 4]))
def test_a_token_trace_can_become_salted_blocks_too(requests: list[Any], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = formats.write_native_tokens(Path(folder), requests, 1)
        trace = saved(Path(folder) / "t.jsonl", converted([source], ConvertSettings(block_tokens=block)))
        calls = list(open_trace([trace]))
    assert formats.sharing(calls) == formats.expected_sharing(requests, block)
    assert [call.output_tokens for call in calls] == [request.output_tokens for request in requests]


# What is not in it


def plain_chat(folder: Path) -> Path:
    def line(turn: int) -> dict[str, Any]:
        messages = [{"role": "system", "content": f"You know {PLANTED}."}]
        for number in range(turn + 1):
            call = {"id": f"{PLANTED}-call", "type": "function",
                    "function": {"name": PLANTED, "arguments": json.dumps({PLANTED: number})}}  # fmt: skip
            messages += [
                {"role": "user", "content": f"{PLANTED} {number}", "name": PLANTED},
                {"role": "assistant", "content": PLANTED, "reasoning_content": PLANTED, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"{PLANTED}-call", "content": f"{PLANTED} " * 40},
            ]
        return {"session": f"/home/{PLANTED}/{turn // 2}", "turn": turn, "messages": messages, "salt": PLANTED,
                "tools": [{"type": "function", "function": {"name": PLANTED, "description": PLANTED}}],
                "timestamp": 1.7e9 + turn, "metadata": {PLANTED: PLANTED}, "user": PLANTED, "model": "m",
                "response": {"id": f"{PLANTED}{turn}", "choices": [{"message": {"content": PLANTED}}]}}  # fmt: skip

    return jsonl(folder / f"{PLANTED}.jsonl", *map(line, range(4)), b'{"messages": "' + PLANTED.encode() + b'"}\n',
                 b'{"messages": [{"role": "user", "content": "' + PLANTED.encode())  # fmt: skip


def claude_project(folder: Path) -> Path:
    log = Transcript(folder / PLANTED / f"{PLANTED}.jsonl", session=PLANTED)
    log.user(f"please {PLANTED}", cwd=f"/home/{PLANTED}", gitBranch=PLANTED)
    log.assistant("m1", text(f"{PLANTED}!"), (900, 0, 0, 5))
    log.assistant("m1", tool_use("t1", command=f"cat {PLANTED}"), (900, 0, 0, 5))
    log.result("t1", PLANTED * 50, toolUseResult={"stdout": PLANTED})
    log.assistant("m2", text(PLANTED), (100, 900, 0, 5))
    log.line("summary", summary=PLANTED)
    log.write()
    agent = Transcript(folder / PLANTED / f"agent-{PLANTED}.jsonl", session=PLANTED, agent=PLANTED, prefix="a")
    agent.user(PLANTED)
    agent.assistant("m3", text(PLANTED), (50, 0, 0, 5))
    agent.write()
    (folder / PLANTED / f"notes-{PLANTED}.txt").write_text(f"a file of {PLANTED} that is no trace")
    return folder


def lmcache_agent(folder: Path) -> Path:
    prompts = [f"{PLANTED} " * count for count in (40, 80, 120)]
    return jsonl(folder / f"{PLANTED}.jsonl", *(
        {"timestamp": int((1.7e9 + at) * 1e6), "input": prompt, "output": PLANTED, "session_id": PLANTED}
        for at, prompt in enumerate(prompts)
    ))  # fmt: skip


def anthropic_bodies(folder: Path) -> Path:
    body = {
        "model": "m", "max_tokens": 10, "system": [{"type": "text", "text": f"You are {PLANTED}."}],
        "metadata": {"user_id": f"user_{PLANTED}_account__session_{PLANTED}"},
        "tools": [{"name": PLANTED, "description": PLANTED, "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": f"{PLANTED} " * 30}],
    }  # fmt: skip
    record = {"request": {"timestamp": 1.7e9, "url": "https://h/v1/messages", "headers": {"x-api-key": PLANTED},
                          "body": body},
              "response": {"body": {"content": [{"type": "text", "text": PLANTED}]}}}  # fmt: skip
    return jsonl(folder / f"{PLANTED}.jsonl", record, record)


def mini_swe_agent(folder: Path) -> Path:
    answers = [{"role": "assistant", "content": PLANTED, "extra": {"timestamp": 1.7e9 + at}} for at in range(2)]
    messages = [{"role": "system", "content": PLANTED}, {"role": "user", "content": f"{PLANTED} " * 30}, answers[0],
                {"role": "user", "content": PLANTED}, answers[1]]  # fmt: skip
    return document(folder / f"{PLANTED}.traj.json", messages)


def vllm_log(folder: Path) -> Path:
    path = folder / f"{PLANTED}.log"
    path.write_text(
        f"INFO 10-01 18:43:27 x.py:3] Received request {PLANTED}-1: prompt: '{PLANTED} {PLANTED}', "
        "params: SamplingParams(), prompt_token_ids: None, lora_request: None.\n"
        f"INFO 10-01 18:43:28 x.py:3] Received request {PLANTED}-2: prompt: '{PLANTED} {PLANTED} {PLANTED}', "
        "params: SamplingParams(), prompt_token_ids: None, lora_request: None.\n"
    )
    return path


LOGS: dict[str, Callable[[Path], Path]] = {
    "chat-jsonl": plain_chat,
    "claude-code": claude_project,
    "lmcache-agent": lmcache_agent,
    "anthropic": anthropic_bodies,
    "mini-swe-agent": mini_swe_agent,
    "vllm-log": vllm_log,
}
SETTINGS = {
    "native": ConvertSettings(),
    "one token": ConvertSettings(block_tokens=1),
    "own salt": ConvertSettings(salt=SALT),
    "mooncake": ConvertSettings(to="mooncake", block_tokens=4),
    "token ids": ConvertSettings(token_ids=True),
}


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("log", LOGS)
def test_no_word_of_a_log_comes_into_a_trace(log: str, settings: str, tmp_path: Path) -> None:
    data = converted([LOGS[log](tmp_path)], SETTINGS[settings], skip_bad_lines=True)
    assert PLANTED.encode() not in data.lower()
    assert str(tmp_path).encode() not in data
    # All strings there are, not only the one that was planted: names of fields, digits, what the product itself says.
    records = [orjson.loads(line) for line in data.splitlines()]
    header = [] if settings == "mooncake" else [records.pop(0)]
    fields = {"task", "call", "arrival_s", "gap_s", "prompt", "blocks", "tokens", "keep", "append", "output",
              "service_s", "salt", "model", "timestamp", "input_length", "output_length", "hash_ids", "block_size",
              "session_id", "delay"}  # fmt: skip
    for value in strings(records):
        assert value in fields | {"m", "claude-x"} or DIGITS.fullmatch(value) or re.fullmatch(r"task-\d", value)
    for record in header:
        for notice in record.pop("warnings"):
            assert notice["text"].startswith(
                ("no tokenizer was given when", "noted when the log was read; the words are")
            )
            assert re.fullmatch("[a-z-]+", notice["code"])
        assert set(record) - {"id_space"} == {"schema", "prompt", "block_tokens", "tokenizer", "source"}
        assert record["tokenizer"] in ("approximate", None)
        assert len(record["source"]) < 40


def test_ids_of_a_text_without_the_salt_are_no_function_of_it(tmp_path: Path) -> None:
    # What an attacker has is the text: with it alone no id is found again, neither by the tokenizer nor by a guess.
    log = plain_chat(tmp_path)
    tokens = {token for call in open_trace([log], TraceOptions(skip_bad_lines=True)) for token in call.ids.tolist()}
    ids = {
        number
        for prompt in block_ids(converted([log], ConvertSettings(block_tokens=1), skip_bad_lines=True))
        for number in prompt
    }
    assert tokens
    assert not ids & tokens


def test_a_tokenizer_is_named_without_its_path(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("jinja2")
    from tests.trace.tinytokenizer import write_model

    model = write_model(tmp_path / PLANTED / "Tiny-2.5B")
    log = jsonl(tmp_path / "log.jsonl", {"messages": [{"role": "user", "content": "hello " * 20}]})
    for given_as in (model, model / "tokenizer.json"):
        data = converted([log], tokenizer=str(given_as))
        header = orjson.loads(data.splitlines()[0])
        assert header["tokenizer"] == "Tiny-2.5B"
        assert header["warnings"] == []
        assert PLANTED.encode() not in data
