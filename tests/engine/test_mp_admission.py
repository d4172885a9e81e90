"""Multi-process mode on a real engine: who may write, what stays behind, what happens when something breaks.

One engine with policy `fixed` and κ = 8 chunks of 32 tokens: a prompt with more than 8 new chunks is declined. The
GPU cache is 128 blocks of 32 tokens, so eight long requests preempt each other.
"""

from __future__ import annotations

import random
import signal
import threading
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
from tests.engine.on_demand import FAULT_FILE, HOOKS
from tests.engine.stack import Engine, engine, wait_for


@pytest.fixture(scope="module")
def fault_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fixed") / "fault"


@pytest.fixture(scope="module")
def stack(without_tier: dict[str, list[list[int]]], tiny_model: Path, fault_file: Path) -> Iterator[Engine]:
    faulty = {"kv_connector": "FaultyMPConnector", "kv_connector_module_path": "tests.engine.faulty_mp"}
    with engine(
        tiny_model, fault_file.parent, policy="fixed", kappa_chunks=8, host_mib=64, vllm=GPU_OPTIONS, extra=faulty,
        env={FAULT_FILE: str(fault_file)},
    ) as running:  # fmt: skip
        yield running


def is_fresh(age_s: float | None) -> bool:
    return age_s is not None and age_s < 2


def idle(stack: Engine) -> None:
    """Nothing runs, nothing is locked, nothing waits: on vLLM's side and on the server's."""

    def settled() -> bool:
        server = stack.server()
        level = server["storage_manager"]["l1_manager"]
        return (
            vllm_is_idle(stack)
            and level["read_locked_count"] == level["write_locked_count"] == 0
            and server["active_sessions"] == server["active_prefetch_jobs"] == 0
        )

    wait_for(settled, 30, "usage, locks and sessions to return to zero")


def test_a_declined_request_writes_nothing_and_an_admitted_one_every_full_chunk(stack: Engine) -> None:
    before = stack.objects()
    stack.output(prompts(10, 1, 1000)[0])  # 31 new chunks
    assert stack.objects() == before
    stack.output(prompts(11, 1, 200)[0])  # floor(200 / 32) = 6
    wait_for(lambda: stack.objects() == before + 6, 10, "six chunks")
    record = stack.record()
    assert (record.requests, record.skipped_requests, record.skipped_chunks) == (2, 1, 31)
    assert record.registered_chunks == before + 6
    assert record.computed_tokens == 1200


def test_a_client_can_ask_not_to_be_stored(stack: Engine) -> None:
    before, asked = stack.objects(), stack.record().client_skipped_requests or 0
    stack.output(prompts(12, 1, 200)[0], kv_transfer_params={"skip_save": True})
    assert stack.objects() == before
    assert stack.record().client_skipped_requests == asked + 1


def test_decisions_hold_through_preemption_and_tokens_are_those_of_an_engine_without_a_tier(
    stack: Engine, without_tier: dict[str, list[list[int]]]
) -> None:
    before, preempted = stack.objects(), stack.metrics()["vllm:num_preemptions_total"]
    assert together(stack, DECLINED, DECLINED_OUTPUT) == without_tier["declined"]
    assert stack.metrics()["vllm:num_preemptions_total"] > preempted
    assert stack.objects() == before

    preempted = stack.metrics()["vllm:num_preemptions_total"]
    assert together(stack, ADMITTED, ADMITTED_OUTPUT) == without_tier["admitted"]
    assert stack.metrics()["vllm:num_preemptions_total"] > preempted
    wait_for(lambda: stack.objects() == before + 8 * 7, 10, "the chunks of eight prompts")
    assert (stack.record().preemptions or 0) > 0


def test_what_was_stored_is_restored_and_told_apart_from_the_gpus_hits(stack: Engine) -> None:
    before = stack.record()
    metrics = stack.metrics()
    assert together(stack, ADMITTED, 4)  # 7 chunks each are in the tier; the GPU has seen others since
    after = stack.record()
    restored = (after.restored_tokens or 0) - (before.restored_tokens or 0)
    exported = (
        stack.metrics()["vllm:external_prefix_cache_hits_total"] - metrics["vllm:external_prefix_cache_hits_total"]
    )
    assert restored == exported > 0
    # every prompt token was found on the GPU, restored or computed
    rises = [
        (getattr(after, name) or 0) - (getattr(before, name) or 0)
        for name in ("gpu_hit_tokens", "restored_tokens", "computed_tokens")
    ]
    assert sum(rises) == 8 * 250


def test_one_prompt_sent_by_eight_clients_at_once_is_written_once(stack: Engine) -> None:
    before = stack.objects()
    same = prompts(13, 1, 250)[0]
    together(stack, [same] * 8, 4)
    time.sleep(1)
    assert stack.objects() == before + 7


def test_our_counters_are_on_vllms_own_metrics_page(stack: Engine) -> None:
    record = stack.record()

    def exported() -> bool:
        stack.output([7] * 20, 2)  # vLLM sends statistics along with its steps
        metrics = stack.metrics()
        return (
            metrics.get("eactl:skipped_requests_total") == record.skipped_requests
            and metrics.get("eactl:registered_chunks") == record.registered_chunks
        )

    wait_for(exported, 15, "the counters on /metrics")


def test_after_200_requests_usage_locks_and_sessions_are_zero(stack: Engine) -> None:
    mixed = prompts(14, 100, 200) + prompts(15, 100, 400)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda prompt: stack.complete(prompt, 8), mixed))
    assert len(replies) == 200
    idle(stack)
    record = stack.record()
    assert record.requests == (record.saved_requests or 0) + (record.skipped_requests or 0)
    assert record.faults == 0


def test_after_clients_hang_up_in_the_middle_usage_locks_and_sessions_are_zero(stack: Engine) -> None:
    hang_up(stack, prompts(16, 8, 250) + prompts(17, 8, 400))
    idle(stack)
    assert stack.record().faults == 0


def test_serving_goes_on_while_the_state_file_is_damaged_stale_or_cannot_be_written(stack: Engine) -> None:
    check_that_a_bad_state_file_stops_nothing(stack)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_fault_of_ours_is_counted_and_everything_is_served_and_stored(
    stack: Engine, fault_file: Path, hook: str
) -> None:
    check_that_a_fault_is_counted_and_passed_over(stack, fault_file, hook, 40 + HOOKS.index(hook), stack.objects)
    idle(stack)


def test_no_request_fails_or_hangs_when_the_lmcache_server_is_killed_and_comes_back(stack: Engine) -> None:
    server = stack.children[0]
    faults = stack.record().faults
    failures: list[BaseException] = []
    longest_s = [0.0]
    stop = threading.Event()

    def client(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                started_s = time.monotonic()
                assert len(stack.output([rng.randrange(10, 4000) for _ in range(250)], 8)) == 8
                longest_s[0] = max(longest_s[0], time.monotonic() - started_s)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(100, 104)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    server.signal(signal.SIGKILL)
    wait_for(lambda: server.status is not None, 5, "the server to be gone")
    time.sleep(5)
    assert not failures
    stack.start(server.process)
    time.sleep(3)
    stop.set()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures
    assert longest_s[0] < 30  # what was on its way when the server died waited for it for 10 s, then went on without
    wait_for(lambda: is_fresh(stack.record().age_s), 30, "a fresh report of the new server")
    assert stack.record().faults == faults
