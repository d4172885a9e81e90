"""Eq. 5 and the pressure ratios, at the values that METHOD.md gives for checking."""

from __future__ import annotations

import pytest

from eactl.model.workingset import gamma_gpu, gamma_host, tier_chunks, working_set_bytes
from eactl.units import GIB, KIB, MIB


@pytest.mark.parametrize(
    ("agents", "tokens", "gib"),
    [
        (16, 33_234, 11.4),  # 15 · 33,234 · 24 KiB
        (8, 33_234, 5.3),  # 7 · 33,234 · 24 KiB
        (64, 64 * 1024, 94.5),  # 63 · 65,536 · 24 KiB
        (128, 128 * 1024, 381.0),  # 127 · 131,072 · 24 KiB
    ],
)
def test_the_working_set_is_the_other_agents_contexts(agents: int, tokens: int, gib: float) -> None:
    assert round(working_set_bytes(agents, tokens, 24 * KIB) / GIB, 1) == gib


def test_one_agent_has_no_reuse_working_set() -> None:
    assert working_set_bytes(1, 33_234, 24 * KIB) == 0
    assert working_set_bytes(0.4, 33_234, 24 * KIB) == 0


@pytest.mark.parametrize(("gib", "chunks"), [(5, 213), (10, 426), (40, 1706)])
def test_only_whole_chunks_fit(gib: int, chunks: int) -> None:
    assert tier_chunks(gib * GIB, 24 * MIB) == chunks  # 1,024-token chunks of 24 MiB


def test_pressure_on_gpu_and_host() -> None:
    assert round(gamma_gpu(16, 33_234, 343_408), 2) == 1.55
    reuse = working_set_bytes(16, 33_234, 24 * KIB)
    assert [round(gamma_host(reuse, size * GIB) or 0, 2) for size in (5, 10, 20)] == [2.28, 1.14, 0.57]
    assert gamma_host(reuse, 0) is None
