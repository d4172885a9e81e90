"""What clients and a host's disk do to an engine, and what must still hold then; the same in both modes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eactl.telemetry.statefile import read_state
from tests.engine.batches import prompts
from tests.engine.stack import KEEPS_TOKENS, Engine, wait_for


def hang_up(stack: Engine, batch: Sequence[Sequence[int]], at_once: int = 16) -> None:
    """Send each prompt as a stream and close the connection after its first bytes."""
    host, port = stack.url.removeprefix("http://").split(":")

    def one(prompt: Sequence[int]) -> None:
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        body = {"model": "tiny", "prompt": list(prompt), "max_tokens": 500, "stream": True, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        with contextlib.suppress(OSError):
            connection.getresponse().read(200)
        connection.close()

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, batch))


def vllm_is_idle(stack: Engine) -> bool:
    """Nothing runs, nothing waits, no block of the GPU cache is held."""
    metrics = stack.metrics()
    if metrics["vllm:kv_cache_usage_perc"] != 0:
        stack.output([5] * 10, 2)  # vLLM lets go of the last request's blocks in the step after it
        metrics = stack.metrics()
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    return all(metrics[name] == 0 for name in names)


def check_that_a_bad_state_file_stops_nothing(stack: Engine) -> None:
    """Corrupt, stale, and where it cannot be written: requests are served, and the file is good again afterwards."""
    stack.state_file.write_text('{"schema": "eactl.tier/1", "at_s": ')
    with pytest.raises(ValueError, match="holds no JSON"):
        read_state(stack.state_file)
    served = stack.record().requests or 0  # it was replaced at the next interval

    old = json.loads(stack.state_file.read_text()) | {"at_s": 1.0, "requests": 10**9}
    stack.state_file.write_text(json.dumps(old))
    os.utime(stack.state_file, (1, 1))
    assert len(stack.output(prompts(18, 1, 100)[0])) == 16
    assert stack.record().requests == served + 1  # counted by the engine, not taken from the file

    stack.state_file.unlink()
    stack.state_file.mkdir()
    try:
        (stack.state_file / "in the way").touch()
        wait_for(lambda: "fails" in stack.log() and "tier.json" in stack.log(), 10, "the failure in the log")
        assert len(stack.output(prompts(19, 1, 100)[0])) == 16
    finally:
        (stack.state_file / "in the way").unlink()
        stack.state_file.rmdir()
    record = stack.record()
    assert record.requests == served + 2
    assert record.faults == 0


@contextlib.contextmanager
def fault_in(file: Path, hook: str) -> Iterator[None]:
    """Within the block the gate's ``hook`` raises, in an engine that was started with tests.engine.faults."""
    file.write_text(hook)
    try:
        yield
    finally:
        file.unlink()


def check_that_a_fault_is_counted_and_passed_over(
    stack: Engine, file: Path, hook: str, seed: int, stored: Callable[[], int]
) -> None:
    """With the gate's ``hook`` failing, requests are served, their chunks stored and restored, the fault counted."""
    batch = prompts(seed, 4, 200)  # 6 full chunks of 32, within what policy `fixed` admits
    before, faults = stored(), stack.record().faults or 0
    with fault_in(file, hook):
        first = [stack.output(prompt, 8) for prompt in batch]
        wait_for(lambda: stored() == before + 4 * 6, 20, "the chunks of four prompts")
    assert (stack.record().faults or 0) > faults
    assert "a fault in" in stack.log()
    again = [stack.output(prompt, 8) for prompt in batch]
    assert again == first or not KEEPS_TOKENS
