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
from tests.engine.clients import (
    check_that_a_bad_state_file_stops_nothing,
    check_that_a_fault_is_counted_and_passed_over,
    hang_up,
    vllm_is_idle,
)
from tests.engine.on_demand import FAULT_FILE, HOOKS, PINS_FILE
from tests.engine.stack import KEEPS_TOKENS, Engine, engine, wait_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inprocess")


@pytest.fixture(scope="module")
def stack(without_tier: dict[str, list[list[int]]], tiny_model: Path, folder: Path) -> Iterator[Engine]:
    shim = {"kv_connector": "ShimmedConnector", "kv_connector_module_path": "tests.engine.cpu_shim"}
    with engine(
        tiny_model, folder, policy="fixed", mode="in-process", kappa_chunks=8,
        host_mib=128, vllm=GPU_OPTIONS, extra={**shim, "eactl.bytes_per_token": 2048, "eactl.report_every_s": 0.2},
        env={FAULT_FILE: str(folder / "fault"), PINS_FILE: str(folder / "pins")},
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


def pinned(stack: Engine, folder: Path) -> int:
    """Chunks that LMCache holds for a request under way, as of a step that came after now."""
    asked_s = time.time()
    stack.output([9] * 5, 2)
    at_s, count = (folder / "pins").read_text().split()
    assert float(at_s) > asked_s
    return int(count)


def idle(stack: Engine, folder: Path) -> None:
    """Nothing runs, waits or is held: neither in vLLM's cache nor in LMCache's tier."""
    wait_for(lambda: pinned(stack, folder) == 0 and vllm_is_idle(stack), 30, "usage and locks to return to zero")


def test_a_declined_request_writes_nothing_and_an_admitted_one_every_full_chunk(stack: Engine) -> None:
    before = chunks(stack)
    stack.output(prompts(30, 1, 1000)[0])
    assert chunks(stack) == before
    stack.output(prompts(31, 1, 200)[0])  # 6 full chunks and a part, which is not stored
    assert chunks(stack) == before + 6
    record = stack.record()
    assert (record.skipped_requests, record.skipped_chunks) == (1, 31)
    assert record.capacity_chunks == 2048  # 128 MiB of 32 · 2,048 bytes


def test_decisions_hold_through_preemption_and_tokens_are_those_of_an_engine_without_a_tier(
    stack: Engine, without_tier: dict[str, list[list[int]]]
) -> None:  # fmt: skip
    before, preempted = chunks(stack), stack.metrics()["vllm:num_preemptions_total"]
    outputs = together(stack, DECLINED, DECLINED_OUTPUT)
    assert outputs == without_tier["declined"] or not KEEPS_TOKENS
    assert stack.metrics()["vllm:num_preemptions_total"] > preempted
    assert chunks(stack) == before
    outputs = together(stack, ADMITTED, ADMITTED_OUTPUT)
    assert outputs == without_tier["admitted"] or not KEEPS_TOKENS
    assert chunks(stack) >= before + 8 * 7


def test_what_was_stored_is_restored_and_gives_the_same_tokens(
    stack: Engine, without_tier: dict[str, list[list[int]]]
) -> None:  # fmt: skip
    restored = stack.record().restored_tokens or 0
    outputs = together(stack, ADMITTED, 8)
    assert outputs == [output[:8] for output in without_tier["admitted"]] or not KEEPS_TOKENS
    assert (stack.record().restored_tokens or 0) > restored


def test_a_restore_gives_the_tokens_that_the_gpus_own_cache_gives(stack: Engine) -> None:
    batch = prompts(37, 4, 200)  # 6 full chunks each
    for prompt in batch:
        stack.output(prompt, 8)
    from_gpu = [stack.output(prompt, 8) for prompt in batch]
    for prompt in prompts(38, 24, 240):  # 24 · 240 tokens push them out of a cache of 4,096
        stack.output(prompt, 2)
    restored = stack.record().restored_tokens or 0
    assert [stack.output(prompt, 8) for prompt in batch] == from_gpu
    assert stack.record().restored_tokens == restored + 4 * 192


def test_one_prompt_sent_by_eight_clients_at_once_is_copied_once(stack: Engine) -> None:
    before, stored = chunks(stack), stack.record().stored_tokens or 0
    together(stack, [prompts(32, 1, 250)[0]] * 8, 4)
    assert chunks(stack) == before + 7
    assert (stack.record().stored_tokens or 0) - stored == 7 * 32


def test_after_200_requests_nothing_is_held_and_no_fault_was_passed_over(stack: Engine, folder: Path) -> None:
    mixed = prompts(33, 100, 200) + prompts(34, 100, 400)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(lambda prompt: stack.complete(prompt, 8), mixed))) == 200
    idle(stack, folder)
    record = stack.record()
    assert record.requests == (record.saved_requests or 0) + (record.skipped_requests or 0)
    assert record.faults == 0


def test_our_counters_are_on_vllms_own_metrics_page(stack: Engine) -> None:
    record = stack.record()

    def exported() -> bool:
        stack.output([7] * 20, 2)
        return stack.metrics().get("eactl:skipped_requests_total") == record.skipped_requests

    wait_for(exported, 15, "the counters on /metrics")


def test_after_clients_hang_up_in_the_middle_usage_and_locks_are_zero(stack: Engine, folder: Path) -> None:
    hang_up(stack, [*prompts(35, 8, 250), *prompts(36, 8, 400), *ADMITTED])  # the last ones are in the tier
    idle(stack, folder)
    assert stack.record().faults == 0


def test_serving_goes_on_while_the_state_file_is_damaged_stale_or_cannot_be_written(stack: Engine) -> None:
    check_that_a_bad_state_file_stops_nothing(stack)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_fault_of_ours_is_counted_and_everything_is_served_and_stored(stack: Engine, folder: Path, hook: str) -> None:
    check_that_a_fault_is_counted_and_passed_over(
        stack, folder / "fault", hook, 40 + HOOKS.index(hook), lambda: chunks(stack)
    )
    idle(stack, folder)
