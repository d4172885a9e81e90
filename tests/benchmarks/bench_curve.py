"""The whole capacity curve against a Fenwick tree over chunks, other block sizes, ten times the requests, and,
where it is installed, kvcache-simulator's native engine at 20 capacities. Run by ``make bench``.

Ratios are measured in one run on one machine, so they hold elsewhere; seconds do not.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from eactl.model.curve import CapacityCurve
from eactl.model.reuse import stack_pieces
from eactl.model.workload import Workload
from eactl.trace.call import Call
from eactl.trace.workload import load_workload


def agent_calls(requests: int, block_tokens: int, *, seed: int = 0, agents: int = 40) -> list[Call]:
    """Append-only agents that share 3,008 system tokens and grow to 64K; ids as readers hand them over."""
    rng = random.Random(seed)
    system = np.arange(3008 // block_tokens, dtype=np.int32)
    unused = 1_000_000
    pool: list[tuple[int, int, np.ndarray]] = []
    calls: list[Call] = []
    task = 0
    while len(calls) < requests:
        while len(pool) < agents:
            pool.append((task, rng.randrange(4000, 12000), system))
            task += 1
        slot = rng.randrange(len(pool))
        number, tokens, ids = pool[slot]
        missing = tokens // block_tokens - len(ids)
        if missing > 0:
            ids = np.concatenate((ids, np.arange(unused, unused + missing, dtype=np.int32)))
            unused += missing
        calls.append(Call(str(number), tokens, ids[: tokens // block_tokens], block_tokens, 200))
        tokens += rng.randrange(500, 3000)
        if tokens > 65536:
            pool.pop(slot)
        else:
            pool[slot] = (number, tokens, ids)
    return calls


def curve_by_runs(calls: Sequence[Call], chunk_tokens: int) -> np.ndarray:
    """Coverage at every capacity, from the calls' ids to the curve: what ``eactl size`` does."""
    return curve_of_workload(load_workload(calls), chunk_tokens)


def curve_of_workload(work: Workload, chunk_tokens: int) -> np.ndarray:
    """The same from a loaded trace, whose prefix forest stands already."""
    pieces = stack_pieces(work, range(len(work)), chunk_tokens, with_output=False)
    curve = CapacityCurve(pieces, work.prompt_tokens, np.zeros(len(work), dtype=np.int64), chunk_tokens)
    return curve.coverage_tokens(np.arange(curve.saturation_chunks + 1))


def curve_by_chunks(calls: Sequence[Call], chunk_tokens: int) -> np.ndarray:
    """The same curve the textbook way: one Fenwick tree over touch times, one query and two updates per chunk."""
    size = sum(len(call.ids) for call in calls) + 1
    tree = [0] * (size + 1)
    last: dict[int, int] = {}
    histogram: dict[int, int] = {}
    now = 0
    for call in calls:
        touched = call.ids.tolist()
        found = []
        for chunk in touched:
            at = last.get(chunk)
            if at is None:
                break
            above, index = 0, at
            while index:
                above += tree[index]
                index &= index - 1
            found.append(len(last) - above)
        worst = 0
        for rank in found:  # a lookup stops at the first absent chunk: the running maximum counts
            worst = max(worst, rank)
            histogram[worst] = histogram.get(worst, 0) + 1
        for chunk in reversed(touched):
            at = last.get(chunk)
            if at is not None:
                index = at
                while index <= size:
                    tree[index] -= 1
                    index += index & -index
            now += 1
            last[chunk] = index = now
            while index <= size:
                tree[index] += 1
                index += index & -index
    ranks = np.zeros(max(histogram, default=0) + 2, dtype=np.int64)
    for rank, count in histogram.items():
        ranks[rank + 1] += count
    return np.cumsum(ranks) * chunk_tokens


def native_seconds(calls: Sequence[Call], block_tokens: int, program: str) -> Iterator[tuple[str, float]]:
    """Processor seconds of kvcache-simulator's C++ engine at 20 capacities and at one, on the same trace.

    The difference is what the engine adds for 19 capacities, without its start-up and reading.
    """
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        with trace.open("w") as stream:
            for at, call in enumerate(calls):
                record = {
                    "timestamp": at, "block_size": block_tokens, "hash_ids": call.ids.tolist(),
                    "input_length": len(call.ids) * block_tokens, "output_length": 1,
                }  # fmt: skip
                stream.write(json.dumps(record) + "\n")
        for name, budgets in (("20 capacities", range(1, 21)), ("one capacity", range(1, 2))):
            argv = [program, "run", "--trace", str(trace), "--model", "qwen3-32b", "--policies", "lru", "--no-progress",
                    "--format", "json", "--output", str(Path(folder) / "out.json"),
                    "--budgets-gib", ",".join(str(10 * size) for size in budgets)]  # fmt: skip
            for _ in range(2):  # the first run compiles the engine
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(argv, check=True, capture_output=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
            yield name, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def timed(function, *arguments, repeats: int = 3):  # type: ignore[no-untyped-def]
    """The function's result and its least processor seconds of ``repeats``: others on the machine do not count."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        result = function(*arguments)
        best = min(best, time.process_time() - started)
    return result, best


def main() -> None:
    fine, coarse = agent_calls(3200, 16), agent_calls(3200, 1024)
    many = agent_calls(32000, 16)
    references = sum(len(call.ids) for call in fine)
    curve, by_runs = timed(curve_by_runs, fine, 16)
    by_chunk_curve, by_chunks = timed(curve_by_chunks, fine, 16, repeats=1)
    length = min(len(curve), len(by_chunk_curve))
    assert (curve[:length] == by_chunk_curve[:length]).all() and curve[-1] == by_chunk_curve[-1]
    _, by_runs_coarse = timed(curve_by_runs, coarse, 1024)
    loaded_fine, loaded_coarse = load_workload(fine), load_workload(coarse)
    alone = [timed(curve_of_workload, work, size)[1] for work, size in ((loaded_fine, 16), (loaded_coarse, 1024))]
    ratio = alone[0] / alone[1]
    _, by_runs_many = timed(curve_by_runs, many, 16, repeats=1)
    print(f"3,200 requests to 64K tokens, 16-token blocks: {references:,} block references")
    print(f"  whole curve by runs          {by_runs:8.3f} s   {references / by_runs / 1e6:.0f} M references/s")
    print(f"  Fenwick tree over chunks     {by_chunks:8.3f} s   {by_chunks / by_runs:.0f} times as long (target: 60)")
    print(f"  1,024-token blocks           {by_runs_coarse:8.3f} s   blocks of 16 cost {by_runs / by_runs_coarse:.2f} "
          f"times that with loading, {ratio:.2f} times without (target: at most 1.3)")  # fmt: skip
    print(f"  32,000 requests              {by_runs_many:8.3f} s   {by_runs_many / by_runs:.1f} times as long "
          "(target: at most 12)")  # fmt: skip
    program = shutil.which("kvcache-simulator")
    if program is None:
        print("  kvcache-simulator is not installed (pip install kvcache-simulator): not compared")
        return
    native = dict(native_seconds(fine, 16, program))
    engine = (native["20 capacities"] - native["one capacity"]) * 20 / 19
    print(f"  kvcache-simulator, 20 sizes  {engine:8.3f} s   {engine / by_runs:.0f} times as long, engine alone "
          f"({native['20 capacities'] / by_runs:.0f} times as a whole command) (target: 30)")  # fmt: skip


if __name__ == "__main__":
    main()
