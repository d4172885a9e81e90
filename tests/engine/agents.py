"""Agents against a real engine: what each policy computes again at each size of the tier.

In turns (the default) one agent after the other sends its next prompt, in an order drawn for each round, as agents do
whose tools run longer than the others' prefill. The order and the windows are counted in turns, not seconds, so a slow
machine sees what a fast one does. In a closed loop all agents send at once and wait only for their answers.

Run as a script it makes the tables in docs/admission.md (about a minute for each row):
    python -m tests.engine.agents [--closed-loop] [--headroom] [RATIO ...]
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.engine.stack import CHUNK_TOKENS, Engine, engine, post, wait_for
from tests.engine.switchable import switch, write_turns
from tests.engine.tiny_model import BETA_BYTES, make

OUTPUT_TOKENS = 16
GPU_BLOCKS = 146  # of 32 tokens: γG = 8 · 1,600 / 4,672 = 2.7
SYSTEM_TOKENS = 64
HIDDEN = 512  # in a closed loop prefill has to be what takes the time, as in real engines
KAPPA_CHUNKS = 8
WINDOW_TURNS = 3.0  # a task lasts 15 to 20
MEAN_REQUESTS = 40  # a third of the turns of the tasks at work, as 256 were of the published ones
HEADROOM = {"watermark": 0.5, "eviction_ratio": 0.05}  # half of L1 is free, so no store finds it full


@dataclass(frozen=True)
class Workload:
    """``agents`` slots work through ``tasks`` tasks of ``turns`` turns; a prompt grows by ``step`` tokens a turn.

    With ``gap_s`` they run in a closed loop with such pauses, without it in turns.
    """

    tasks: int = 20
    agents: int = 8
    turns: tuple[int, int] = (14, 20)
    first: tuple[int, int] = (60, 180)  # no more than κ = 8 chunks, or `fixed` would never let a task in
    step: tuple[int, int] = (100, 200)
    large_step: tuple[int, int] = (300, 420)  # more than κ, as a tool's long output is now and then
    large_share: float = 0.12
    gap_s: tuple[float, float] | None = None
    seed: int = 1

    def plans(self) -> list[list[list[int]]]:
        """For each task the tokens that each turn adds before the model's answer."""
        rng = random.Random(self.seed)
        system = [rng.randrange(10, 4000) for _ in range(SYSTEM_TOKENS)]
        tasks = []
        for _ in range(self.tasks):
            turns = range(rng.randrange(*self.turns))
            steps = [self.large_step if rng.random() < self.large_share else self.step for _ in turns]
            lengths = [rng.randrange(*self.first), *(rng.randrange(*step) for step in steps)]
            added = [[rng.randrange(10, 4000) for _ in range(length)] for length in lengths]
            added[0] = system + added[0]
            tasks.append(added)
        if self.gap_s is None:  # the first ones end one after the other, so that the pool is in a steady state soon
            for number, added in enumerate(tasks[: self.agents], 1):
                del added[max(2, len(added) * number // self.agents) :]
        return tasks

    @property
    def mean_prompt_tokens(self) -> float:
        prompts = []
        for added in self.plans():
            tokens = 0
            for turn in added:
                tokens += len(turn)
                prompts.append(tokens)
                tokens += OUTPUT_TOKENS
        return sum(prompts) / len(prompts)

    @property
    def working_set_bytes(self) -> float:
        """Eq. 5."""
        return (self.agents - 1) * self.mean_prompt_tokens * BETA_BYTES


CLOSED_LOOP = Workload(tasks=8, turns=(26, 34), step=(50, 120), large_share=0.03, gap_s=(0.02, 0.04))


@dataclass(frozen=True)
class Outcome:
    """Tokens of one run, from vLLM's and LMCache's own counters.

    ``agents``: now and then in a run, the active agents as the plugin counted them and as they were.
    """

    calls: int
    prompt: int
    computed: int
    restored: int
    gpu_hits: int
    written: int
    failed: int
    seconds: float
    record: Any
    agents: Sequence[tuple[int | None, int]]


class Bench:
    """One engine, many runs: the tier is emptied and the policy changed in between."""

    def __init__(self, stack: Engine, control: Path) -> None:
        self.stack, self.control, self.runs = stack, control, 0

    def run(self, workload: Workload, policy: str, *, kept: str | None = None) -> Outcome:
        """``kept``: another reading of what the tier keeps, see tests/engine/switchable.py."""
        self.runs += 1
        label = f"run-{self.runs}"
        post(f"{self.stack.status_url}/cache/clear", {})
        in_turns = workload.gap_s is None
        write_turns(self.control, 0.0)
        settings = {"kappa_chunks": KAPPA_CHUNKS, "window_s": WINDOW_TURNS if in_turns else 4.0,
                    "mean_requests": MEAN_REQUESTS}  # fmt: skip
        wanted = {"run": label, "policy": policy, "settings": settings, "turns": in_turns,
                  **({"kept": kept} if kept else {})}  # fmt: skip
        switch(self.control, wanted)
        wait_for(lambda: self.stack.record().engine == label, 20, f"the policy to become {policy}")
        before, server_before = self.stack.metrics(), self.stack.server_metrics()
        started_s = time.monotonic()
        pool = (
            Turns(self.stack, self.control, workload, self.runs)
            if in_turns
            else ClosedLoop(self.stack, workload, self.runs)
        )
        pool.run()
        seconds = time.monotonic() - started_s
        time.sleep(1.0)
        after, server_after = self.stack.metrics(), self.stack.server_metrics()
        record = self.stack.record()

        def rise(name: str) -> int:
            return round(after.get(name, 0) - before.get(name, 0))

        def server_rise(name: str) -> int:
            return round(server_after.get(name, 0) - server_before.get(name, 0))

        return Outcome(
            calls=pool.calls, prompt=rise("vllm:prompt_tokens_total"), computed=record.computed_tokens or 0,
            restored=record.restored_tokens or 0, gpu_hits=record.gpu_hit_tokens or 0,
            written=server_rise("lmcache_mp_l1_write_chunks_total") * CHUNK_TOKENS,
            failed=server_rise("lmcache_mp_l1_allocation_failure_chunks_total") * CHUNK_TOKENS,
            seconds=seconds, record=record, agents=tuple(pool.agents),
        )  # fmt: skip


@dataclass
class Turns:
    """One agent after the other. ``salt`` keeps the runs of one engine apart."""

    stack: Engine
    control: Path
    workload: Workload
    salt: int
    calls: int = 0
    agents: list[tuple[int | None, int]] = field(default_factory=list)

    def run(self) -> None:
        plans = list(enumerate(self.workload.plans()))
        slots: list[tuple[int, list[list[int]], list[int]] | None] = [None] * self.workload.agents
        seen_turns: dict[int, float] = {}
        rng = random.Random(self.workload.seed)
        rounds = 0
        while plans or any(slots):
            rounds += 1
            for place, slot in enumerate(self._order(rng)):
                if slots[slot] is None:
                    if not plans:
                        continue
                    number, added = plans.pop(0)
                    slots[slot] = (number, added, [])
                task, left, prompt = slots[slot] or (0, [], [])
                turns = rounds + place / self.workload.agents
                write_turns(self.control, turns)
                prompt += left.pop(0)
                prompt += self.stack.output(prompt, OUTPUT_TOKENS, cache_salt=f"run-{self.salt}")
                self.calls += 1
                seen_turns[task] = turns
                if not left:
                    slots[slot] = None
                self._settle()
            if rounds % 10 == 0:
                active = sum(1 for at in seen_turns.values() if at >= turns - WINDOW_TURNS)
                self.agents.append((self.stack.record().agents, active))

    def _order(self, rng: random.Random) -> list[int]:
        """A round's order; half a round at least lies between two turns of an agent."""
        half = self.workload.agents // 2
        return rng.sample(range(half), half) + rng.sample(range(half, self.workload.agents), half)

    def _settle(self) -> None:
        """The store has landed and the server has swept, as in the time that a real agent's tool takes."""

        def level() -> tuple[int, bool]:
            storage = self.stack.server()["storage_manager"]
            tier, eviction = storage["l1_manager"], storage["l1_eviction_controller"]
            return tier["total_object_count"], tier["memory_usage_ratio"] < eviction["trigger_watermark"]

        last = level()

        def settled() -> bool:
            nonlocal last
            last, before = level(), last
            return last == before and last[1]

        wait_for(settled, 20, "the tier to settle")


@dataclass
class ClosedLoop:
    """All agents at once, each with its own thread."""

    stack: Engine
    workload: Workload
    salt: int
    calls: int = 0
    agents: list[tuple[int | None, int]] = field(default_factory=list)

    def run(self) -> None:
        queue: Queue[list[list[int]]] = Queue()
        for added in self.workload.plans():
            queue.put(added)
        failures: list[AssertionError] = []
        threads = [
            threading.Thread(target=self._agent, args=(number, queue, failures))
            for number in range(self.workload.agents)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _agent(self, number: int, queue: Queue[list[list[int]]], failures: list[AssertionError]) -> None:
        rng = random.Random(number)
        assert self.workload.gap_s is not None
        while True:
            try:
                added = queue.get_nowait()
            except Empty:
                return
            prompt: list[int] = []
            for turn in added:
                prompt += turn
                try:
                    prompt += self.stack.output(prompt, OUTPUT_TOKENS, cache_salt=f"run-{self.salt}")
                except AssertionError as error:
                    failures.append(error)
                    return
                self.calls += 1
                time.sleep(rng.uniform(*self.workload.gap_s))


def bench_stack(model: Path, folder: Path, host_mib: int, **options: Any) -> Any:
    """An engine whose policy can be switched; L1 of ``host_mib``. It looks at its watermark 20 times a second."""
    control = folder / "control.json"
    switch(control, {"run": "start", "policy": "none", "settings": {}})
    return engine(
        model, folder, policy="none", host_mib=host_mib, evict_every_s=0.05,
        vllm=("--num-gpu-blocks-override", str(GPU_BLOCKS), "--max-model-len", "4608"),
        extra={"kv_connector": "SwitchableConnector", "kv_connector_module_path": "tests.engine.switchable",
               "control": str(control), "eactl.report_every_s": 0.25},
        **options,
    )  # fmt: skip


RUNS = (
    ("none", None),
    ("fixed", None),
    ("conditioned", None),
    ("conditioned", "low"),
)


def main(ratios: Sequence[float], workload: Workload, options: dict[str, float]) -> None:
    """Print a line for each policy at each L1, a multiple of the working set."""
    mean, size = workload.mean_prompt_tokens, workload.working_set_bytes / 2**20
    print(f"N̄ {mean:.0f} tokens, working set {size:.1f} MiB", flush=True)
    with tempfile.TemporaryDirectory() as name:
        model = make(Path(name) / "tiny", **({} if workload.gap_s is None else {"hidden": HIDDEN}))
        for ratio in ratios:
            folder = Path(name) / f"{ratio}"
            folder.mkdir()
            with bench_stack(model, folder, max(1, round(ratio * size)), **options) as stack:
                bench = Bench(stack, folder / "control.json")
                for policy, kept in RUNS:
                    out = bench.run(workload, policy, kept=kept)
                    print(
                        f"{ratio:4} {policy:12} {kept or '':10} computed {out.computed / 1e3:6.0f}K "
                        f"restored {out.restored / 1e3:5.0f}K gpu {out.gpu_hits / 1e3:5.0f}K "
                        f"written {out.written / 1e3:5.0f}K failed {out.failed / 1e3:5.0f}K "
                        f"skipped {out.record.skipped_requests:4} calls {out.calls} {out.seconds:.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    numbers = [float(arg) for arg in sys.argv[1:] if not arg.startswith("--")]
    main(
        numbers or [0.6, 1.0, 1.4, 2.0, 4.0],
        CLOSED_LOOP if "--closed-loop" in sys.argv else Workload(),
        HEADROOM if "--headroom" in sys.argv else {},
    )
