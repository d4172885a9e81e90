"""``--policy lazy``: LMCache's own eviction-aware offload, switched on by serve and watched by us."""

from __future__ import annotations

from pathlib import Path

from tests.engine.batches import GPU_OPTIONS, prompts
from tests.engine.stack import engine, wait_for


def test_stores_wait_until_the_gpu_needs_the_blocks_and_are_restored_from_then_on(
    tiny_model: Path, tmp_path: Path
) -> None:
    with engine(tiny_model, tmp_path, policy="lazy", host_mib=64, vllm=GPU_OPTIONS) as stack:
        assert "lazy offload enabled with EVICTION_AWARE policy" in stack.log()
        first = prompts(50, 1, 250)[0]  # 7 full chunks of 32
        output = stack.output(first, 8)
        assert stack.record().requests == 1
        assert stack.objects() == 0  # every other policy has stored it by now; the GPU has room for 4,096 tokens

        for prompt in prompts(51, 16, 400):  # 16 · 400 tokens: more than that
            stack.output(prompt, 8)
        wait_for(lambda: stack.objects() >= 7, 10, "the first prompt's chunks")
        before = stack.record()
        assert before.restored_tokens == 0
        assert stack.output(first, 8) == output
        record = stack.record()
        assert (record.policy, record.skipped_requests, record.faults) == ("lazy", 0, 0)
        assert 0 < (record.restored_tokens or 0) <= 7 * 32
