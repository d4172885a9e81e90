"""In-process mode on a real engine, through a shim that copies between vLLM's CPU cache and LMCache's memory.

Policy `fixed` with κ = 8 chunks of 32 tokens, as in the tests of multi-process mode.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.engine.batches import ADMITTED, ADMITTED_OUTPUT, DECLINED, DECLINED_OUTPUT, GPU_OPTIONS, prompts, together
from tests.engine.stack import Engine, engine, wait_for


@pytest.fixture(scope="module")
def stack(
    without_tier: dict[str, list[list[int]]],
    tiny_model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Engine]:
    shim = {"kv_connector": "ShimmedConnector", "kv_connector_module_path": "tests.engine.cpu_shim"}
    with engine(
        tiny_model, tmp_path_factory.mktemp("inprocess"), policy="fixed", mode="in-process", kappa_chunks=8,
        host_mib=64, vllm=GPU_OPTIONS, extra={**shim, "eactl.bytes_per_token": 2048},
    ) as running:  # fmt: skip
        yield running


def chunks(stack: Engine) -> int:
    """Chunks in the tier, by a report that came after now; workers report with the steps of requests."""
    asked_s = time.time()

    def reported() -> bool:
        stack.output([9] * 5, 2)  # too short to be stored
        record = stack.record(after_s=asked_s)
        return record.age_s is not None and record.at_s - record.age_s > asked_s

    wait_for(reported, 20, "a worker's report")
    return stack.record(after_s=asked_s).registered_chunks or 0


def test_a_declined_request_writes_nothing_and_an_admitted_one_every_full_chunk(stack: Engine) -> None:
    before = chunks(stack)
    stack.output(prompts(30, 1, 1000)[0])
    assert chunks(stack) == before
    stack.output(prompts(31, 1, 200)[0])  # 6 full chunks and a part, which is not stored
    assert chunks(stack) == before + 6
    record = stack.record()
    assert (record.skipped_requests, record.skipped_chunks) == (1, 31)
    assert record.capacity_chunks == 1024  # 64 MiB of 32 · 2,048 bytes


def test_decisions_hold_through_preemption_and_tokens_are_those_of_an_engine_without_a_tier(
    stack: Engine, without_tier: dict[str, list[list[int]]]
) -> None:  # fmt: skip
    before, preempted = chunks(stack), stack.metrics()["vllm:num_preemptions_total"]
    assert together(stack, DECLINED, DECLINED_OUTPUT) == without_tier["declined"]
    assert stack.metrics()["vllm:num_preemptions_total"] > preempted
    assert chunks(stack) == before
    assert together(stack, ADMITTED, ADMITTED_OUTPUT) == without_tier["admitted"]
    assert chunks(stack) >= before + 8 * 7


def test_what_was_stored_is_restored_and_gives_the_same_tokens(
    stack: Engine, without_tier: dict[str, list[list[int]]]
) -> None:  # fmt: skip
    restored = stack.record().restored_tokens or 0
    assert together(stack, ADMITTED, 8) == [output[:8] for output in without_tier["admitted"]]
    assert (stack.record().restored_tokens or 0) > restored


def test_one_prompt_sent_by_eight_clients_at_once_is_copied_once(stack: Engine) -> None:
    before, stored = chunks(stack), stack.record().stored_tokens or 0
    together(stack, [prompts(32, 1, 250)[0]] * 8, 4)
    assert chunks(stack) == before + 7
    assert (stack.record().stored_tokens or 0) - stored == 7 * 32


def test_after_200_requests_nothing_is_held_and_no_fault_was_passed_over(stack: Engine) -> None:
    mixed = prompts(33, 100, 200) + prompts(34, 100, 400)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda prompt: stack.complete(prompt, 8), mixed))) == 200
    stack.output([5] * 10, 2)
    wait_for(lambda: stack.metrics()["vllm:kv_cache_usage_perc"] == 0, 20, "vLLM's cache to be idle")
    record = stack.record()
    assert record.requests == (record.saved_requests or 0) + (record.skipped_requests or 0)
    assert record.faults == 0


def test_our_counters_are_on_vllms_own_metrics_page(stack: Engine) -> None:
    record = stack.record()

    def exported() -> bool:
        stack.output([7] * 20, 2)
        return stack.metrics().get("eactl:skipped_requests_total") == record.skipped_requests

    wait_for(exported, 15, "the counters on /metrics")
