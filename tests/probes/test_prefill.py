"""Timed layers and the bound: the work they do is counted by torch itself, and compared with the model's arithmetic."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'eactl[probes]'")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from eactl.errors import CannotRunHereError  # noqa: E402
from eactl.model.decoder import Decoder, read_decoder  # noqa: E402
from eactl.model.obr import Figure  # noqa: E402
from eactl_probes import prefill as prefill_module  # noqa: E402
from eactl_probes.arithmetic import measure_matrix_rate, random_tensor, time_work  # noqa: E402
from eactl_probes.layers import build_blocks, weight_elements  # noqa: E402
from eactl_probes.prefill import (  # noqa: E402
    PrefillFindings,
    PrefillPoint,
    bound_figures,
    measure_bound,
    measure_layers,
)
from eactl_probes.prefill_document import prefill_fields  # noqa: E402
from eactl_probes.sampling import Samples  # noqa: E402
from tests.cli_runner import eactl  # noqa: E402

DENSE = {
    "model_type": "qwen3", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96,
}  # fmt: skip
WINDOWED = {**DENSE, "model_type": "gemma3_text", "sliding_window": 32, "sliding_window_pattern": 3}
UNGATED = {**DENSE, "model_type": "starcoder2"}
EXPERTS = {
    **DENSE, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
}  # fmt: skip
MLA = {
    "model_type": "deepseek_v3", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "intermediate_size": 96, "moe_intermediate_size": 32, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
}  # fmt: skip
SHAPES = {"dense": DENSE, "windowed": WINDOWED, "ungated": UNGATED, "experts": EXPERTS, "mla": MLA}


def counted_flop(decoder: Decoder, tokens: int) -> float:
    """FLOP of all layers at one length, by torch's own counter over the products it really runs."""
    total = 0.0
    x = random_tensor((tokens, decoder.hidden), torch.float32, "cpu")
    with torch.inference_mode():
        for block, count in build_blocks(decoder, torch.float32, "cpu"):
            # The plain kernel is made of products that torch can count; the fused one is not.
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                block(x)
            total += count * counter.get_total_flops()
    return total


@pytest.mark.parametrize("name", SHAPES)
def test_the_timed_blocks_do_the_work_that_the_model_is_priced_at(name: str) -> None:
    decoder = read_decoder(SHAPES[name])
    tokens = 128
    # The plain kernel computes all n^2 pairs, the causal half masked. MLA values are padded to the keys' size.
    full = 2 * decoder.quadratic_flop_per_token2 * tokens**2
    if name == "mla":
        full *= (24 + 24) / (24 + 16)
    windowed = sum(
        count * block.pair_flop() * tokens * block.window_tokens
        for block, count in decoder.attention
        if block.window_tokens is not None
    )
    expected = decoder.linear_flop_per_token * tokens + full + windowed
    assert counted_flop(decoder, tokens) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("tokens", [1, 7, 33, 100])
def test_every_shape_runs_at_every_length(name: str, tokens: int) -> None:
    decoder = read_decoder(SHAPES[name])
    x = random_tensor((tokens, decoder.hidden), torch.float32, "cpu")
    with torch.inference_mode():
        for block, _ in build_blocks(decoder, torch.float32, "cpu"):
            out = block(x)
            assert out.shape == x.shape
            assert torch.isfinite(out).all()


@pytest.mark.parametrize("tp", [2, 4])
def test_a_rank_computes_its_share(tp: int) -> None:
    decoder = read_decoder(DENSE)
    whole, share = counted_flop(decoder, 64), counted_flop(decoder.on_rank(tp), 64)
    # 2 KV heads: an exact half at TP 2; at TP 4 each rank still holds one whole KV head, a half instead of a quarter.
    kv = 2 * 3 * 64 * 2 * 2 * 16 * 64  # 2 FLOP x layers x hidden x (K and V) x heads x dim x tokens
    assert share == pytest.approx(whole / tp + (kv / 2 - kv / tp if tp == 4 else 0), rel=1e-6)


def test_weights_are_those_of_one_of_each_block() -> None:
    decoder = read_decoder(MLA)
    attention = decoder.attention[0][0].parameters(64)
    dense, sparse = (block.total_parameters(64) for block, _ in decoder.feed_forward)
    assert weight_elements(decoder) == attention + dense + sparse


def test_layers_are_timed_at_several_lengths_and_multiplied() -> None:
    decoder, findings = read_decoder(DENSE), PrefillFindings("layers")
    measure_layers(findings, device="cpu", decoder=decoder, tp=1, lengths=(16, 64, 256), seconds=30)
    assert [point.tokens for point in findings.points] == [16, 64, 256]
    figures = findings.figures()
    assert figures is not None
    per_token, quadratic = figures
    assert per_token.low <= per_token.value <= per_token.high
    assert per_token.value > 0
    assert quadratic.value >= 0
    document = prefill_fields(findings, "complete")
    assert document["method"] == "layers"
    assert document["device"] == "cpu"
    assert [len(point["samples_s"]) >= 3 for point in document["points"]] == [True] * 3
    assert document["matrix"]["tflops"] > 0


def test_long_prompts_are_left_out_when_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock of the work says that 16 tokens take 10 s: 4,096 would take hours.
    monkeypatch.setattr(prefill_module, "time_work", lambda device, work: 10.0)
    findings = PrefillFindings("layers")
    measure_layers(findings, device="cpu", decoder=read_decoder(DENSE), tp=1, lengths=(16, 4096), seconds=0.2)
    assert [point.tokens for point in findings.points] == [16]
    assert findings.notices.has("lengths-reduced")


