"""Footprints against the cache specifications of the installed vLLM, for every case and TP that it can build here."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from eactl.model.footprint import footprint
from tests.cli_runner import ROOT, environment
from tests.model.footprint_cases import BY_NAME, CASES

pytest.importorskip("vllm")

# What vLLM 0.32's CPU build cannot build: gone from it, needing a GPU, or refused by it.
CANNOT_BUILD = {
    "multi-query attention",
    "multi-head although multi_query exists",
    "MPT's nested attention settings",
    "MLA with an indexer in each layer",
    "MLA with an indexer in every fourth layer",
    "a window in the upper layers",
    "KDA with MLA",
    "blocks with and without attention",
    "KV heads given layer by layer",
}


@pytest.fixture(scope="module")
def specified() -> dict[tuple[str, int], dict[str, Any]]:
    """(case, TP) -> what vLLM's layers declare; found in a process of its own, because it sets up process groups."""
    command = [sys.executable, "-m", "tests.engine.vllm_specs"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {(name, tp): result for name, tp, result in lines}


@pytest.mark.parametrize(("name", "tp"), [(case.name, tp) for case in CASES for tp in case.rank_bytes])
def test_a_footprint_is_what_vllm_allocates(
    specified: dict[tuple[str, int], dict[str, Any]], name: str, tp: int
) -> None:
    result = specified[name, tp]
    if name in CANNOT_BUILD:
        assert "bytes_per_token" not in result, "this vLLM builds it: compare it"
        pytest.skip(str(result))
    config = BY_NAME[name].config
    # states in float32, as vLLM's CPU build always has them
    expected = footprint({**(config.get("text_config") or config), "mamba_ssm_dtype": "float32"}, tp=tp)
    assert result == {
        "bytes_per_token": expected.bytes_per_token_rank,
        "growing_bytes_per_token": expected.growing_bytes_per_token_rank,
        "state_bytes": expected.state_bytes_per_sequence_rank,
    }
