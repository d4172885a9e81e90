"""One workload written in every format that can carry it, by plain code that shares nothing with the product."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from eactl.trace import Call


@dataclass(frozen=True)
class Request:
    """One request of a block workload: its prompt as tokens, when it came, what it produced."""

    task: int
    prompt: tuple[int, ...]
    arrival_ms: int
    output_tokens: int


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Agents that append, fork, rewind and rewrite, over a shared system prompt, in order of time."""
    tokens = st.lists(st.integers(0, 3), max_size=20)
    system = draw(tokens)
    history: dict[int, list[int]] = {}
    made, clock = [], 0
    for _ in range(draw(st.integers(1, 12))):
        task = draw(st.integers(0, 3))
        before = history.get(task, system)
        cut = draw(st.integers(0, len(before))) if draw(st.integers(0, 3)) == 0 else len(before)
        prompt = (*before[:cut], *draw(tokens)) or (7,)
        history[task] = list(prompt)
        clock += draw(st.integers(0, 5000))
        made.append(Request(task, prompt, clock, draw(st.integers(0, 9))))
    return made


def chained_ids(requests: Sequence[Request], block: int, *, partial: bool) -> list[list[int]]:
    """One number per distinct prefix of whole blocks; a partial last block gets a number that never comes again."""
    numbers: dict[tuple[int, ...], int] = {}
    lists, own = [], 10_000
    for request in requests:
        ends = range(block, len(request.prompt) + 1, block)
        ids = [numbers.setdefault(request.prompt[:end], len(numbers)) for end in ends]
        if partial and len(request.prompt) % block:
            own += 1
            ids.append(own)
        lists.append(ids)
    return lists


def plain_ids(requests: Sequence[Request], block: int) -> list[list[int]]:
    """One number per distinct block, whatever came before it; the partial last block included."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        [
            numbers.setdefault(request.prompt[start : start + block], len(numbers))
            for start in range(0, len(request.prompt), block)
        ]
        for request in requests
    ]


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_mooncake(folder: Path, requests: Sequence[Request], block: int) -> Path:
    """Mooncake lines with ``block_size``."""
    rows = zip(requests, chained_ids(requests, block, partial=True), strict=True)
    return write_lines(folder / "mooncake.jsonl", [
        {"timestamp": request.arrival_ms, "input_length": len(request.prompt), "output_length": request.output_tokens,
         "hash_ids": ids, "block_size": block, "session_id": f"s{request.task}"}
        for request, ids in rows
    ])  # fmt: skip


def write_native_blocks(folder: Path, requests: Sequence[Request], block: int) -> Path:
    """A native block trace."""
    header = {"schema": "eactl.trace/1", "prompt": "blocks", "block_tokens": block, "tokenizer": None, "source": "test",
              "warnings": []}  # fmt: skip
    counts: dict[int, int] = {}
    lines: list[dict[str, Any]] = [header]
    for request, ids in zip(requests, chained_ids(requests, block, partial=False), strict=True):
        call = counts.get(request.task, 0)
        counts[request.task] = call + 1
        lines.append(native_line(request, call, {"blocks": ids, "tokens": len(request.prompt)}))
    return write_lines(folder / "blocks.jsonl", lines)


def write_native_tokens(folder: Path, requests: Sequence[Request], block: int) -> Path:
    """A native token trace; what a prompt keeps of the previous one is found by comparing."""
    header = {"schema": "eactl.trace/1", "prompt": "tokens", "block_tokens": None, "tokenizer": None, "source": "test",
              "warnings": []}  # fmt: skip
    counts: dict[int, int] = {}
    latest: dict[int, tuple[int, ...]] = {}
    lines: list[dict[str, Any]] = [header]
    for request in requests:
        call = counts.get(request.task, 0)
        counts[request.task] = call + 1
        keep = shared(latest.get(request.task, ()), request.prompt)
        latest[request.task] = request.prompt
        lines.append(native_line(request, call, {"keep": keep, "append": list(request.prompt[keep:])}))
    return write_lines(folder / "tokens.jsonl", lines)


def native_line(request: Request, call: int, prompt: dict[str, Any]) -> dict[str, Any]:
    """One call of a native trace."""
    return {"task": f"s{request.task}", "call": call, "arrival_s": request.arrival_ms / 1000, "gap_s": None,
            "prompt": prompt, "output": {"tokens": request.output_tokens}, "service_s": None, "salt": None,
            "model": None}  # fmt: skip


def write_bailian(folder: Path, requests: Sequence[Request], block: int) -> Path:
    """Bailian lines: every request its own chat, chained to its task's previous one."""
    latest: dict[int, int] = {}
    lines = []
    for chat, (request, ids) in enumerate(zip(requests, plain_ids(requests, block), strict=True)):
        lines.append({"chat_id": chat, "parent_chat_id": latest.get(request.task, -1),
                      "timestamp": request.arrival_ms / 1000, "input_length": len(request.prompt),
                      "output_length": request.output_tokens, "type": "text", "turn": 1, "hash_ids": ids})  # fmt: skip
        latest[request.task] = chat
    return write_lines(folder / "bailian.jsonl", lines)


