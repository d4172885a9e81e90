"""Counting a decoder's matrices, with the published sizes of models as the oracle."""

from __future__ import annotations

import pytest

from eactl.configs import resolve_model
from eactl.configs.feedforward import complete_config
from eactl.errors import UsageError
from eactl.model.decoder import Decoder, read_decoder


def decoder(name: str) -> Decoder:
    return read_decoder(complete_config(resolve_model(name)), model=name)


@pytest.mark.parametrize(
    ("name", "total_b", "active_b"),
    # What the models' cards and reports say, in 10^9 parameters.
    [
        ("Qwen3-Coder-30B-A3B-Instruct", 30.5, 3.3),
        ("Qwen3-235B-A22B", 235, 22),
        ("Qwen3-Coder-480B-A35B", 480, 35),
        ("Qwen3-32B", 32.8, 32.8),
        ("Qwen2.5-Coder-32B-Instruct", 32.8, 32.8),
        ("Llama-3.1-8B", 8.03, 8.03),
        ("Llama-3.3-70B", 70.6, 70.6),
        ("Llama-3.1-405B", 405.9, 405.9),
        ("Llama-2-7B", 6.74, 6.74),
        ("Mistral-7B-v0.3", 7.25, 7.25),
        ("Mixtral-8x7B-v0.1", 46.7, 12.9),
        ("Mixtral-8x22B-v0.1", 141, 39),
        ("DeepSeek-V3", 671, 37),
        ("DeepSeek-V2-Lite", 15.7, 2.4),
        ("Kimi-K2", 1030, 32),
        ("GLM-4.5-Air", 106, 12),
        ("gpt-oss-120b", 116.8, 5.1),
        ("MiniMax-M2", 229, 10),
        ("Gemma-3-27B", 27.0, 27.0),
    ],
)
def test_the_matrices_add_up_to_the_published_size(name: str, total_b: float, active_b: float) -> None:
    config = complete_config(resolve_model(name))
    model = read_decoder(config, model=name)
    embedding = int(str(config["vocab_size"])) * model.hidden
    # Embedding and head are part of the published totals; cards differ in whether they count as active.
    both = embedding * (1 if config.get("tie_word_embeddings") else 2)
    assert (model.total_parameters + both) / 1e9 == pytest.approx(total_b, rel=0.01)
    assert model.active_parameters / 1e9 <= active_b * 1.02
    assert (model.active_parameters + both) / 1e9 >= active_b * 0.98


def test_qwen3_30b_a3b_layer_by_hand() -> None:
    model = decoder("Qwen3-Coder-30B-A3B")
    # q and o 2 x 2048 x 4096, k and v 2 x 2048 x 512: 18,874,368. Eight experts of three 2048 x 768: 37,748,736.
    # Router 2048 x 128: 262,144. 48 layers.
    assert model.active_parameters == 48 * (18_874_368 + 37_748_736 + 262_144)
    # Attention: 32 heads x (128 + 128) x 2 FLOP per pair, n^2/2 pairs, 48 layers.
    assert model.quadratic_flop_per_token2 == 48 * 32 * 256 * 2 / 2


def test_one_of_eight_ranks_has_an_eighth_but_copies_few_kv_heads() -> None:
    model = decoder("Qwen3-Coder-30B-A3B")
    (attention, count), *_ = model.on_rank(8).attention
    assert (attention.query_heads, attention.kv_heads, count) == (4, 1, 48)  # 4 KV heads on 8 ranks: one each
    (block, _), *_ = model.on_rank(8).feed_forward
    assert (block.width, block.experts, block.experts_per_token) == (96, 128, 8)
    # Attention in and out: an eighth of q and o, but a quarter of k and v.
    assert attention.parameters(2048) == (2 * 2048 * 4096) // 8 + (2 * 2048 * 512) // 4


def test_mla_is_counted_with_its_low_rank_projections() -> None:
    model = decoder("DeepSeek-V3")
    (attention, _), *_ = model.attention
    # q: 7168 x 1536 + 1536 x 128 x 192; kv down: 7168 x 576; kv up: 512 x 128 x 256; out: 128 x 128 x 7168.
    assert attention.parameters(7168) == (
        7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    )
    assert [count for _, count in model.feed_forward] == [3, 58]  # three dense layers first


def test_windowed_layers_do_not_grow_with_the_square() -> None:
    # Gemma 3 27B: 62 layers, every sixth full: 10 full ones with 32 heads of 128 + 128.
    assert decoder("Gemma-3-27B").quadratic_flop_per_token2 == 10 * 32 * 256


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Qwen3-Next-80B-A3B", "keep a state instead of KV"),
        ("Gemma-4-26B-A4B", "feed-forward block is missing"),
        ("Llama-3.3-Nemotron-Super-49B", "feed-forward width of its own"),
    ],
)
def test_what_cannot_be_counted_is_refused(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        decoder(name)


def test_an_unknown_layout_of_experts_is_refused_not_guessed() -> None:
    config = {
        "model_type": "jamba_like", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "num_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    with pytest.raises(UsageError, match="how jamba_like lays out its experts is not known"):
        read_decoder(config)


def test_a_sparse_step_alternates_dense_and_expert_layers() -> None:
    config = {
        "model_type": "qwen3_moe", "num_hidden_layers": 5, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 128, "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2,
        "decoder_sparse_step": 2, "mlp_only_layers": [3],
    }  # fmt: skip
    # Layers 1 and 3 would have experts ((i + 1) % 2 == 0); 3 is listed as dense.
    blocks = {block.experts: count for block, count in read_decoder(config).feed_forward}
    assert blocks == {0: 4, 8: 1}
