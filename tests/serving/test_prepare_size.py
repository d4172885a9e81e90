"""``--host-gib auto``: what the recommendation of ``eactl size`` becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eactl.serving.prepare import prepare
from eactl.units import GIB


def saved_size(folder: Path, gib: float) -> Path:
    path = folder / "size.json"
    path.write_text(json.dumps({"schema": "eactl.size/1", "recommendation": {"host_gib_rank": gib}}))
    return path


@pytest.mark.parametrize(("mode", "gib"), [("multi-process", 12.5), ("in-process", 8.0)])
def test_the_server_gets_so_much_that_it_keeps_the_recommended_size(tmp_path: Path, mode: str, gib: float) -> None:
    # LMCache's server keeps 0.8 * (1 - 0.2) = 64 % at worst: 8 / 0.64 = 12.5; in-process all of it is kept
    launch = prepare(
        host_gib="auto", size_file=saved_size(tmp_path, 8), device="cpu", servers=(), vllm_args=(),
        model="Qwen3-Coder-30B-A3B", mode=mode,
    )  # fmt: skip
    assert launch.plan.tier.bytes_rank == round(gib * GIB)
    assert "recommends 8 GiB" in launch.size_reason


def test_on_a_cpu_vllm_gets_a_small_kv_cache_unless_the_user_asked_for_another() -> None:
    launch = prepare(host_gib="1", size_file=None, device="cpu", servers=(), vllm_args=(), model="Qwen3-Coder-30B-A3B")
    vllm = launch.plan.vllm
    assert vllm.environment({})["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert vllm.environment({"VLLM_CPU_KVCACHE_SPACE": "40"})["VLLM_CPU_KVCACHE_SPACE"] == "40"
