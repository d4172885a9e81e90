"""Files, directories, several paths at once, pipes: what is opened and in which order calls come."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from eactl.errors import TraceError
from eactl.trace import TraceOptions, open_trace
from tests.trace.formats import write_lines


def mooncake(path: Path, *times_ms: int, session: str | None = None) -> Path:
    extra = {} if session is None else {"session_id": session}
    return write_lines(path, [
        {"timestamp": at, "input_length": 5, "output_length": 1, "hash_ids": [0], **extra} for at in times_ms
    ])  # fmt: skip


def test_several_files_are_merged_by_arrival_with_ties_in_the_order_of_the_files(tmp_path: Path) -> None:
    one = mooncake(tmp_path / "1.jsonl", 0, 5000, 5000, session="x")
    two = mooncake(tmp_path / "2.jsonl", 2000, 5000, 9000, session="x")
    calls = list(open_trace([one, two]))
    assert [(call.arrival_s, call.task, call.line) for call in calls] == [
        (0, "x", 1), (2, "x#2", 1), (5, "x", 2), (5, "x", 3), (5, "x#2", 2), (9, "x#2", 3),
    ]  # fmt: skip


def test_each_file_keeps_its_own_order_when_merged(tmp_path: Path) -> None:
    one = mooncake(tmp_path / "1.jsonl", 4000, 1000, 6000)  # its clock goes back
    two = mooncake(tmp_path / "2.jsonl", 2000, 5000)
    calls = list(open_trace([one, two]))
    assert [call.arrival_s for call in calls] == [2, 4, 1, 5, 6]


def test_files_without_times_follow_one_another(tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        header = {"schema": "eactl.trace/1", "prompt": "blocks", "block_tokens": 16}
        lines = [{"task": name, "call": at, "prompt": {"blocks": [], "tokens": 3}} for at in range(3)]
        paths.append(write_lines(tmp_path / f"{name}.jsonl", [header, *lines]))
    assert [call.task for call in open_trace(paths)] == ["a", "a", "a", "b", "b", "b"]


def test_a_directory_is_walked_and_foreign_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    mooncake(tmp_path / "deep" / "er" / "m.jsonl", 0)
    mooncake(tmp_path / "z.jsonl", 1)
    (tmp_path / "README.md").write_text("# traces\n")
    (tmp_path / "plot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "counts.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / ".hidden").write_text("x")
    trace = open_trace([tmp_path])
    assert [source.path for source in trace.sources] == [
        str(tmp_path / "z.jsonl"), str(tmp_path / "deep" / "er" / "m.jsonl"),
    ]  # fmt: skip
    notice, local = trace.warnings
    assert (notice.code, local.code) == ("passed-over-files", "local-ids")
    assert notice.text.startswith(f"4 files in {tmp_path} are no traces: README.md")
    for name in ("plot.png", "counts.csv", "empty.jsonl"):
        assert name in notice.text


def test_a_directory_without_a_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="the directory holds no files"):
        open_trace([tmp_path])
    (tmp_path / "README.md").write_text("# nothing\n")
    with pytest.raises(TraceError, match=r"nothing in the directory can be read as a trace, README\.md"):
        open_trace([tmp_path])


def test_a_bad_line_in_a_directory_is_still_an_error(tmp_path: Path) -> None:
    mooncake(tmp_path / "a.jsonl", 0)
    path = mooncake(tmp_path / "b.jsonl", 0, 1)
    path.write_text(path.read_text().replace("[0]", "[0, 1]"))
    with pytest.raises(TraceError) as caught:
        list(open_trace([tmp_path]))
    assert caught.value.where == f"{path}:1"


def test_the_same_file_is_read_once(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "a.jsonl", 0, 1)
    trace = open_trace([path, tmp_path, path])
    assert len(list(trace)) == 2
    assert [notice.code for notice in trace.warnings] == ["same-file", "same-file"]


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    text = mooncake(tmp_path / "a.jsonl", *range(20_000)).read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    assert len(list(open_trace([pipe]))) == 20_000
    writer.join()


def test_bytes_read_are_reported_and_add_up(tmp_path: Path) -> None:
    one, two = mooncake(tmp_path / "1.jsonl", *range(5000)), mooncake(tmp_path / "2.jsonl", 1, 2)
    heard: list[int] = []
    trace = open_trace([one, two], on_bytes=heard.append)
    assert heard == []
    assert len(list(trace)) == 5002
    assert sum(heard) == trace.total_bytes == one.stat().st_size + two.stat().st_size


def test_files_of_different_kinds_can_be_iterated_together(tmp_path: Path) -> None:
    header = {"schema": "eactl.trace/1", "prompt": "tokens"}
    call = {"task": "t", "call": 0, "prompt": {"append": [1, 2]}}
    tokens = write_lines(tmp_path / "t.jsonl", [header, call])
    trace = open_trace([mooncake(tmp_path / "m.jsonl", 0), tokens])
    assert sorted(call.unit_tokens for call in trace) == [1, 512]
    assert (trace.kind, trace.unit_tokens) == ("blocks", None)


def test_more_files_than_may_be_open_at_once_can_be_read(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    for number in range(60):
        document = {"id": f"s{number}", "block_size": 4, "hash_id_scope": "local",
                    "requests": [{"t": 0.0, "in": 4, "out": 1, "hash_ids": [1]}]}  # fmt: skip
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
        mooncake(tmp_path / f"{number}.jsonl", 0, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        assert len(list(open_trace([tmp_path], TraceOptions()))) == 60 + 120
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ids_that_cannot_be_compared_between_files_are_said(tmp_path: Path) -> None:
    one, two = mooncake(tmp_path / "1.jsonl", 0), mooncake(tmp_path / "2.jsonl", 1)
    assert open_trace([one]).warnings == []
    assert [notice.text for notice in open_trace([one, two]).warnings] == [
        "block ids of 2 files mean something within their file only: what files share is not seen"
    ]


def test_a_pipe_inside_a_directory_is_not_waited_for(tmp_path: Path) -> None:
    mooncake(tmp_path / "a.jsonl", 0)
    os.mkfifo(tmp_path / "pipe")
    assert len(list(open_trace([tmp_path]))) == 1


def test_a_broken_trace_in_a_directory_is_no_foreign_file(tmp_path: Path) -> None:
    mooncake(tmp_path / "a.jsonl", 0)
    write_lines(tmp_path / "b.jsonl", [{"schema": "eactl.trace/2", "prompt": "blocks", "block_tokens": 16}])
    with pytest.raises(TraceError, match=r"schema 'eactl\.trace/2' is not eactl\.trace/1"):
        open_trace([tmp_path])


def test_a_named_format_takes_only_its_files_from_a_directory(tmp_path: Path) -> None:
    mooncake(tmp_path / "a.jsonl", 0)
    (tmp_path / "README.md").write_text("# traces\n")
    trace = open_trace([tmp_path], TraceOptions(format="mooncake"))
    assert len(list(trace)) == 1
    assert "README.md (not mooncake: its lines are no JSON objects)" in trace.warnings[0].text


def test_a_readme_with_an_example_line_is_no_trace(tmp_path: Path) -> None:
    line = mooncake(tmp_path / "a.jsonl", 0).read_text()
    (tmp_path / "README.md").write_text(f"# The trace\n\nOne request per line:\n\n```json\n{line}```\n\nEnjoy.\n")
    trace = open_trace([tmp_path])
    assert len(list(trace)) == 1
    assert trace.warnings[0].text.startswith(f"1 file in {tmp_path} is no trace: README.md")
