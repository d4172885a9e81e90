"""Checks before a launch: each refusal and warning, with its remedy."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eactl.configs import resolve_model
from eactl.model.footprint import footprint
from eactl.serving.detect import Installed, locks_past_limit, port_problem, version_tuple
from eactl.serving.plan import Weight, tier_of
from eactl.serving.preflight import HostFacts, ModelFacts, check, usable_hit_tokens
from eactl.serving.prepare import model_facts
from eactl.serving.settings import ServeSettings

GIB = 1 << 30
HOST = HostFacts(
    free_bytes=900 * GIB, limit_bytes=1000 * GIB, shm_total_bytes=500 * GIB, shm_free_bytes=500 * GIB, devices=8
)
TESTED = Installed("0.32.0", "0.5.6", "m", "pip install x")


def findings(
    host: HostFacts = HOST,
    model: ModelFacts | None = None,
    installed: Installed = TESTED,
    gib: float = 10,
    **options: Any,
) -> dict[str, tuple[str, str]]:
    settings = ServeSettings(model="m", **options)
    tier = tier_of(settings, Weight(24576, settings.tp), int(gib * GIB))
    found = check(settings, tier, host, model or ModelFacts(), installed)
    assert len({finding.name for finding in found}) == len(found)
    return {finding.name: (finding.level, finding.text) for finding in found}


def test_a_machine_with_room_passes_every_check() -> None:
    assert {level for level, _ in findings(tp=8).values()} == {"ok"}


def test_a_tier_above_free_memory_is_refused_with_the_largest_that_fits() -> None:
    level, text = findings(gib=512, tp=8)["memory"]
    assert level == "refused"
    assert "8 × 512 GiB = 4 TiB" in text
    assert text.endswith("use --host-gib 106")  # (900 − 5 % of 1,000) / 8


def test_a_cgroup_limit_counts() -> None:
    host = replace(HOST, free_bytes=90 * GIB, limit_bytes=96 * GIB, cgroup_limit_bytes=96 * GIB)
    level, text = findings(host, gib=64, tp=2)["memory"]
    assert level == "refused" and "the cgroup limit leaves" in text


def test_shared_memory_that_is_too_small_says_by_how_much_and_names_leftovers() -> None:
    host = replace(HOST, shm_total_bytes=8 * GIB, shm_free_bytes=int(1.4 * GIB), shm_leftovers=("vllm_offload_x.mmap",))
    found = findings(host, gib=64, device="cpu")
    level, text = found["shm"]
    assert level == "refused"
    assert "1.4 GiB free of 8 GiB" in text
    assert "75.4 GiB too little" in text  # 64 · 1.2 − 1.4
    assert found["shm-leftovers"][0] == "warning" and "vllm_offload_x.mmap" in found["shm-leftovers"][1]


def test_a_limit_on_locked_memory_below_the_tier_is_said_with_both_sizes_and_the_remedy() -> None:
    low = replace(HOST, memlock_bytes=64 << 20)
    level, text = findings(low, gib=64, tp=2)["memlock"]
    assert level == "warning"  # CUDA on Linux pins past it, so a refusal would be wrong on most machines
    assert "pins 128 GiB in one process" in text  # one server holds both ranks' tiers
    assert "RLIMIT_MEMLOCK allows 64 MiB" in text
    assert "ulimit -l unlimited" in text and "LimitMEMLOCK=infinity" in text
    assert "pins 64 GiB" in findings(low, gib=64, tp=2, mode="in-process")["memlock"][1]  # each rank pins its own
    assert findings(replace(HOST, memlock_bytes=64 * GIB), gib=64)["memlock"][0] == "ok"
    assert "no limit binds it" in findings(gib=64)["memlock"][1]
    assert "nothing is pinned" in findings(low, gib=64, device="cpu")["memlock"][1]


@pytest.mark.parametrize(
    ("capabilities", "past"),
    [("000001ffffffffff", True), ("00000000a80425fb", False), ("0000000000004000", True), ("x", False)],
)
def test_a_process_with_cap_ipc_lock_is_not_bound_by_that_limit(tmp_path: Path, capabilities: str, past: bool) -> None:
    status = tmp_path / "status"  # bit 14; docker's default set 0xa80425fb lacks it
    status.write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    assert locks_past_limit(status) is past
    assert not locks_past_limit(tmp_path / "absent")


def test_ports_devices_and_versions() -> None:
    taken = (("--port", "port 8000 is taken by another process: choose another with"),)
    assert findings(replace(HOST, port_problems=taken))["ports"] == (
        "refused", "port 8000 is taken by another process: choose another with --port",
    )  # fmt: skip
    assert findings(replace(HOST, devices=0))["device"][0] == "refused"
    assert findings(replace(HOST, devices=4), tp=8)["device"][0] == "refused"
    assert findings(installed=replace(TESTED, vllm="0.31.9"))["vllm-version"][0] == "refused"
    assert findings(installed=replace(TESTED, vllm="0.34.0"))["vllm-version"][0] == "warning"
    assert findings(installed=replace(TESTED, vllm=None))["vllm-version"] == (
        "refused", "vllm is not installed here: pip install x",
    )  # fmt: skip
    assert (
        findings(installed=replace(TESTED, vllm="0.13.0", lmcache="0.3.12"), mode="in-process")["vllm-version"][0]
        == "ok"
    )
    assert [version_tuple(text) for text in ("0.32.0+cpu", "0.5.6.post1", "0.33rc1", "x")] == [
        (0, 32, 0), (0, 5, 6), (0, 33), (),
    ]  # fmt: skip


def test_why_a_port_cannot_be_used_is_told_apart() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert port_problem("127.0.0.1", port) == f"port {port} is taken by another process: choose another with"
    assert port_problem("127.0.0.1", port) is None
    # 192.0.2.0/24 is for documentation and .invalid names nothing
    assert "no address of this machine" in (port_problem("192.0.2.77", port) or "")
    assert "name of no address" in (port_problem("no-such-host.invalid", port) or "")


def test_a_model_that_vllm_cannot_load_by_that_name_is_refused(tmp_path: Path) -> None:
    assert findings(model=ModelFacts(unservable="give another name"))["model"] == ("refused", "give another name")
    name = "Qwen3-Coder-30B-A3B"
    weight = footprint(resolve_model(name).config)
    assert "own table" in (model_facts(weight, resolve_model(name), name).unservable or "")
    full = f"Qwen/{name}-Instruct"
    assert model_facts(weight, resolve_model(full), full).unservable is None  # vLLM fetches it by that name
    config = tmp_path / "config.json"
    config.write_text(json.dumps(resolve_model(name).config))
    found = resolve_model(str(config))
    assert str(tmp_path) in (model_facts(weight, found, str(config)).unservable or "")
    assert model_facts(weight, resolve_model(str(tmp_path)), str(tmp_path)).unservable is None


def test_models_that_need_a_word() -> None:
    mla = findings(model=ModelFacts(mla=True), tp=8)["mla-copies"]
    assert mla[0] == "ok" and "stores them once" in mla[1]
    assert findings(model=ModelFacts(hybrid=True))["hybrid"][0] == "warning"
    assert findings(model=ModelFacts(hybrid=True), mode="in-process")["hybrid"][0] == "refused"
    speculative = ("--speculative-config", '{"method": "mtp"}')
    assert "speculative" in findings(model=ModelFacts(hybrid=True), vllm_args=speculative)
    assert "speculative" not in findings(vllm_args=speculative)
    assert findings(vllm_args=("--enable-lora",))["lora"][0] == "warning"
    assert findings(chunk_tokens=48)["alignment"][0] == "warning"


def test_models_that_lmcache_cannot_cache_are_refused_with_the_mode_that_can() -> None:
    level, text = findings(model=ModelFacts(indexer=True, mla=True), mode="in-process")["indexer"]
    assert level == "refused" and text.endswith("leave --mode out")
    assert "indexer" not in findings(model=ModelFacts(indexer=True, mla=True))
    # LMCache's transfer on a CPU knows one kind of cache: recurrent states never fit, windows can be switched off
    assert findings(model=ModelFacts(hybrid=True, cache_groups=2), device="cpu")["hybrid"][0] == "refused"
    windows = ModelFacts(cache_groups=2)
    level, text = findings(model=windows, device="cpu")["cache-groups"]
    assert level == "refused" and "--disable-hybrid-kv-cache-manager" in text
    off = ("--disable-hybrid-kv-cache-manager",)
    assert "cache-groups" not in findings(model=windows, device="cpu", vllm_args=off)
    assert "cache-groups" not in findings(model=windows)


def test_a_hybrid_whose_state_has_no_known_size_is_warned_about_its_chunks() -> None:
    level, text = findings(model=ModelFacts(hybrid=True))["alignment"]
    assert level == "warning" and "--chunk-tokens" in text
    aligned = {"state_block_tokens": 1056, "chunk_tokens": 1088}
    level, text = findings(model=ModelFacts(hybrid=True), **aligned)["alignment"]
    assert level == "ok" and "whole blocks of 1088" in text


def test_speculative_decoding_on_a_hybrid_model_gives_up_the_last_chunk_of_a_match() -> None:
    assert usable_hit_tokens(32_768, 16_384, speculative_hybrid=True) == 16_384
    assert usable_hit_tokens(32_768, 16_384, speculative_hybrid=False) == 32_768
    assert usable_hit_tokens(100, 16_384, speculative_hybrid=True) == 0
