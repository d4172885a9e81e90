"""Public logs beside the checkout: numbers of requests and prompt tokens, against counts made independently here.

The oracles below know a format's counting rule and nothing of the readers: json and loops only.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eactl.errors import TraceError
from eactl.trace import open_trace
from eactl.trace.chatlog import open_chat
from eactl.trace.workload import load_workload

Counts = tuple[int, int]  # requests; prompt tokens where they are recorded


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def claude(path: Path) -> Counts:
    prompts: dict[str, int] = {}
    for record in lines(path):
        message = record.get("message") or {}
        if record.get("type") != "assistant" or message.get("model") == "<synthetic>":
            continue
        usage = message.get("usage") or {}
        prompts[message.get("id") or record.get("requestId") or record["uuid"]] = sum(
            usage.get(key, 0) for key in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        )
    return len(prompts), sum(prompts.values())


def pi(path: Path) -> Counts:
    sums = []
    for record in lines(path):
        usage = (record.get("message") or {}).get("usage") or {}
        sums.append(usage.get("input", 0) + usage.get("cacheRead", 0) + usage.get("cacheWrite", 0))
    return sum(count > 0 for count in sums), sum(sums)


def codex(path: Path) -> Counts:
    totals: list[Any] = []
    prompts = 0
    for record in lines(path):
        info = record["payload"].get("info") if isinstance(record.get("payload"), dict) else None
        if not info or not info["total_token_usage"]["input_tokens"]:
            continue
        if not totals or totals[-1] != info["total_token_usage"]:
            totals.append(info["total_token_usage"])
            prompts += info["last_token_usage"]["input_tokens"]
    return len(totals), prompts


def kimi(path: Path) -> Counts:
    records = list(lines(path))
    usages = [record["usage"] for record in records if record["type"] == "usage.record"]  # compactions too
    prompts = sum(usage["inputOther"] + usage["inputCacheRead"] + usage["inputCacheCreation"] for usage in usages)
    return sum(record["type"] == "llm.request" for record in records), prompts


def copilot(path: Path) -> Counts:
    answers = [record["data"] for record in lines(path) if record["type"] == "assistant.message"]
    return len({answer.get("apiCallId") or answer["messageId"] for answer in answers}), 0


def openhands(path: Path) -> Counts:
    return 1, json.loads(path.read_text())["response"]["usage"]["prompt_tokens"]


def lmcache(path: Path) -> Counts:
    return len(list(lines(path))), 0


def inspect_json(path: Path) -> Counts:
    return inspect_samples(json.loads(path.read_text())["samples"])


def inspect_eval(path: Path) -> Counts:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.startswith("samples/")]
        return inspect_samples([json.loads(archive.read(name)) for name in names])


def inspect_samples(samples: list[dict[str, Any]]) -> Counts:
    usages = [event["output"]["usage"] for sample in samples for event in sample["events"] if event["event"] == "model"]
    return len(usages), sum(usage["input_tokens"] for usage in usages)


def nemo(path: Path) -> Counts:
    requests = 0
    for record in lines(path):
        before = "input"
        for item in record["response"]["output"]:
            model = item["type"] in ("function_call", "reasoning") or item.get("role") == "assistant"
            requests += model and before == "input"
            before = "model" if model else "input"
    return requests, 0


def swe(path: Path) -> Counts:
    document = json.loads(path.read_text())
    steps = document.get("trajectory")
    return len(steps) if steps else sum(message["role"] == "assistant" for message in document["history"]), 0


def mini(path: Path) -> Counts:
    return sum(message["role"] == "assistant" for message in json.loads(path.read_text())), 0


def langfuse(path: Path) -> Counts:
    generations = [each for each in json.loads(path.read_text())["observations"] if each["type"] == "GENERATION"]
    parents = {each["parentObservationId"] for each in generations}
    inner = [each["usageDetails"] for each in generations if each["id"] not in parents]
    return len(inner), sum(usage["total"] - usage["output"] for usage in inner)


FILES: list[tuple[str, str, Callable[[Path], Counts]]] = [
    ("spotter-claude-code/**/*.jsonl", "claude-code", claude),
    ("claude-code-viewer/*.jsonl", "claude-code", claude),
    ("agent-sessions-fixtures/claude*.jsonl", "claude-code", claude),
    ("agent-sessions-fixtures/codex*.jsonl", "codex", codex),
    ("agent-sessions-fixtures/kimi*.jsonl", "kimi", kimi),
    ("agent-sessions-fixtures/copilot*.jsonl", "copilot", copilot),
    ("pi-mono/*.jsonl", "pi", pi),
    ("openhands-llm-logs/**/*.json", "openhands", openhands),
    ("lmcache-agent-trace/**/*.jsonl", "lmcache-agent", lmcache),
    ("inspect-ai/*.json", "inspect-ai", inspect_json),
    ("inspect-ai/*.eval", "inspect-ai", inspect_eval),
    ("nemo-gym/*.jsonl", "nemo-gym", nemo),
    ("swe-agent/*.traj", "swe-agent", swe),
    ("mini-swe-agent/*.json", "mini-swe-agent", mini),
    ("langfuse/*.json", "langfuse", langfuse),
]


@pytest.mark.parametrize(("pattern", "name", "oracle"), FILES, ids=[pattern for pattern, _, _ in FILES])
def test_requests_and_prompt_tokens_are_exact(
    shared_data: Path, pattern: str, name: str, oracle: Callable[[Path], Counts]
) -> None:
    files = [path for path in sorted(shared_data.glob(pattern)) if path.stat().st_size]
    assert files
    for path in files:
        opened = open_chat([path])
        requests = list(opened)
        prompts = sum(request.usage.prompt_tokens or 0 for request in requests if request.usage is not None)
        assert (opened.sources[0].format, len(requests), prompts) == (name, *oracle(path)), path.name
        assert opened.sources[0].calls == len(requests)


@pytest.mark.parametrize(("pattern", "name", "oracle"), FILES, ids=[pattern for pattern, _, _ in FILES])
def test_the_same_files_are_sized(shared_data: Path, pattern: str, name: str, oracle: Callable[[Path], Counts]) -> None:
    """Where every request of a file was measured, prompts have the provider's tokens to the last one."""
    for path in sorted(shared_data.glob(pattern)):
        if not path.stat().st_size:
            with pytest.raises(TraceError, match="the file is empty"):
                open_trace([path])
            continue
        measured = all(request.usage is not None and request.usage.prompt_tokens for request in open_chat([path]))
        opened = open_trace([path])
        tokens = 0
        for call in opened:
            assert len(call.ids) == call.prompt_tokens > 0
            tokens += call.prompt_tokens
        (source,) = opened.sources
        assert source.prompt_tokens == tokens
        if measured:
            assert tokens == oracle(path)[1], path.name
            assert (source.lower_tokens, source.upper_tokens) == (tokens, tokens)


