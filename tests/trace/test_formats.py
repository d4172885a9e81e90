"""One workload, every format: the calls must be the same."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eactl.trace import Call, TraceOptions, open_trace
from tests.trace import formats
from tests.trace.formats import Request

blocks = st.sampled_from([1, 3, 4, 16])


def read(*paths: Path) -> list[Call]:
    return list(open_trace(paths))


@pytest.mark.parametrize("name", formats.BLOCK_WRITERS)
@given(requests=formats.requests(), block=blocks)
def test_every_format_gives_the_same_calls(name: str, requests: list[Request], block: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = formats.BLOCK_WRITERS[name](Path(folder), requests, block)
        trace = open_trace([path], TraceOptions(block_tokens=block if name == "bailian" else None))
        calls = list(trace)

    (source,) = trace.sources
    assert (source.format, source.kind, source.unit_tokens) == (name, "blocks", block)
    if name == "kv-cache-tester":  # sub-agents lie apart from their parent: equal times may change places
        order = sorted(range(len(requests)), key=lambda at: requests[at].arrival_ms)
        if len({request.arrival_ms for request in requests}) < len(requests):
            return
        requests = [requests[at] for at in order]
    assert [call.prompt_tokens for call in calls] == [len(request.prompt) for request in requests]
    assert all(len(call.ids) == call.prompt_tokens // block for call in calls)
    assert formats.sharing(calls) == formats.expected_sharing(requests, block)
    first = requests[0].arrival_ms if name == "lmcache-lookup" else 0  # epoch times are counted from the first
    assert [call.arrival_s for call in calls] == pytest.approx(
        [(r.arrival_ms - first) / 1000 for r in requests], abs=2e-6
    )
    if name != "lmcache-lookup":  # which logs neither outputs nor tasks
        assert [call.output_tokens for call in calls] == [request.output_tokens for request in requests]
        assert formats.tasks_alike([call.task for call in calls], requests)
    assert source.calls == len(requests)
    assert source.prompt_tokens == sum(len(request.prompt) for request in requests)


@given(requests=formats.requests())
def test_a_token_trace_gives_the_prompts_themselves(requests: list[Request]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        calls = read(formats.write_native_tokens(Path(folder), requests, 1))
    assert [tuple(call.ids.tolist()) for call in calls] == [request.prompt for request in requests]
    assert all(not call.ids.flags.writeable for call in calls)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "txt"])
def test_compression_is_told_by_the_contents_not_the_name(tmp_path: Path, suffix: str) -> None:
    requests = [Request(0, (1, 2, 3, 4), 0, 1), Request(0, (1, 2, 3, 4, 5), 10, 1)]
    plain = formats.write_mooncake(tmp_path, requests, 2)
    text = plain.read_bytes()
    packed = {
        "plain": text,
        "gzip": gzip.compress(text),
        "two gzip members": gzip.compress(text[:50]) + gzip.compress(text[50:]),
        "zstd": zstandard.compress(text),
        "two zstd frames": zstandard.compress(text[:50]) + zstandard.compress(text[50:]),
    }
    for how, contents in packed.items():
        path = tmp_path / f"{how}.{suffix}"
        path.write_bytes(contents)
        assert [call.prompt_tokens for call in read(path)] == [4, 5], how


def test_a_file_without_a_last_line_end_and_with_blank_lines_is_whole(tmp_path: Path) -> None:
    path = formats.write_mooncake(tmp_path, [Request(0, (1, 2), 0, 1), Request(0, (1, 2, 3), 10, 1)], 2)
    one, two = path.read_text().splitlines()
    path.write_text(f"\ufeff\n{one}\r\n   \r\n\n{two}")
    calls = read(path)
    assert [(call.prompt_tokens, call.line) for call in calls] == [(2, 2), (3, 5)]


def test_batches_do_not_change_what_is_read(tmp_path: Path) -> None:
    requests = [Request(at % 7, tuple(range(at % 50 + 1)), at, 1) for at in range(3000)]
    path = formats.write_mooncake(tmp_path, requests, 4)
    trace = open_trace([path])
    trace._readers[0].file.batch_bytes = 1000
    small = [(call.line, call.call, call.task, call.ids.tolist()) for call in trace]
    assert small == [(call.line, call.call, call.task, call.ids.tolist()) for call in read(path)]
    assert len(small) == 3000