def write_kv_cache_tester(folder: Path, requests: Sequence[Request], block: int) -> Path:
    """One session: the first task is the parent, the others its sub-agents, which start at 0 and end with their last
    request."""
    ids = chained_ids(requests, block, partial=False)
    rows = [
        {"t": request.arrival_ms / 1000, "type": "n", "model": "m", "in": len(request.prompt),
         "out": request.output_tokens, "hash_ids": [number + 1 for number in blocks]}
        for request, blocks in zip(requests, ids, strict=True)
    ]  # fmt: skip
    parent = requests[0].task
    entries = [row for request, row in zip(requests, rows, strict=True) if request.task == parent]
    for task in sorted({request.task for request in requests} - {parent}):
        inner = [row for request, row in zip(requests, rows, strict=True) if request.task == task]
        entries.append({"type": "subagent", "agent_id": f"s{task}", "t": inner[-1]["t"],
                        "duration_ms": inner[-1]["t"] * 1000, "requests": inner})  # fmt: skip
    document = {"id": f"s{parent}", "block_size": block, "hash_id_scope": "local", "requests": entries}
    path = folder / "session.json"
    path.write_text(json.dumps(document))
    return path


def write_lmcache_lookup(folder: Path, requests: Sequence[Request], block: int) -> Path:
    """A lookup-hash log; a chunk's hash is made of its whole prefix. Lookups without a full chunk are logged too."""
    lines = []
    for number, request in enumerate(requests):
        ends = range(block, len(request.prompt) + 1, block)
        hashes = [f"0x{abs(hash(('prefix', request.prompt[:end]))):032x}" for end in ends]
        lines.append({"timestamp": 1.7e9 + request.arrival_ms / 1000, "request_id": f"r{number}", "model_name": "m",
                      "chunk_size": block, "seq_len": len(request.prompt), "dtypes": ["bfloat16"],
                      "shapes": [[2, 48, block, 512]], "chunk_hashes": hashes})  # fmt: skip
    return write_lines(folder / "lookup_hashes_20260401_143025_000003.jsonl", lines)


BLOCK_WRITERS: dict[str, Callable[[Path, Sequence[Request], int], Path]] = {
    "mooncake": write_mooncake,
    "native": write_native_blocks,
    "bailian": write_bailian,
    "kv-cache-tester": write_kv_cache_tester,
    "lmcache-lookup": write_lmcache_lookup,
}


def shared(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length


def expected_sharing(requests: Sequence[Request], block: int) -> list[list[int]]:
    """For each request and each earlier one, the whole blocks their prompts share."""
    return [
        [
            min(shared(earlier.prompt, request.prompt), len(request.prompt) // block * block) // block
            for earlier in requests[:at]
        ]
        for at, request in enumerate(requests)
    ]


def sharing(calls: Sequence[Call], block: int = 1) -> list[list[int]]:
    """The same of calls, as the model counts it: equal ids from the start, within one scope, salt and model."""
    return [
        [
            shared(earlier.ids.tolist(), call.ids.tolist()) // block if space(earlier) == space(call) else 0
            for earlier in calls[:at]
        ]
        for at, call in enumerate(calls)
    ]


def space(call: Call) -> tuple[str, str | None, str | None]:
    """What must be equal for two calls to share anything."""
    return call.scope, call.salt, call.model


def tasks_alike(names: Sequence[str | None], requests: Sequence[Request]) -> bool:
    """Whether names fall into the same groups as the requests' tasks."""
    pairs = {(name, request.task) for name, request in zip(names, requests, strict=True)}
    return len(pairs) == len({name for name, _ in pairs}) == len({task for _, task in pairs})
