"""Launch plans: the tier's arithmetic, command lines, what may stand after ``--``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eactl.errors import UsageError
from eactl.model.footprint import footprint
from eactl.serving.plan import Plan, Weight, make_plan, tier_of
from eactl.serving.settings import (
    ExternalServer,
    ServeSettings,
    block_tokens,
    check_vllm_args,
    default_chunk_tokens,
)
from eactl_plugins.settings import PluginSettings

GIB = 1 << 30
MODULE = "vllm.entrypoints.openai.api_server"


def plan(host_gib: float = 10, weight: Weight | None = None, **options: Any) -> Plan:
    settings = ServeSettings(model="m", **options)
    return make_plan(
        settings, weight or Weight(24576, settings.tp), int(host_gib * GIB), api_server=MODULE, ports=(1, 2)
    )


def extra(made: Plan) -> dict[str, Any]:
    argv = made.vllm.argv
    transfer = json.loads(argv[argv.index("--kv-transfer-config") + 1])
    assert transfer["kv_role"] == "kv_both"
    return dict(transfer["kv_connector_extra_config"])


def test_the_size_is_per_rank_and_the_host_has_to_have_all_ranks() -> None:
    made = plan(64, tp=8, mode="in-process")
    assert made.tier.bytes_total == 512 * GIB  # 8 · 64
    assert made.vllm.env["LMCACHE_MAX_LOCAL_CPU_SIZE"] == "64"  # not 512: every rank takes this much
    assert plan(10, dp=4).tier.bytes_total == 40 * GIB  # four engines of one rank
    assert plan(10, tp=2, pp=2, dp=2).tier.bytes_total == 80 * GIB


def test_the_multi_process_server_is_given_the_total() -> None:
    server = plan(10, tp=8).processes[0]
    assert server.argv[server.argv.index("--l1-size-gb") + 1] == "80"


def test_latents_that_every_rank_has_are_stored_once() -> None:
    # DeepSeek-V3: 61 layers · (512 + 64) · 2 bytes = 70,272 bytes a token
    config = {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_hidden_layers": 61,
        "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128, "v_head_dim": 128, "hidden_size": 7168, "torch_dtype": "bfloat16",
    }  # fmt: skip
    weight = footprint(config, tp=8)
    tier = tier_of(
        ServeSettings(model="m", tp=8, chunk_tokens=1),
        Weight(weight.tier_bytes_per_token_rank, weight.tier_ranks),
        512 * GIB,
    )
    assert tier.ranks == 1 and tier.bytes_total == 512 * GIB
    assert tier.chunks == 7_823_255  # floor(512 GiB / 70,272), not an eighth of it


def test_chunks_are_those_of_the_paper() -> None:
    # 10 GiB of chunks of 1,024 tokens · 24 KiB = 24 MiB: 426
    assert plan(10, chunk_tokens=1024, tp=8).tier.chunks == 426


# A hybrid whose largest state takes as much as 1,056 tokens of one attention layer (Qwen3-Next at TP 1).
HYBRID = {"state_block_tokens": 1056, "chunk_tokens": 1088}


def test_vllms_blocks_and_lmcaches_chunks_of_a_hybrid_are_whole_states() -> None:
    assert block_tokens("cuda", (), 1056) == 1088  # 17 · 64, the smallest blocks of all attention backends divide it
    assert block_tokens("cpu", (), 40) == 64
    assert block_tokens("cuda", ("--block-size", "16"), 1050) == 1056  # vLLM goes on in steps of what it is given
    assert default_chunk_tokens(1088) == 1088  # no less than LMCache's 256
    assert default_chunk_tokens(112) == 336  # 3 · 112
    assert default_chunk_tokens(None) == default_chunk_tokens(32) == 256

    made = plan(10, Weight(24576, 1, state_bytes_rank=77_266_944, has_states=True), **HYBRID)
    argv = made.vllm.argv
    assert argv[argv.index("--block-size") + 1] == "1088"
    server = made.processes[0].argv
    assert server[server.index("--chunk-size") + 1] == "1088"
    assert "--separate-object-groups" in server
    # floor(10 GiB / (1,088 · 24,576 + 77,266,944)): every chunk has a snapshot of the state
    assert made.tier.chunks == 103
    given = plan(10, vllm_args=("--block-size", "16"), state_block_tokens=1056, chunk_tokens=1056)
    assert given.vllm.argv.count("--block-size") == 1
    assert "--separate-object-groups" not in plan(10).processes[0].argv
    assert "--block-size" not in plan(10).vllm.argv


def test_the_server_has_a_thread_for_each_rank() -> None:
    argv = plan(10, tp=4, dp=2).processes[0].argv
    assert argv[argv.index("--max-gpu-workers") + 1] == "8"
    assert argv[argv.index("--max-cpu-workers") + 1] == "2"
    assert "--max-gpu-workers" not in plan(10).processes[0].argv


def test_kappa_is_the_same_amount_of_kv_here_and_in_the_connector() -> None:
    for chunk_tokens in (32, 256, 1024, 8192, 16384):
        here = ServeSettings(model="m", chunk_tokens=chunk_tokens).kappa_chunks_or_default
        assert here == PluginSettings().admission(chunk_tokens).kappa_chunks
    assert ServeSettings(model="m", kappa_chunks=0).kappa_chunks_or_default == 0


def test_every_process_hashes_alike_and_listens_on_loopback_only() -> None:
    for process in plan(10).processes:
        assert process.env["PYTHONHASHSEED"] == "0"
        hosts = [process.argv[i + 1] for i, arg in enumerate(process.argv) if arg in ("--host", "--http-host")]
        assert hosts and set(hosts) == {"127.0.0.1"}
        assert process.ready_url.startswith("http://127.0.0.1:")


def test_the_connector_is_told_the_policy_and_where_the_tier_can_be_read() -> None:
    told = extra(plan(10, policy="fixed", kappa_chunks=3, theta=0.9, window_s=30.0))
    assert told["eactl.policy"] == "fixed"
    assert (told["eactl.kappa_chunks"], told["eactl.theta"], told["eactl.window_s"]) == (3, 0.9, 30.0)
    assert told["eactl.status_urls"] == ["http://127.0.0.1:2"]
    assert told["lmcache.mp.port"] == 1
    assert "lmcache.mp.lazy_offload" not in told
    assert extra(plan(10, policy="lazy"))["lmcache.mp.lazy_offload"] is True


def test_engines_publish_where_tail_looks_each_under_a_name_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("EACTL_STATE_DIR", str(tmp_path))
    for made in (plan(10, port=8001), plan(10, port=8001, mode="in-process")):
        assert made.state_file == tmp_path / "tier-8001.json"
        told = PluginSettings.from_extra_config(extra(made))
        assert told.state_path("engine", None) == tmp_path / "tier-8001.json"
        assert told.state_path("engine", 3) == tmp_path / "tier-8001-dp3.json"
    given = PluginSettings.from_extra_config(extra(plan(10, state_file=tmp_path / "here.json")))
    assert given.state_path("engine", None) == tmp_path / "here.json"
    assert PluginSettings().state_path("engine-dp3", 3) == tmp_path / "tier-engine-dp3.json"


def test_servers_that_run_already_are_used_and_none_is_started() -> None:
    servers = (ExternalServer("node1", 5555, 8080), ExternalServer("node2", 5555, 8080))
    made = plan(10, tp=16, lmcache_servers=servers)
    assert [process.name for process in made.processes] == ["vllm"]
    assert extra(made)["lmcache.mp.server_urls"] == ["tcp://node1:5555", "tcp://node2:5555"]
    assert extra(made)["eactl.status_urls"] == ["http://node1:8080", "http://node2:8080"]


def test_what_follows_the_dashes_reaches_vllm_as_it_is() -> None:
    args = ("--max-model-len", "4096", "--distributed-executor-backend", "ray", "--hf-overrides", '{"a": "b c"}')
    assert plan(10, vllm_args=args).vllm.argv[-6:] == args


@pytest.mark.parametrize(
    ("arg", "hint"),
    [
        ("--port=9", "as --port"), ("--tensor_parallel_size", "as --tp"), ("-tp", "as --tp"),
        ("--kv-cache-dtype=fp8", "--kv-dtype"), ("--kv-transfer-config={}", "--policy and --mode"),
        ("--tensor-parallel=2", "as --tp"), ("--api-k=x", "VLLM_API_KEY"),
        ("--kv-transfer-config.kv_role", "--policy and --mode"),
        ("--api-key", "VLLM_API_KEY"), ("--kv-offloading-size", "leave it out"),
    ],
)  # fmt: skip
def test_options_that_collide_with_ours_are_refused_by_name(arg: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_vllm_args([arg])
    assert arg.split("=")[0] in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"policy": "lru"}, "--policy"), ({"mode": "both"}, "--mode"), ({"host_gib": -1.0}, "--host-gib"),
        ({"host_gib": 0.0}, "--host-gib"), ({"theta": 1.5}, "--theta"), ({"eviction_ratio": 1.0}, "--eviction-ratio"),
        ({"watermark": 0.0}, "--eviction-watermark"), ({"window_s": 0.0}, "--window-s"),
        ({"window_s": float("inf")}, "--window-s"),
        ({"policy": "lazy", "mode": "in-process"}, "--policy lazy with --mode"),
        ({"port": 5000, "lmcache_port": 5000}, "--port"),
        ({"lmcache_servers": (ExternalServer("a", 1, 2),), "mode": "in-process"}, "--lmcache-server with --mode"),
        ({"lmcache_servers": (ExternalServer("a", 1, 2),), "lmcache_port": 3}, "--lmcache-port with --lmcache-server"),
        ({"chunk_tokens": 100, "vllm_args": ("--block-size", "16")}, "--chunk-tokens and --block-size"),
        ({"vllm_args": ("--block-size=x",)}, "--block-size"),
        ({"state_block_tokens": 1056}, "--chunk-tokens and --block-size"),
        ({"lmcache_servers": (ExternalServer("a", 1, 2), ExternalServer("b", 1, 2)), "tp": 4, "dp": 2}, "--dp"),
        ({"lmcache_servers": (ExternalServer("a", 1, 2), ExternalServer("b", 1, 2)), "tp": 4, "pp": 2}, "--pp"),
        ({"lmcache_servers": (ExternalServer("a", 1, 2), ExternalServer("b", 1, 2)), "tp": 3}, "--tp"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_name_their_option(options: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as caught:
        ServeSettings(model="m", **options)
    assert caught.value.where is not None and caught.value.where.startswith(where)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "host", "host:1", ":1:2", "host:0:2", "host:1:70000", "host:a:b"])
def test_a_server_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT:HTTP_PORT"):
        ExternalServer.parse(text)
