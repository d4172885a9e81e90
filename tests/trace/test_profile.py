"""``eactl trace profile``: the numbers, worked out by hand, and what it says to traces that do not tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.cli import run
from eactl.report.profile import short_paths
from eactl.trace import open_trace
from eactl.trace.call import Call
from eactl.trace.statistics import Distribution, condensations, profile_trace, profile_workload, shared_prefixes
from eactl.trace.synth import SynthSettings, make_plan, synthesise
from eactl.trace.workload import load_workload
from tests.cli_runner import eactl


def call(task: str, prompt: list[int], unit: int = 1, **fields: Any) -> Call:
    return Call(task, len(prompt) * unit, np.array(prompt, dtype=np.int64), unit, **fields)


def native(path: Path, *calls: dict[str, Any], prompt: str = "tokens", block_tokens: int | None = None) -> Path:
    header = {"schema": "eactl.trace/1", "prompt": prompt, "block_tokens": block_tokens, "tokenizer": None,
              "source": "made by hand", "warnings": []}  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *calls)))
    return path


def profile(capsysbinary: pytest.CaptureFixture[bytes], *arguments: object) -> dict[str, Any]:
    assert run(["trace", "profile", *map(str, arguments), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsysbinary.readouterr().out)
    return document


def test_a_token_trace_has_exact_stable_tokens(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    # a: [1 2 3], out [4 5]; then [1 2 3 4 5 6]: all 5 stable, 3 of them in the previous prompt
    # b: [1 2 9], out [8];   then [1 2 9 7]: the output came back as another token, 3 stable
    path = native(
        tmp_path / "made.jsonl",
        {"task": "a", "call": 0, "arrival_s": 0, "prompt": {"keep": 0, "append": [1, 2, 3]},
         "output": {"append": [4, 5]}, "service_s": 2},
        {"task": "b", "call": 0, "arrival_s": 1, "prompt": {"keep": 0, "append": [1, 2, 9]}, "output": {"append": [8]},
         "service_s": 1},
        {"task": "a", "call": 1, "arrival_s": 3, "gap_s": 1, "prompt": {"keep": 5, "append": [6]},
         "output": {"append": [7]}, "service_s": 1},
        {"task": "b", "call": 1, "arrival_s": 5, "gap_s": 3, "prompt": {"keep": 3, "append": [7]},
         "output": {"append": [7]}, "service_s": 5},
    )  # fmt: skip
    found = profile(capsysbinary, path)
    assert found["schema"] == "eactl.trace-profile/1"
    assert found["workload"] == {
        "tasks": 2, "calls": 4, "prompt_tokens": 16, "output_tokens": 5, "mean_prompt_tokens": 4.0,
        "max_prompt_tokens": 6, "stable_tokens": 8, "stable_share": 0.5, "stable_tokens_lower": 8,
        "stable_tokens_upper": 8, "previous_prompt_shared_tokens": 6,
    }  # fmt: skip
    assert found["shared_prefix_tokens"] == 2
    assert found["gap_s"] == {"count": 2, "mean": 2.0, "min": 1.0, "p50": 1.0, "p90": 3.0, "p99": 3.0, "max": 3.0}
    assert found["duration_s"] == 10
    # a is in progress from 0 to 4, b from 1 to 10: 13 task seconds in 10
    assert found["active_tasks"] == {"mean": 1.3, "max": 2, "over": "time"}
    assert found["warnings"] == []
    (source,) = found["sources"]
    assert (source["path"], source["format"], source["tasks"], source["calls"]) == (str(path), "native", 2, 4)
    assert (source["prompt_tokens"], source["output_tokens"], source["exact"]) == (16, 5, True)
    assert source["duplicate_of"] is None


def test_a_block_trace_bounds_stable_tokens_and_never_claims_to_know_them(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    # 10-token blocks: 25 tokens, 8 put out, then 40 tokens that begin with the same two blocks
    path = native(
        tmp_path / "made.jsonl",
        {"task": "a", "call": 0, "prompt": {"blocks": [1, 2], "tokens": 25}, "output": {"tokens": 8}},
        {"task": "a", "call": 1, "prompt": {"blocks": [1, 2, 3, 4], "tokens": 40}, "output": {"tokens": 8}},
        prompt="blocks", block_tokens=10,
    )  # fmt: skip
    work = (found := profile(capsysbinary, path))["workload"]
    assert (work["stable_tokens"], work["stable_share"]) == (None, None)
    assert work["stable_tokens_lower"] == 20  # the two blocks
    assert work["stable_tokens_upper"] == 33  # the whole prompt and its output
    codes = [warning["code"] for warning in found["warnings"]]
    assert codes == ["stable-bounded", "one-task", "not-recorded"]
    assert found["warnings"][-1]["text"] == "the trace does not tell gap_s, service_s, duration_s"
    assert (found["duration_s"], found["gap_s"]) == (None, None)


def test_one_task_has_nothing_to_share_with(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = native(
        tmp_path / "made.jsonl",
        {"task": "a", "call": 0, "prompt": {"keep": 0, "append": [1]}, "output": {"append": [2]}},
    )
    found = profile(capsysbinary, path)
    assert found["shared_prefix_tokens"] is None
    assert [warning["code"] for warning in found["warnings"]] == ["one-task", "not-recorded"]


def test_tasks_of_two_kinds_are_two_groups_and_the_larger_one_counts() -> None:
    # three tasks share 1 2 3, two others share 7; a later turn changes nothing
    calls = [
        call("a", [1, 2, 3, 4]), call("b", [1, 2, 3, 5]), call("c", [1, 2, 3, 4, 6]),
        call("d", [7, 8]), call("e", [7, 9]), call("a", [1]),
    ]  # fmt: skip
    groups = shared_prefixes(load_workload(calls))
    assert [(group.tasks, group.tokens) for group in groups] == [(3, 3), (2, 1)]


def test_tasks_of_another_model_or_salt_share_nothing() -> None:
    calls = [call("a", [1, 2]), call("b", [1, 2], salt="other"), call("c", [1, 2], model="another")]
    found = profile_workload(load_workload(calls))
    assert (found.shared_prefix_tokens, found.shared_prefixes) == (0, ())


def test_a_call_that_keeps_less_than_half_of_the_previous_prompt_is_a_condensation() -> None:
    calls = [
        call("a", [1, 2, 3, 4]), call("a", [1, 2, 5]),  # keeps 2 of 4: half, an edit
        call("b", [1, 2, 3, 4, 5]), call("b", [1, 2, 9]),  # keeps 2 of 5: condensed, 3 dropped
        call("b", [8]),  # keeps 0 of 3
    ]  # fmt: skip
    found = condensations(load_workload(calls))
    assert (found.calls, found.tasks, found.dropped_tokens) == (2, 1, 6)


@given(st.integers(1, 6), st.integers(2, 9), st.integers(0, 1000))
def test_every_planned_condensation_is_found(tasks: int, every: int, seed: int) -> None:
    # a first prompt of 70 tokens, 500 more per turn: condensing to 70 + 10 drops more than half of almost any history
    made = SynthSettings(tasks=tasks, calls_per_task=12, system_tokens=10, task_tokens=60, output_tokens=300,
                         result_tokens=200, summary_tokens=10, condense_every=every, seed=seed)  # fmt: skip
    plan = make_plan(made)
    found = condensations(load_workload(synthesise(plan)))
    before, kept = plan.previous_prompt_tokens, np.minimum(plan.keep_tokens, plan.previous_prompt_tokens)
    assert found.calls == int((plan.shape.condensed & (2 * kept < before)).sum())


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=60))
def test_percentiles_are_values_that_occur_and_rise(values: list[int]) -> None:
    found = Distribution.of(np.array(values, dtype=np.float64))
    assert found is not None
    marks = [found.min, found.p50, found.p90, found.p99, found.max]
    assert marks == sorted(marks)
    assert set(marks) <= set(values)
    # at least half of the values are not above the median, and fewer than half are below it
    assert (
        sum(value <= found.p50 for value in values) * 2
        >= len(values)
        > sum(value < found.p50 for value in values) * 2 - 1
    )


def test_nothing_known_has_no_distribution() -> None:
    assert Distribution.of(np.array([np.nan, np.nan])) is None


def test_files_with_ids_of_their_own_are_not_compared(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    one = {"task": "a", "call": 0, "prompt": {"blocks": [1, 2], "tokens": 25}, "output": {"tokens": 8}}
    other = {**one, "task": "b", "prompt": {"blocks": [1, 3], "tokens": 29}}
    paths = [
        native(tmp_path / f"{line['task']}.jsonl", line, prompt="blocks", block_tokens=10) for line in (one, other)
    ]
    found = profile(capsysbinary, *paths)
    assert found["shared_prefix_tokens"] is None
    assert "local-ids" in [warning["code"] for warning in found["warnings"]]
    both = native(tmp_path / "both.jsonl", one, other, prompt="blocks", block_tokens=10)
    assert profile(capsysbinary, both)["shared_prefix_tokens"] == 10


def test_tasks_are_counted_even_where_the_format_names_none(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "mooncake.jsonl"
    rows = [(0, [1, 2, 3]), (5, [7, 8, 9]), (9, [1, 2, 4, 5])]  # the third goes on where the first's full blocks end
    path.write_text("".join(
        json.dumps({"timestamp": at, "input_length": 512 * len(ids) - 12, "output_length": 1, "hash_ids": ids}) + "\n"
        for at, ids in rows
    ))  # fmt: skip
    found = profile(capsysbinary, path)
    assert found["workload"]["tasks"] == found["sources"][0]["tasks"] == 2
    assert "tasks-inferred" in [warning["code"] for warning in found["warnings"]]


def test_the_statistics_of_the_stream_are_those_of_its_calls(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl.gz"
    assert run(["trace", "synth", "--tasks", "4", "--calls-per-task", "6", "-o", str(path)]) == 0
    found = profile_trace(open_trace([path]))
    plan = make_plan(SynthSettings(tasks=4, calls_per_task=6))
    assert found.prompt_tokens is not None
    assert found.prompt_tokens.max == int(plan.prompt_tokens.max())
    assert found.prompt_tokens.count == 24
    assert found.calls_per_task is not None
    assert found.calls_per_task.max == int(plan.shape.counts.max())


def test_people_get_a_table_and_one_sentence(root: Path) -> None:
    done = eactl("trace", "profile", root / "eactl" / "data" / "demo.jsonl.zst")
    assert (done.returncode, done.stderr) == (0, "")
    assert "20 tasks, 400 calls, 10.4M prompt tokens" in done.stdout
    assert "first prompts begin alike: 5,600 tokens by 20 tasks" in done.stdout
    assert done.stdout.rstrip().endswith("demo.jsonl.zst --model MODEL")


def test_a_saved_profile_is_the_printed_one(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = native(
        tmp_path / "made.jsonl",
        {"task": "a", "call": 0, "prompt": {"keep": 0, "append": [1]}, "output": {"append": [2]}},
    )
    printed = profile(capsysbinary, path)
    saved = tmp_path / "profile.json"
    assert run(["trace", "profile", str(path), "-o", str(saved)]) == 0
    assert json.loads(saved.read_text()) == printed
    assert run(["trace", "profile", str(path), "-o", str(saved)]) == 2  # not without --force


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\x00" * 100, "the format is not known"),
        (b'{"schema":"eactl.trace/1","prompt":"tokens"}\n', "holds no calls"),
        (b'{"schema":"eactl.trace/1","prompt":"tokens"}\n{"task":"a","call":0,"prompt":{"keep":0,"app', "made.jsonl:2"),
    ],
    ids=["empty", "NUL bytes", "no calls", "cut line"],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    path = tmp_path / "made.jsonl"
    path.write_bytes(content)
    assert run(["trace", "profile", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("eactl: error: ")
    assert message in captured.err


def test_skipped_lines_are_counted_and_named(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = native(
        tmp_path / "made.jsonl",
        {"task": "a", "call": 0, "prompt": {"keep": 0, "append": [1]}, "output": {"append": [2]}},
    )
    with path.open("a") as stream:
        stream.write("half a li")
    found = profile(capsysbinary, path, "--skip-bad-lines")
    assert found["sources"][0]["skipped_lines"] == [3]
    assert any("3" in warning["text"] for warning in found["warnings"])


def test_a_duplicate_session_is_named(shared_data: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = shared_data / "kv-cache-tester"
    found = profile(capsysbinary, folder / "trace_0403.json", folder / "trace_0427.json")
    assert [source["duplicate_of"] for source in found["sources"]] == [None, str(folder / "trace_0403.json")]
    assert found["workload"]["stable_tokens"] is None
    assert found["shared_prefix_tokens"] is None
    alone = profile(capsysbinary, folder / "trace_0403.json", folder / "trace_0427.json", "--drop-duplicates")
    assert 2 * alone["workload"]["calls"] == found["workload"]["calls"]


def test_a_recorded_mooncake_trace_has_bounds(shared_data: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    found = profile(capsysbinary, shared_data / "mooncake" / "synthetic_trace.jsonl")
    assert found["workload"]["calls"] == 3_993
    assert found["workload"]["stable_tokens"] is None
    assert found["workload"]["stable_tokens_lower"] <= found["workload"]["stable_tokens_upper"]


def test_long_paths_are_shortened_and_still_tell_files_apart() -> None:
    long = "x" * 40
    folder, names = short_paths([f"/logs/{long}/a.jsonl", f"/logs/{long}/deep/b.jsonl"])
    assert folder == f"/logs/{long}" and names == ["a.jsonl", "deep/b.jsonl"]
    folder, names = short_paths([f"/logs/run-{n}__{long}__same__{'y' * 40}.traj" for n in range(3)])
    assert folder == "/logs" and len(set(names)) == 3 and max(map(len, names)) <= 60
    # The names part only in what is left out of their middles.
    folder, names = short_paths([f"/logs/{long}__{what}__{'y' * 40}.traj" for what in ("one", "two", "three")])
    assert len(set(names)) == 3 and max(map(len, names)) <= 60
    assert [name[3:8] for name in names[:2]] == ["one__", "two__"]
    assert short_paths(["/only/one.jsonl"]) == ("", ["/only/one.jsonl"])
    assert short_paths(["a.jsonl", "-"]) == ("", ["a.jsonl", "-"])


def test_the_table_says_which_counts_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"session": "s", "messages": [{"role": "user", "content": "hello"}]}
    counted = {**line, "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps(counted) + "\n")
    assert run(["trace", "profile", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("source in /")
    assert rows[2].startswith("a.jsonl ") and rows[2].endswith("  approximate")
    assert rows[3].startswith("b.jsonl ") and rows[3].endswith("  counts exact, ids approximate")


def test_a_part_of_a_group_that_has_far_more_in_common_is_a_group_as_well() -> None:
    # five tasks share the token 1; three of them 60 tokens more: 2 x 61 saved are more than 4 x 1
    long = [1, *range(100, 160)]
    calls = [call("a", [1, 2]), call("b", [1, 3]), *(call(name, [*long, n]) for n, name in enumerate("cde"))]
    found = profile_workload(load_workload(calls))
    assert [(group.tasks, group.tokens) for group in found.shared_prefixes] == [(5, 1), (3, 61)]
    assert found.shared_prefix_tokens == 1


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=2, max_size=12))
def test_groups_that_share_save_what_the_best_prefix_saves(prompts: list[list[int]]) -> None:
    """Against every prefix of every first prompt, tried one by one."""
    groups = shared_prefixes(load_workload([call(f"t{n}", prompt) for n, prompt in enumerate(prompts)]))
    saved: dict[int, int] = {}
    for prompt in prompts:
        for length in range(1, len(prompt) + 1):
            many = sum(other[:length] == prompt[:length] for other in prompts)
            saved[prompt[0]] = max(saved.get(prompt[0], 0), (many - 1) * length)
    assert max(saved.values()) == max(((group.tasks - 1) * group.tokens for group in groups), default=0)