def test_too_little_memory_for_one_layer_is_refused_before_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_module.hostinfo, "available_memory_bytes", lambda: 1000)
    with pytest.raises(CannotRunHereError, match="one layer's weights take"):
        measure_layers(
            PrefillFindings("layers"), device="cpu", decoder=read_decoder(DENSE), tp=1, lengths=(16,), seconds=0.1
        )


def test_the_matrix_rate_is_flop_over_time() -> None:
    rate = measure_matrix_rate("cpu", torch.float32, 0.2)
    assert rate.flop_per_s.value == pytest.approx(2 * rate.side**3 / rate.samples.median_s)
    assert rate.flop_per_s.low <= rate.flop_per_s.value <= rate.flop_per_s.high


def test_the_bound_is_flop_over_all_ranks_rates() -> None:
    decoder = read_decoder(DENSE)
    per_token, quadratic = bound_figures(
        decoder.active_parameters, Figure(1e12, 0.8e12, 1.1e12, "measured"), 4, decoder, "bound"
    )
    assert per_token.value == pytest.approx(2 * decoder.active_parameters / 4e12)
    assert (per_token.low, per_token.high) == pytest.approx(
        (2 * decoder.active_parameters / 4.4e12, 2 * decoder.active_parameters / 3.2e12)
    )
    # 3 layers x 8 heads x (16 + 16) x 2 FLOP x 1/2 per token squared.
    assert quadratic.value == pytest.approx(3 * 8 * 32 / 4e12)


def test_the_bound_measures_this_device() -> None:
    findings = PrefillFindings("bound")
    measure_bound(findings, device="cpu", active_parameters=1e9, decoder=None, tp=1, seconds=0.2)
    assert findings.bound is not None
    assert findings.matrix_rate is not None
    assert findings.bound[0].value == pytest.approx(2e9 / findings.matrix_rate.flop_per_s.value)
    document = prefill_fields(findings, "complete", (1000,))
    assert document["points"][0]["median_s"] == pytest.approx(1000 * findings.bound[0].value)
    assert any(warning["code"] == "lower-bound" for warning in document["warnings"])


def test_two_lengths_say_that_attention_is_in_the_linear_term() -> None:
    findings = PrefillFindings("layers", points=[
        PrefillPoint(100, Samples((0.010, 0.011, 0.012))), PrefillPoint(200, Samples((0.020, 0.021, 0.022))),
    ])  # fmt: skip
    document = prefill_fields(findings, "complete")
    assert document["us_per_token"] == pytest.approx(100)
    assert document["quadratic_us_per_token2"] == 0
    assert any(warning["code"] == "no-quadratic" for warning in document["warnings"])


def test_times_that_lie_on_no_curve_are_doubted() -> None:
    # 1, 1, 8 ms at 100, 200, 300 tokens: no fixed, linear and quadratic term of one sign come near the middle one.
    times = {100: 0.001, 200: 0.001, 300: 0.008}
    findings = PrefillFindings("layers", points=[PrefillPoint(n, Samples((t, t, t))) for n, t in times.items()])
    assert any(warning["code"] == "poor-fit" for warning in prefill_fields(findings, "complete")["warnings"])
    straight = PrefillFindings("layers", points=[PrefillPoint(n, Samples((n * 1e-5,) * 3)) for n in times])
    assert not any(warning["code"] == "poor-fit" for warning in prefill_fields(straight, "complete")["warnings"])


def test_nothing_measured_is_null_and_warned_never_zero() -> None:
    document = prefill_fields(PrefillFindings("layers"), "interrupted")
    assert document["us_per_token"] is None
    assert document["status"] == "interrupted"
    assert any(warning["code"] == "no-prefill" for warning in document["warnings"])


def test_work_is_timed_by_what_it_takes() -> None:
    big, small = random_tensor((512, 512), torch.float32, "cpu"), random_tensor((8, 8), torch.float32, "cpu")
    assert min(time_work("cpu", lambda: big @ big) for _ in range(5)) > min(
        time_work("cpu", lambda: small @ small) for _ in range(5)
    )


def test_random_tensors_repeat_a_mebi_of_values() -> None:
    tensor = random_tensor((3, 1 << 20), torch.float32, "cpu")
    assert torch.equal(tensor[0], tensor[1])
    assert tensor[0].std() == pytest.approx(0.02, rel=0.05)


def test_the_command_times_a_model_from_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(EXPERTS))
    result = eactl(
        "probe", "prefill", "--model", config, "--tokens", "16,64,128", "--device", "cpu", "--quick", "--json"
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == "eactl.prefill/1"
    assert [point["tokens"] for point in document["points"]] == [16, 64, 128]
    assert document["us_per_token"] > 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "no model to time, --model"),
        (("--method", "bound"), 2, "nothing to count, --model, --active-params"),
        (("--model", "Qwen3-Next-80B-A3B"), 2, "keep a state instead of KV"),
        (("--model", "Qwen3-Coder-30B-A3B", "--tp", "3"), 2, "32 query heads do not divide by 3"),
        (("--url", "http://127.0.0.1:9", "--concurrency", "2"), 3, "the server does not answer /v1/models"),
        (("--url", "ftp://x"), 2, "not an address: 'ftp://x', --url"),
    ],
)
def test_what_cannot_be_done_says_why(arguments: tuple[str, ...], status: int, message: str) -> None:
    result = eactl("probe", "prefill", *arguments)
    assert result.returncode == status
    assert message in result.stderr


def test_the_papers_bound_needs_no_torch() -> None:
    result = eactl(
        "probe",
        "prefill",
        "--method",
        "bound",
        "--active-params",
        "3.3B",
        "--peak-tflops",
        "148",
        "--tp",
        "8",
        "--json",
    )
    document = json.loads(result.stdout)
    assert document["us_per_token"] == pytest.approx(5.574, abs=1e-3)
    assert document["quadratic_us_per_token2"] == 0
