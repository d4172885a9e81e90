"""A closed loop of agents against a real engine: what each policy computes again at each size of the tier.

Run as a script it makes the table in docs/admission.md (about a minute for each row):
    python -m tests.engine.agents [--headroom] [RATIO ...]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.engine.stack import CHUNK_TOKENS, Engine, engine, post, wait_for
from tests.engine.tiny_model import BETA_BYTES, make

OUTPUT_TOKENS = 16
GPU_BLOCKS = 146  # of 32 tokens: γG = 8 · 1,677 / 4,672 = 2.9
SYSTEM_TOKENS = 64
HIDDEN = 512  # prefill has to be what takes the time, as it is in real engines


@dataclass(frozen=True)
class Workload:
    """``agents`` slots work through ``tasks`` tasks of ``turns`` turns; a prompt grows by ``step`` tokens a turn."""

    tasks: int = 8
    agents: int = 8
    turns: tuple[int, int] = (26, 34)
    first: tuple[int, int] = (60, 180)  # no more than κ = 8 chunks, or `fixed` would never let a task in
    step: tuple[int, int] = (50, 120)
    large_step: tuple[int, int] = (300, 420)  # more than κ, as a tool's long output is now and then
    large_share: float = 0.03
    gap_s: tuple[float, float] = (0.02, 0.04)
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


@dataclass(frozen=True)
class Outcome:
    """Tokens of one run, from vLLM's and LMCache's own counters."""

    calls: int
    prompt: int
    computed: int
    restored: int
    gpu_hits: int
    written: int
    failed: int
    seconds: float
    record: Any
    peak_agents: int


class Bench:
    """One engine, many runs: the tier is emptied and the policy changed in between."""

    def __init__(self, stack: Engine, control: Path) -> None:
        self.stack, self.control, self.runs = stack, control, 0

    def run(self, workload: Workload, policy: str, *, window_s: float = 4.0, kappa_chunks: int = 8,
            full: str = "low", kept: str = "middle") -> Outcome:  # fmt: skip
        self.runs += 1
        label = f"run-{self.runs}"
        post(f"{self.stack.status_url}/cache/clear", {})
        wanted = {"run": label, "policy": policy, "kappa_chunks": kappa_chunks, "window_s": window_s,
                  "full": full, "kept": kept}  # fmt: skip
        switch(self.control, wanted)
        wait_for(lambda: self.stack.record().engine == label, 20, f"the policy to become {policy}")
        before, server_before = self.stack.metrics(), self.stack.server_metrics()
        started_s = time.monotonic()
        calls, peak = drive(self.stack, workload, self.runs)
        seconds = time.monotonic() - started_s
        time.sleep(1.0)
        after, server_after = self.stack.metrics(), self.stack.server_metrics()
        record = self.stack.record()

        def rise(name: str) -> int:
            return round(after.get(name, 0) - before.get(name, 0))

        def server_rise(name: str) -> int:
            return round(server_after.get(name, 0) - server_before.get(name, 0))

        prompt = rise("vllm:prompt_tokens_total")
        return Outcome(
            calls=calls, prompt=prompt, computed=record.computed_tokens or 0, restored=record.restored_tokens or 0,
            gpu_hits=record.gpu_hit_tokens or 0,
            written=server_rise("lmcache_mp_l1_write_chunks_total") * CHUNK_TOKENS,
            failed=server_rise("lmcache_mp_l1_allocation_failure_chunks_total") * CHUNK_TOKENS,
            seconds=seconds, record=record, peak_agents=peak,
        )  # fmt: skip


def switch(control: Path, wanted: dict[str, Any]) -> None:
    part = control.with_suffix(".part")
    part.write_text(json.dumps(wanted))
    part.replace(control)


def drive(stack: Engine, workload: Workload, salt: int) -> tuple[int, int]:
    """Run the workload; returns calls and the most agents that the plugin saw at once. ``salt`` keeps runs apart."""
    queue: Queue[list[list[int]]] = Queue()
    for added in workload.plans():
        queue.put(added)
    calls, failures, peak = [0], [], [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            peak[0] = max(peak[0], stack.record(after_s=0).agents or 0)

    def agent(number: int) -> None:
        rng = random.Random(number)
        while True:
            try:
                added = queue.get_nowait()
            except Empty:
                return
            prompt: list[int] = []
            for turn in added:
                prompt += turn
                try:
                    prompt += stack.output(prompt, OUTPUT_TOKENS, cache_salt=f"run-{salt}")
                except AssertionError as error:
                    failures.append(error)
                    return
                calls[0] += 1
                time.sleep(rng.uniform(*workload.gap_s))

    watcher = threading.Thread(target=watch)
    watcher.start()
    threads = [threading.Thread(target=agent, args=(number,)) for number in range(workload.agents)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    if failures:
        raise failures[0]
    return calls[0], peak[0]


def bench_stack(model: Path, folder: Path, host_mib: int, **options: Any) -> Any:
    """An engine whose policy can be switched; L1 of ``host_mib``. It looks at its watermark 20 times a second."""
    control = folder / "control.json"
    switch(control, {"run": "start", "policy": "none", "kappa_chunks": 8, "window_s": 2.0})
    return engine(
        model, folder, policy="none", host_mib=host_mib, evict_every_s=0.05,
        vllm=("--num-gpu-blocks-override", str(GPU_BLOCKS), "--max-model-len", "4608"),
        extra={"kv_connector": "SwitchableConnector", "kv_connector_module_path": "tests.engine.switchable",
               "control": str(control), "eactl.report_every_s": 0.25},
        **options,
    )  # fmt: skip


READINGS = (
    ("none", {}), ("fixed", {}),
    ("conditioned", {"full": "configured", "kept": "configured"}),
    ("conditioned", {"full": "low", "kept": "low"}),
    ("conditioned", {"full": "low", "kept": "middle"}),
)  # fmt: skip


def main(ratios: Sequence[float], headroom: bool) -> None:
    """``headroom``: L1 doubled and kept half empty, so that no store finds it full."""
    workload = Workload()
    options = {"watermark": 0.5, "eviction_ratio": 0.05} if headroom else {}
    print(f"N̄ {workload.mean_prompt_tokens:.0f} tokens, working set {workload.working_set_bytes / 2**20:.1f} MiB")
    with tempfile.TemporaryDirectory() as name:
        model = make(Path(name) / "tiny", hidden=HIDDEN)
        for ratio in ratios:
            folder = Path(name) / f"{ratio}"
            folder.mkdir()
            host_mib = max(1, round(ratio * workload.working_set_bytes / 2**20))
            with bench_stack(model, folder, host_mib, **options) as stack:
                bench = Bench(stack, folder / "control.json")
                for policy, reading in READINGS:
                    out = bench.run(workload, policy, **reading)
                    print(
                        f"{ratio:4} {policy:12} {'/'.join(reading.values()):22} computed {out.computed / 1e3:6.0f}K "
                        f"restored {out.restored / 1e3:5.0f}K gpu {out.gpu_hits / 1e3:5.0f}K "
                        f"written {out.written / 1e3:5.0f}K failed {out.failed / 1e3:5.0f}K "
                        f"skipped {out.record.skipped_requests:4} agents≤{out.peak_agents} "
                        f"calls {out.calls} {out.seconds:.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    numbers = [float(arg) for arg in sys.argv[1:] if arg != "--headroom"]
    main(numbers or [0.3, 0.6, 1.0, 1.4, 2.0, 4.0], "--headroom" in sys.argv)
