"""Claude Code transcripts: what a request is, and what its prompt was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eactl.trace import open_trace
from eactl.trace.chat import ChatRequest
from eactl.trace.readers.claude_code import COMPACTION, SUMMARY_REQUEST, ClaudeCodeReader
from tests.trace.textlogs import Transcript, calls, chats, jsonl, roles, stream, text, texts, tool_use, warnings_of


def test_a_response_over_several_lines_is_one_request_with_its_last_counts(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.user("hello")
    log.assistant("m1", text("let me look"), (3, 100, 900, 1))
    log.assistant("m1", tool_use("t1"), (3, 100, 900, 27))
    (request,) = chats(log.write())
    assert request.usage is not None
    assert request.usage.prompt_tokens == 1003  # 3 + 100 + 900, once
    assert (request.usage.cached_tokens, request.usage.written_tokens) == (900, 100)
    assert request.usage.output_tokens is None, "no stop reason: 27 is what had been streamed so far"
    assert request.response is not None
    assert request.response["content"] == "let me look"
    assert request.response["tool_calls"][0]["function"]["name"] == "Bash"
    assert not request.exact, "system prompt and tools are not in the file"


def test_results_of_parallel_calls_under_different_lines_all_enter_the_next_prompt(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.user("go")
    first = log.assistant("m1", tool_use("t1"), (1, 0, 10, 1))
    second = log.assistant("m1", tool_use("t2"), (1, 0, 10, 1))
    log.result("t1", "one", parent=first)
    last = log.result("t2", "two", parent=second)
    log.assistant("m2", text("done"), (1, 0, 30, 1), parent=last)
    _, request = chats(log.write())
    assert roles(request) == ["user", "assistant", "tool", "tool"]
    assert texts(request)[2:] == ["one", "two"]
    assert len(request.messages[1]["tool_calls"]) == 2


def test_a_rewound_message_is_not_in_the_prompt_that_replaced_it(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.user("go")
    answer = log.assistant("m1", text("which?"), (1, 0, 10, 1))
    log.user("the wrong one", parent=answer)
    log.assistant("m2", text("doing it"), (1, 0, 20, 1))
    log.user("the right one", parent=answer)
    log.assistant("m3", text("good"), (1, 0, 20, 1))
    requests = chats(log.write())
    assert texts(requests[1]) == ["go", "which?", "the wrong one"]
    assert texts(requests[2]) == ["go", "which?", "the right one"]


def test_progress_snapshots_and_synthetic_messages_are_no_requests(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.lines.append({"type": "file-history-snapshot", "messageId": "x", "snapshot": {}})
    log.lines.append({"type": "summary", "summary": "old", "leafUuid": "x"})
    log.lines.append({"type": "a-type-of-tomorrow", "anything": [1]})
    log.user("go")
    log.line("progress", data={"type": "hook"})
    log.line(
        "assistant", message={"id": "m0", "role": "assistant", "model": "<synthetic>", "content": [text("API error")]}
    )
    log.line("progress", data={"type": "hook"})
    log.assistant("m1", text("hi"), (1, 0, 10, 1))
    (request,) = chats(log.write())
    assert texts(request) == ["go"]


def test_compaction_cuts_the_history_and_is_named(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "s.jsonl")
    log.user("go")
    log.assistant("m1", text("long work"), (1, 0, 1000, 1))
    log.line("system", parent=None, subtype="compact_boundary", compactMetadata={"trigger": "auto"})
    log.user("summary of it all", isCompactSummary=True)
    log.assistant("m2", text("on we go"), (1, 0, 300, 1))
    before, after = chats(log.write())
    assert texts(after) == ["summary of it all"]
    assert after.events == [COMPACTION]
    assert before.session == after.session


def test_the_summarising_request_reads_its_sessions_whole_prompt(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "s.jsonl")
    log.user("go")
    log.assistant("m1", tool_use("t1"), (1, 99, 900, 1))
    tail = log.result("t1", "a result")
    log.line("system", parent=None, subtype="compact_boundary", at=50)
    log.user("the summary", at=51)
    log.assistant("m2", text("on"), (1, 0, 300, 1), at=52)
    summary = Transcript(tmp_path / "s" / "subagents" / "agent-acompact-1.jsonl", agent="acompact-1", prefix="c")
    summary.user("now summarise", parent=tail, at=40)
    summary.assistant("c1", text("the summary"), (1, 99, 1000, 1), at=45)
    requests = chats(log.write(), summary.write())
    assert [request.session for request in requests] == ["s-1"] * 3
    assert texts(requests[1]) == ["go", "", "a result", "now summarise"]
    assert SUMMARY_REQUEST in requests[1].events
    # Both files count what stands in them.
    opened = stream(log.path, summary.path)
    list(opened)
    assert [source.calls for source in opened.sources] == [2, 1]
    # Its prompt begins with the 1,000 tokens of m1's, so the next prompt of 1,100 shares them.
    work = calls(log.path, summary.path)
    assert [call.prompt_tokens for call in work] == [1000, 1100, 301]
    assert (work[0].ids == work[1].ids[:1000]).all()


def test_sub_agents_are_sessions_of_their_own_in_both_layouts(tmp_path: Path) -> None:
    old = Transcript(tmp_path / "old.jsonl", session="old")
    old.user("go")
    task = old.assistant("m1", tool_use("t1", "Task"), (1, 0, 10, 1))
    old.user("find it", parent=None, isSidechain=True)
    old.assistant("a1", text("found"), (1, 0, 5, 1), isSidechain=True)
    old.result("t1", "found", parent=task)
    old.assistant("m2", text("thanks"), (1, 0, 20, 1))
    requests = chats(old.write())
    assert [request.session for request in requests] == ["old", "old/agent-u3", "old"]
    assert requests[1].parent == "old"
    assert texts(requests[1]) == ["find it"]
    assert roles(requests[2]) == ["user", "assistant", "tool"]

    new = Transcript(tmp_path / "new" / "subagents" / "agent-a7.jsonl", session="new", agent="a7")
    new.user("find it")
    new.assistant("b1", text("found"), (1, 0, 5, 1))
    (request,) = chats(new.write())
    assert (request.session, request.parent) == ("new/agent-a7", "new")


def test_a_resumed_session_counts_copied_responses_once(tmp_path: Path) -> None:
    first = Transcript(tmp_path / "first.jsonl", session="first")
    first.user("go")
    first.assistant("m1", text("done"), (1, 0, 10, 1))
    copied = [{**line, "sessionId": "second"} for line in first.lines if isinstance(line, dict)]
    second = Transcript(tmp_path / "second.jsonl", session="second", prefix="v")
    second.parent = "u2"
    second.user("more")
    second.assistant("m2", text("done too"), (1, 0, 20, 1))
    second.lines[:0] = copied
    requests = chats(first.write(), second.write())
    assert [request.usage.prompt_tokens for request in requests if request.usage] == [11, 21]
    assert texts(requests[1]) == ["go", "done", "more"]
    assert "copied-responses" in warnings_of(first.path, second.path)


def test_prompts_have_the_providers_length_and_share_what_it_read_from_its_cache(tmp_path: Path) -> None:
    """Two sessions: 900 of the first 1,000 tokens came from the cache both times, so other sessions wrote them."""
    for name in ("a", "b"):
        log = Transcript(tmp_path / f"{name}.jsonl", session=name, prefix=name)
        log.user(f"hello from {name}")
        log.assistant(f"{name}1", text("hi"), (10, 90, 900, 1))
        log.user("and now?")
        log.assistant(f"{name}2", text("bye"), (10, 190, 1000, 1))
        log.write()
    work = calls(tmp_path)
    assert sorted(call.prompt_tokens for call in work) == [1000, 1000, 1200, 1200]
    by_task = {name: [call for call in work if call.task == name] for name in ("a", "b")}
    for first, second in by_task.values():
        assert (first.ids == second.ids[:1000]).all(), "an appended prompt repeats the one before"
    shared = by_task["a"][0].ids == by_task["b"][0].ids
    assert int(shared.argmin()) == 900


def test_total_tokens_are_bounded_by_the_providers_count_and_never_called_exact(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.user("hello")
    log.assistant("m1", text("hi"), (10, 90, 900, 1))
    opened = open_trace([log.write()])
    list(opened)
    (source,) = opened.sources
    assert (source.prompt_tokens, source.lower_tokens, source.upper_tokens) == (1000, 1000, 1000)
    assert not source.exact
    assert {notice.code for notice in source.warnings} == {"hidden-prompt", "approximate-tokens"}


def test_a_live_transcript_is_read_up_to_its_cut_last_line(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.user("hello")
    log.assistant("m1", text("hi"), (10, 90, 900, 1))
    path = log.write()
    path.write_bytes(path.read_bytes() + b'{"type":"user","uuid":"u9","parentU')
    assert len(chats(path)) == 1
    assert "cut-line" in warnings_of(path)


def test_parents_that_point_at_themselves_or_nowhere_do_not_hang(tmp_path: Path) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.line("user", parent="u1", message={"role": "user", "content": "I am my own parent"})
    log.line("user", parent="nowhere", message={"role": "user", "content": "orphan"})
    log.assistant("m1", text("hi"), (1, 0, 10, 1))
    (request,) = chats(log.write())
    assert texts(request) == ["orphan"]


@pytest.mark.parametrize("content", [None, 5, "text", [], [{"no": "type"}], ["bare text"]])
def test_content_of_any_shape_is_survived(tmp_path: Path, content: object) -> None:
    log = Transcript(tmp_path / "a.jsonl")
    log.user(content)
    log.assistant("m1", text("hi"), (1, 0, 10, 1))
    assert len(chats(log.write())) == 1
    assert calls(log.path)[0].prompt_tokens == 11


def test_times_without_a_date_leave_times_out(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"type": "user", "uuid": "1", "parentUuid": None, "sessionId": "s", "timestamp": "[trimmed]",
         "message": {"role": "user", "content": "hi"}},
        {"type": "assistant", "uuid": "2", "parentUuid": "1", "sessionId": "s", "timestamp": "[trimmed]",
         "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 7}}},
    )  # fmt: skip
    (request,) = chats(path)
    assert request.arrival_s is None and request.service_s is None


def test_of_many_transcripts_only_those_at_work_are_open_and_their_calls_come_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):  # a new one every 10 s, for 35 s
        log = Transcript(tmp_path / f"{number:02}.jsonl", session=f"s{number}", prefix=f"{number}-")
        for turn in range(4):
            at = 10 * number + 10 * turn
            log.user(f"say {number} {turn}", at=at)
            log.assistant(f"m{number}-{turn}", text("done"), (1, 0, 100 * (turn + 1), 1), at=at + 5)
        log.write()
    requests = ClaudeCodeReader.requests
    at_work = [0, 0]  # now, and the most so far

    def counted(reader: ClaudeCodeReader) -> Iterator[ChatRequest]:
        at_work[0] += 1
        at_work[1] = max(at_work)
        yield from requests(reader)
        at_work[0] -= 1

    monkeypatch.setattr(ClaudeCodeReader, "requests", counted)
    some = calls(tmp_path)
    assert at_work == [0, 3], "the first of a fourth comes with the last of the first, and after it"
    assert len(some) == 240
    arrivals = [call.arrival_s for call in some]
    assert arrivals[0] == 0 and arrivals == sorted(arrivals)

    monkeypatch.setattr("eactl.trace.stream._MOST_OPEN", 100)
    every = calls(tmp_path)
    assert at_work[1] == 60
    for one, other in zip(some, every, strict=True):
        assert (one.task, one.call, one.arrival_s, one.ids.tolist()) == (
            other.task, other.call, other.arrival_s, other.ids.tolist())  # fmt: skip
