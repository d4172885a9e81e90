"""What one admission decision costs with 10,000 active tasks, and what telling tasks apart costs.

The request hook of vLLM's scheduler pays both once per request. Ratios are against a bare dictionary look-up in
the same loop, so they can be compared between machines.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from eactl.policy import Admission, Lineage, TierReport, TierSize

TASKS = 10_000
CALLS = 200_000
BLOCK = 16


def percentiles(call: Callable[[int], object], count: int = CALLS) -> tuple[float, float, float]:
    """Median, 99th and 99.9th percentile of ``count`` single calls, in µs, clock reading included."""
    spent = []
    clock = time.perf_counter_ns
    for number in range(count):
        start = clock()
        call(number)
        spent.append(clock() - start)
    spent.sort()
    return spent[count // 2] / 1e3, spent[count * 99 // 100] / 1e3, spent[count * 999 // 1000] / 1e3


def admission() -> Callable[[int], object]:
    policy = Admission("conditioned", TierSize(1024, 24 * 1024, 10 << 30))
    for task in range(TASKS):
        policy.observe_lookup(task, 33_234, task * 50.0 / TASKS)
    order = random.Random(1)
    tasks = [order.randrange(TASKS) for _ in range(CALLS)]

    def call(number: int) -> object:
        now_s = 50.0 + number * 5e-5
        policy.observe_lookup(tasks[number], 33_234, now_s)
        if number % 1000 == 0:
            policy.observe_report(TierReport(426, number), now_s)
        return policy.decide(33_234, 16_384, now_s)

    return call


def lineage(prompt_tokens: int) -> tuple[Callable[[int], object], Callable[[int], object]]:
    tracker = Lineage(BLOCK)
    prompts, chains, numbers = [], [], []
    for task in range(100):
        prompt = list(range(2048)) + [task * 10**6 + i for i in range(prompt_tokens - 2048)]
        hashes = [hash((task if end > 2048 else 0, end)) for end in range(BLOCK, prompt_tokens + 1, BLOCK)]
        prompts.append(prompt)
        chains.append(hashes)
        numbers.append(tracker.begin(hashes, prompt))
        tracker.end(numbers[-1], hashes, prompt)

    def begin(number: int) -> object:
        task = number % 100
        numbers[task] = tracker.begin(chains[task], prompts[task])
        return None

    def end(number: int) -> object:
        task = number % 100
        return tracker.end(numbers[task], chains[task], prompts[task])

    return begin, end


def main() -> None:
    table = {number: number for number in range(TASKS)}
    bare = percentiles(lambda number: table[number % TASKS])
    print(f"{'call':<44}{'p50 µs':>9}{'p99 µs':>9}{'p99.9 µs':>10}{'p50 / dict':>12}")

    def show(name: str, row: tuple[float, float, float]) -> None:
        print(f"{name:<44}{row[0]:>9.2f}{row[1]:>9.2f}{row[2]:>10.2f}{row[0] / bare[0]:>12.1f}")

    show("dictionary look-up", bare)
    show(f"observe + decide, {TASKS:,} active tasks", percentiles(admission()))
    for tokens in (32_768, 131_072):
        begin, end = lineage(tokens)
        show(f"lineage begin, {tokens:,} tokens", percentiles(begin, 100))
        show(f"lineage end, {tokens:,} tokens, nothing new", percentiles(end, 100))


if __name__ == "__main__":
    main()
