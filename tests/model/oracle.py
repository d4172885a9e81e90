"""The reference model restated chunk by chunk, as slowly and plainly as METHOD.md words it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass
class Request:
    """A prompt and its output as explicit token ids; a space keeps KV apart (salt, model, local ids)."""

    task: int
    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()
    space: Hashable = ""


def chunk_keys(space: Hashable, tokens: Sequence[int], chunk_tokens: int) -> list[Hashable]:
    """One key per full chunk; a key names the chunk's whole prefix."""
    full = len(tokens) // chunk_tokens
    return [(space, tuple(tokens[: (index + 1) * chunk_tokens])) for index in range(full)]


class ExplicitLru:
    """A tier that holds at most ``capacity`` chunks in recency order."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.chunks: OrderedDict[Hashable, None] = OrderedDict()

    def leading_resident(self, keys: Sequence[Hashable]) -> int:
        count = 0
        for key in keys:
            if key not in self.chunks:
                break
            count += 1
        return count

    def promote(self, keys: Sequence[Hashable]) -> None:
        for key in reversed(keys):  # tail first, head last
            self.chunks[key] = None
            self.chunks.move_to_end(key)
            if len(self.chunks) > self.capacity:
                self.chunks.popitem(last=False)


@dataclass
class Totals:
    coverage_tokens: int = 0
    restored_tokens: int = 0
    computed_tokens: int = 0
    restoring_calls: int = 0


def run_lru(
    requests: Sequence[Request], *, chunk_tokens: int, capacity: int, gpu_tokens: int | None, gpu_block: int = 16
) -> Totals:
    """Σ H·b, Σ R and Σ U of METHOD.md, with a GPU tier of ``gpu_tokens`` (None: none)."""
    host = ExplicitLru(capacity)
    gpu = ExplicitLru(0 if gpu_tokens is None else gpu_tokens // gpu_block)
    totals = Totals()
    for request in requests:
        n = len(request.prompt)
        keys = chunk_keys(request.space, request.prompt, chunk_tokens)
        covered = host.leading_resident(keys)
        gpu_prompt = chunk_keys(request.space, request.prompt, gpu_block)
        resident = min(gpu.leading_resident(gpu_prompt), max(n - 1, 0) // gpu_block) * gpu_block
        restorable = min(covered * chunk_tokens, n - 1)
        totals.coverage_tokens += covered * chunk_tokens
        totals.restored_tokens += max(0, restorable - resident)
        totals.restoring_calls += restorable > resident
        totals.computed_tokens += n - max(resident, restorable)
        host.promote(keys)
        gpu.promote(chunk_keys(request.space, request.prompt + request.output, gpu_block))
    return totals


def best_hits(requests: Sequence[Request], *, chunk_tokens: int, capacity: int) -> int:
    """Σ H·b of Belady's MIN with bypass: after each request keep the ``capacity`` chunks needed soonest."""
    streams = [chunk_keys(request.space, request.prompt, chunk_tokens) for request in requests]
    uses: dict[Hashable, list[int]] = {}
    for at, keys in enumerate(streams):
        for key in keys:
            uses.setdefault(key, []).append(at)
    resident: set[Hashable] = set()
    hits = 0
    for at, keys in enumerate(streams):
        covered = 0
        for key in keys:
            if key not in resident:
                break
            covered += 1
        hits += covered
        resident |= set(keys)

        def next_use(key: Hashable, now: int = at) -> int:
            return next((use for use in uses[key] if use > now), 1 << 60)

        wanted = sorted(resident, key=lambda key: (next_use(key), len(key[1])))  # type: ignore[index]
        resident = {key for key in wanted[:capacity] if next_use(key) < 1 << 60}
    return hits * chunk_tokens
