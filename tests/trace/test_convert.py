"""Converting keeps who shares what with whom, whatever the way."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import EactlError
from eactl.trace import Call, TraceOptions, open_trace
from eactl.trace.convert import ConvertSettings, convert
from eactl.trace.numbering import ChainedNumbering
from tests.trace import formats
from tests.trace.formats import Request

MOONCAKE = ConvertSettings(to="mooncake")
blocks = st.sampled_from([1, 3, 4, 16])


def converted(paths: list[Path], settings: ConvertSettings | None = None, **options: Any) -> list[dict[str, Any]]:
    """The lines that come out."""
    out = io.BytesIO()
    convert(open_trace(paths, TraceOptions(**options)), out, settings or ConvertSettings())
    return [orjson.loads(line) for line in out.getvalue().splitlines()]


def save(path: Path, lines: list[dict[str, Any]]) -> Path:
    return formats.write_lines(path, lines)


def facts(call: Call) -> tuple[Any, ...]:
    return call.prompt_tokens, call.output_tokens, call.call, call.arrival_s, call.salt, call.model


@pytest.mark.parametrize("name", formats.BLOCK_WRITERS)
@given(requests=formats.requests(), block=blocks)
def test_native_to_mooncake_to_native_keeps_what_is_shared(name: str, requests: list[Request], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        source = formats.BLOCK_WRITERS[name](here, requests, block)
        size = block if name == "bailian" else None
        calls = list(open_trace([source], TraceOptions(block_tokens=size)))
        native = save(here / "native.jsonl", converted([source], block_tokens=size))
        mooncake = save(here / "m.jsonl", converted([native], MOONCAKE))
        again = save(here / "again.jsonl", converted([mooncake]))
        first, second, third = (list(open_trace([path])) for path in (native, mooncake, again))

    expected = formats.sharing(calls)
    for made in (first, second, third):
        assert formats.sharing(made) == expected
        assert [call.prompt_tokens for call in made] == [call.prompt_tokens for call in calls]
        assert [call.output_tokens for call in made] == [call.output_tokens for call in calls]
        assert [call.arrival_s for call in made] == pytest.approx([call.arrival_s for call in calls], abs=1e-8)
        assert [(call.task, call.call) for call in made] == [(call.task, call.call) for call in first]
    if name != "lmcache-lookup":
        assert [call.task for call in first] == [call.task for call in calls]


@given(requests=formats.requests(), block=st.sampled_from([2, 5]))
def test_native_ids_are_chained_whatever_the_source(requests: list[Request], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = converted([formats.write_bailian(Path(folder), requests, block)], block_tokens=block)
    prefix_of: dict[int, tuple[int, ...]] = {}
    for request, line in zip(requests, lines[1:], strict=True):
        for at, number in enumerate(line["prompt"]["blocks"], 1):
            assert prefix_of.setdefault(number, request.prompt[: at * block]) == request.prompt[: at * block]
    assert len(set(prefix_of.values())) == len(prefix_of)


@given(requests=formats.requests())
def test_tokens_to_tokens_keeps_every_token(requests: list[Request]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = formats.write_native_tokens(Path(folder), requests, 1)
        again = save(Path(folder) / "again.jsonl", converted([source]))
        before, after = list(open_trace([source])), list(open_trace([again]))
    assert [call.ids.tolist() for call in after] == [call.ids.tolist() for call in before]
    assert [facts(call) for call in after] == [facts(call) for call in before]


@given(requests=formats.requests(), block=st.sampled_from([1, 3, 8]))
def test_tokens_to_mooncake_shares_whole_blocks(requests: list[Request], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = formats.write_native_tokens(Path(folder), requests, 1)
        lines = converted([source], ConvertSettings(to="mooncake", block_tokens=block))
        calls = list(open_trace([save(Path(folder) / "m.jsonl", lines)]))
    assert formats.sharing(calls) == formats.expected_sharing(requests, block)
    assert all(len(line["hash_ids"]) == -(-line["input_length"] // block) for line in lines)


@given(
    prompts=st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 2), max_size=12)), max_size=25),
)
def test_equal_number_means_equal_space_and_equal_prefix(prompts: list[tuple[str, list[int]]]) -> None:
    numbering = ChainedNumbering()
    numbers: dict[tuple[str, tuple[int, ...]], int] = {}
    for space, ids in prompts:
        given_out = numbering.number(space, np.array(ids, dtype=np.int64)).tolist()
        assert len(given_out) == len(ids)
        for end, number in enumerate(given_out, 1):
            assert numbers.setdefault((space, tuple(ids[:end])), number) == number
        fresh = numbering.fresh()
        assert fresh not in numbers.values()
    assert sorted(set(numbers.values())) == sorted(numbers.values())


def test_files_with_local_ids_do_not_come_to_share_them(tmp_path: Path) -> None:
    requests = [Request(0, (1, 2, 3, 4), 0, 1), Request(0, (1, 2, 3, 4, 5, 6), 10, 1)]
    one = formats.write_mooncake(tmp_path, requests, 2).rename(tmp_path / "one.jsonl")
    two = formats.write_mooncake(tmp_path, requests, 2).rename(tmp_path / "two.jsonl")
    for settings in (ConvertSettings(), MOONCAKE):
        out = save(tmp_path / "both.jsonl", converted([one, two], settings))
        by_task: dict[str | None, set[int]] = {}
        for call in open_trace([out]):
            by_task.setdefault(call.task, set()).update(call.ids.tolist())
        assert len(by_task) == 2
        assert not set.intersection(*by_task.values())


def test_salts_and_models_stay_apart_in_mooncake_lines(tmp_path: Path) -> None:
    header = {"schema": "eactl.trace/1", "prompt": "blocks", "block_tokens": 4}
    lines = [
        {"task": f"t{at}", "call": 0, "arrival_s": 0.0, "prompt": {"blocks": [1, 2], "tokens": 8}, **keys}
        for at, keys in enumerate([{}, {}, {"salt": "x"}, {"model": "m"}, {"salt": "x"}])
    ]
    rows = converted([save(tmp_path / "t.jsonl", [header, *lines])], MOONCAKE)
    ids = [tuple(row["hash_ids"]) for row in rows]
    assert ids[0] == ids[1] and ids[2] == ids[4]
    assert not set(ids[0]) & set(ids[2]) and not set(ids[0]) & set(ids[3]) and not set(ids[2]) & set(ids[3])


def test_a_mooncake_line_has_the_fields_that_load_generators_read(tmp_path: Path) -> None:
    header = {"schema": "eactl.trace/1", "prompt": "blocks", "block_tokens": 64}
    lines = [
        {"task": "a", "call": 0, "arrival_s": 1.5, "prompt": {"blocks": [5], "tokens": 100}, "output": {"tokens": 9}},
        {"task": "a", "call": 1, "arrival_s": 2.0015, "gap_s": 0.25, "prompt": {"blocks": [5, 6], "tokens": 128},
         "output": None},
        {"task": "a", "call": 2, "arrival_s": None, "gap_s": 3, "prompt": {"blocks": [5, 6], "tokens": 140}},
    ]  # fmt: skip
    path = save(tmp_path / "t.jsonl", [header, *lines])
    assert converted([path], MOONCAKE) == [
        {"timestamp": 1500, "input_length": 100, "output_length": 9, "hash_ids": [0, 1], "block_size": 64,
         "session_id": "a"},
        {"timestamp": 2001.5, "input_length": 128, "hash_ids": [0, 2], "block_size": 64, "session_id": "a",
         "delay": 250},
        {"input_length": 140, "hash_ids": [0, 2, 3], "block_size": 64, "session_id": "a", "delay": 3000},
    ]  # fmt: skip
    with pytest.raises(EactlError, match="call 2 of task 'a' has no arrival time"):
        converted([path], ConvertSettings(to="mooncake", sessions=False))


def test_every_field_of_the_native_format_survives(tmp_path: Path) -> None:
    header = {"schema": "eactl.trace/1", "prompt": "tokens", "block_tokens": None, "tokenizer": "qwen",
              "source": "s", "warnings": [{"code": "c", "text": "t", "hint": "h"}]}  # fmt: skip
    lines = [
        {"task": "a", "call": 0, "arrival_s": 0.125, "gap_s": None, "prompt": {"keep": 0, "append": [1, 2]},
         "output": {"append": [3, 4]}, "service_s": 0.5, "salt": "x", "model": "m"},
        {"task": "a", "call": 1, "arrival_s": 1.0, "gap_s": 0.375, "prompt": {"keep": 4, "append": [9]},
         "output": {"tokens": 7}, "service_s": None, "salt": "x", "model": "m"},
        {"task": "a", "call": 2, "arrival_s": None, "gap_s": None, "prompt": {"keep": 1, "append": [9]},
         "output": None, "service_s": None, "salt": None, "model": None},
    ]  # fmt: skip
    path = save(tmp_path / "t.jsonl", [header, *lines])
    assert converted([path]) == [{**header, "source": "native"}, *lines]


@pytest.mark.parametrize("order", [1, -1])
def test_different_block_sizes_do_not_go_into_one_trace(tmp_path: Path, order: int) -> None:
    requests = [Request(0, (1, 2, 3, 4), 0, 1)]
    one = formats.write_mooncake(tmp_path, requests, 2)
    two = formats.write_native_blocks(tmp_path, requests, 4)
    tokens = formats.write_native_tokens(tmp_path, requests, 1)
    out = io.BytesIO()
    with pytest.raises(EactlError) as caught:
        convert(open_trace([one, two, tokens][::order]), out, ConvertSettings())
    assert str(caught.value) == (
        f"the files do not fit into one trace: token ids ({tokens}) and blocks of 2 tokens ({one}) and "
        f"blocks of 4 tokens ({two}), convert them one by one"
    )
    assert not out.getvalue()


def test_huge_hash_ids_become_small_numbers(tmp_path: Path) -> None:
    requests = [Request(0, (1, 2, 3, 4), 0, 1), Request(1, (1, 2, 3, 4, 5, 6), 10, 1)]
    lines = converted([formats.write_lmcache_lookup(tmp_path, requests, 2)])
    assert [line["prompt"]["blocks"] for line in lines[1:]] == [[0, 1], [0, 1, 2]]
    assert json.dumps(lines[0]["source"]) == '"lmcache-lookup"'


def test_what_mooncake_lines_cannot_hold_is_said(tmp_path: Path) -> None:
    header = {"schema": "eactl.trace/1", "prompt": "blocks", "block_tokens": 4}
    lines = [
        {"task": f"t{at}", "call": 0, "arrival_s": 0.0, "prompt": {"blocks": [1], "tokens": 4}, "model": model}
        for at, model in enumerate([None, "m"])
    ]
    trace = open_trace([save(tmp_path / "t.jsonl", [header, *lines])])
    notices = convert(trace, io.BytesIO(), MOONCAKE).warnings
    assert [notice.code for notice in notices] == ["no-models-or-salts", "no-output-lengths"]
    assert "2 calls have no known output length" in notices[1].text