def test_what_is_shared_agrees_with_the_providers_cache(shared_data: Path) -> None:
    """The provider can only have read from its cache what repeats an earlier prompt, and mostly it did: within 2 %.

    It read less where its cache had expired, and a little more where another session had written the beginning.
    """
    folder = shared_data / "spotter-claude-code"
    work = load_workload(open_trace([folder]))
    shared = int(work.shared_with_previous(with_output=False).sum())
    previous = {}
    cached = 0
    for request in open_chat([folder]):
        if request.session in previous and request.usage is not None:
            cached += request.usage.cached_tokens or 0
        previous[request.session] = True
    assert 0.98 < cached / shared < 1.02


def test_a_directory_counts_every_response_once(shared_data: Path) -> None:
    folder = shared_data / "spotter-claude-code"
    files = sorted(folder.rglob("*.jsonl"))
    opened = open_chat([folder])
    requests = list(opened)
    assert len(requests) == sum(claude(path)[0] for path in files)
    assert sum(source.calls for source in opened.sources) == len(requests)
    summaries = [request for request in requests if "summary-request" in request.events]
    # 167,094 and 167,731 tokens before the compaction, by the log's own account; the request adds its instruction.
    assert sorted((request.usage.prompt_tokens or 0) // 1000 for request in summaries if request.usage) == [169, 169]
    assert all(len(request.messages) > 100 for request in summaries)


def test_files_of_one_folder_are_one_conversation_in_time_order(shared_data: Path) -> None:
    opened = open_chat([shared_data / "openhands-llm-logs"])
    requests = list(opened)
    assert len({request.session for request in requests}) == 1
    assert [request.turn for request in requests] == list(range(6))
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
    assert [source.calls for source in opened.sources] == [1] * 6


def test_lmcache_lines_come_in_the_order_of_their_times(shared_data: Path) -> None:
    for path in (shared_data / "lmcache-agent-trace" / "miniswe").glob("*.jsonl"):
        times = [request.arrival_s or 0.0 for request in open_chat([path])]
        assert times == sorted(times)


def test_what_cannot_be_read_as_text_says_why(shared_data: Path) -> None:
    with pytest.raises(TraceError, match="a mooncake trace holds no text"):
        open_chat([shared_data / "mooncake" / "synthetic_trace.jsonl"])
    with pytest.raises(TraceError, match="holds token counts only, no prefix identity"):
        open_chat([shared_data / "azure-llm-2023" / "AzureLLMInferenceTrace_code.csv"])
