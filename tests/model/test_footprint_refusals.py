"""What is refused: an impossible split, an attention that is not known, a model without KV per token, a broken file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import UsageError
from eactl.model.footprint import footprint
from tests.model.footprint_cases import BY_NAME, CASES

GQA = BY_NAME["grouped-query attention"].config
MLA = BY_NAME["MLA"].config


def refusal(config: dict[str, Any], **options: Any) -> str:
    with pytest.raises(UsageError) as raised:
        footprint(config, **options)
    return str(raised.value)


# --- tensor parallelism


def test_query_heads_must_divide_and_the_possible_splits_are_named() -> None:
    assert refusal(GQA, tp=3, model="M") == (
        "M cannot run on 3 ranks: 16 query heads do not divide by 3, --tp, use 1, 2, 4, 8, 16"
    )


def test_kv_heads_must_divide_or_repeat_evenly() -> None:
    # 12 query heads divide by 4 and by 6; 3 KV heads do neither with 4 ranks and repeat twice on 6
    config = {**GQA, "num_attention_heads": 12, "num_key_value_heads": 3}
    assert "3 KV heads neither divide by 4 nor repeat evenly" in refusal(config, tp=4)
    assert footprint(config, tp=6).layers[0].copies == 2


def test_each_kind_of_layer_must_be_possible() -> None:
    config = {**BY_NAME["sliding layers with other settings"].config}
    config["attention_other_setting"] = {"num_attention_heads": 12, "num_attention_groups": 4, "head_dim": 32}
    assert footprint(config, tp=4).bytes_per_token_rank == 256 + 2 * 128
    assert "12 query heads do not divide by 8" in refusal(config, tp=8)


def test_a_state_must_be_possible_too() -> None:
    config = {**BY_NAME["gated DeltaNet with full attention in every fourth layer"].config, "linear_num_value_heads": 6}
    assert "6 state heads do not divide by 4" in refusal(config, tp=4)


@pytest.mark.parametrize("tp", [0, -1, 1025, True, 2.0, "2"])
def test_ranks_are_a_sensible_whole_number(tp: Any) -> None:
    assert "give a whole number from 1 to 1024" in refusal(GQA, tp=tp)


# --- models without KV per token


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30"}, "a diffusion pipeline"),
        ({**GQA, "model_type": "llada"}, "llada is a diffusion language model"),
        ({**GQA, "model_type": "t5"}, "t5 is an encoder-decoder model"),
        ({**GQA, "is_encoder_decoder": True}, "qwen3 is an encoder-decoder model"),
        ({**GQA, "model_type": "bert"}, "bert is an encoder-only model"),
        ({"model_type": "mamba2", "num_hidden_layers": 64, "hidden_size": 2560}, "mamba2 has no attention layers"),
        ({"model_type": "rwkv", "num_hidden_layers": 24}, "rwkv has no attention layers"),
        ({**GQA, "layer_types": ["linear_attention"] * 10}, "no layer of this model keeps KV per token"),
        ({"model_type": "x", "text_config": {**GQA, "model_type": "whisper"}}, "whisper is an encoder-decoder model"),
        ({**GQA, "use_bidirectional_attention": "all"}, "attends in both directions"),
    ],
)
def test_a_model_without_reusable_kv_is_refused_with_the_reason(config: dict[str, Any], reason: str) -> None:
    assert reason in refusal(config)


# --- attention that is not known


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({**GQA, "compress_ratios": [0, 4, 128]}, "unsupported config: compress_ratios"),
        ({**GQA, "cross_attention_layers": [3, 8]}, "unsupported config: cross_attention_layers"),
        ({**GQA, "use_cla": True, "cla_share_factor": 2}, "unsupported config: use_cla"),
        ({**GQA, "loop_num": 2}, "unsupported config: loop_num"),
        ({**GQA, "layer_group_size": 8}, "unsupported config: layer_group_size"),
        ({**GQA, "layer_types": ["full_attention"] * 9 + ["holographic"]}, "layer_types[9] is 'holographic'"),
        ({**GQA, "layer_types": ["full_attention"] * 9 + [None]}, "layer_types[9] is None"),
        ({**GQA, "hybrid_override_pattern": "M*M*M*M*MX"}, "hybrid_override_pattern has 'X' at layer 9"),
        ({**GQA, "index_topk": 64, "index_head_dim": 128}, "index_topk without MLA"),
        ({**GQA, "attention_chunk_size": 512}, "attention_chunk_size in model type 'qwen3'"),
        ({**GQA, "model_type": "llama", "sliding_window": 512}, "nothing says which layers slide"),
        (
            {**GQA, "model_type": "exaone4", "sliding_window": 512, "sliding_window_pattern": "LLLG"},
            "a pattern of letters",
        ),
        ({**MLA, "layer_types": ["sliding_attention"] * 5, "sliding_window": 64}, "MLA in a sliding layer"),
        ({**GQA, "model_type": "novel", "kv_latent_rank": 64}, "kv_latent_rank in model type 'novel'"),
        ({**GQA, "model_type": "novel", "attention_type": "banded"}, "attention_type in model type 'novel'"),
        ({**GQA, "model_type": "novel", "multi_query": True}, "multi_query in model type 'novel'"),
        ({**GQA, "model_type": None, "mamba_d_state": 16}, "mamba_d_state in a config without model_type"),
    ],
)
def test_an_unknown_attention_is_refused_and_never_guessed(config: dict[str, Any], reason: str) -> None:
    assert reason in refusal(config)


@pytest.mark.parametrize(
    "config",
    [{**GQA, "use_cla": False, "cla_share_factor": 2}, {**GQA, "loop_num": 1}, {**GQA, "compress_ratios": None}],
)
def test_a_field_that_switches_nothing_on_is_no_reason_to_refuse(config: dict[str, Any]) -> None:
    assert footprint(config).bytes_per_token_rank == 20480


# --- broken configurations


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_hidden_layers": None}, "the number of layers is missing (num_hidden_layers or n_layer"),
        ({"num_attention_heads": None}, "the number of query heads is missing"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1, outside 1 to 2048"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0, outside 1 to 2048"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, outside"),
        ({"num_hidden_layers": 10**400}, "num_hidden_layers is a number of over 30 digits, outside"),
        ({"num_hidden_layers": "10"}, "num_hidden_layers is '10', not a whole number"),
        ({"num_hidden_layers": 10.0}, "num_hidden_layers is 10.0, not a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, not a whole number"),
        ({"num_key_value_heads": float("nan")}, "num_key_value_heads is nan, not a whole number"),
        ({"num_key_value_heads": [4]}, "num_key_value_heads is a list of 1, not a whole number"),
        ({"num_key_value_heads": 5}, "16 query heads cannot share 5 KV heads"),
        ({"num_key_value_heads": 32}, "16 query heads cannot share 32 KV heads"),
        ({"head_dim": -128}, "head_dim is -128, outside 0 to 16384"),
        ({"head_dim": None, "hidden_size": None}, "head_dim, and the hidden size to derive it from, is missing"),
        ({"head_dim": None, "hidden_size": 1000}, "head_dim is missing, and 1000 is not a multiple of 16 heads"),
        ({"layer_types": ["full_attention"] * 9}, "layer_types lists 9 layers and the model has 10"),
        ({"layer_types": "full_attention"}, "layer_types is 'full_attention', not a list"),
        ({"layer_types": {}}, "layer_types is an object of 0, not a list"),
        ({"layer_types": ["sliding_attention"] * 10}, "some layers slide, but no sliding_window says how far"),
        ({"sliding_window": -5}, "sliding_window is -5, outside -1 to"),
        ({"num_kv_shared_layers": 10}, "num_kv_shared_layers is 10 of 10 layers"),
        ({"model_type": 7}, "model_type is 7, not a string"),
        ({"torch_dtype": 16}, "torch_dtype is 16, not a string"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8', not an object"),
        ({"text_config": [1]}, "text_config is a list of 1, not an object"),
        ({"model_type": "nemotron-nas", "block_configs": "80 entries"}, "block_configs is '80 entries', not a list"),
        ({"model_type": "nemotron-nas", "block_configs": [1] * 10}, "block_configs[0] is 1, not an object"),
        ({"model_type": "nemotron-nas", "block_configs": [{}] * 10}, "block_configs[0] has no attention object"),
        ({"model_type": "jamba", "attn_layer_period": 0}, "attn_layer_period is 0, outside 1 to"),
        ({"model_type": "bamba", "attn_layer_indices": [10]}, "attn_layer_indices[0] is 10, outside 0 to 9"),
        ({"model_type": "gpt_bigcode", "num_key_value_heads": None}, "multi_query is missing"),
        ({"model_type": "gemma4_text"}, "the head size of full layers is missing (global_head_dim)"),
        ({"kv_lora_rank": 512}, "the size of the rotary key is missing (qk_rope_head_dim)"),
    ],
)  # fmt: skip
def test_a_broken_field_is_named_with_what_it_holds(change: dict[str, Any], reason: str) -> None:
    message = refusal({**GQA, **change}, model="M")
    assert reason in message
    assert "model M" in message


def test_a_missing_field_is_not_filled_from_class_defaults() -> None:
    # transformers' Glm4MoeConfig would silently make this the 46-layer Air model
    assert "the number of layers is missing" in refusal({"model_type": "glm4_moe", "num_attention_heads": 96})


def test_only_the_gemma_that_is_published_without_its_heads_is_known_by_heart() -> None:
    config = {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560, "sliding_window": 1024}
    assert footprint({"model_type": "gemma3", "text_config": config}).bytes_per_token_rank == 34 * 4 * 512 * 2
    assert "the number of query heads is missing" in refusal({**config, "hidden_size": 3840})


def test_the_part_of_a_nested_configuration_is_named() -> None:
    config = {"model_type": "gemma3", "text_config": {**GQA, "head_dim": "x"}}
    assert "head_dim is 'x', not a whole number, model M: text_config" in refusal(config, model="M")


def test_a_nested_part_that_leaves_its_sizes_to_class_defaults_is_named() -> None:
    config = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}
    assert refusal(config, model="M") == (
        "the number of layers is missing (num_hidden_layers or n_layer or n_layers or num_layers), "
        "model M: text_config, add it: a value that a file leaves to software defaults is not guessed"
    )


def test_the_language_model_may_be_nested_twice_but_not_endlessly() -> None:
    config: dict[str, Any] = {"model_type": "outer", "thinker_config": {"text_config": GQA}}
    assert footprint(config).bytes_per_token_rank == 20480
    for _ in range(300):
        config = {"text_config": config}
    assert "nested more than 4 levels deep" in refusal(config)


@pytest.mark.parametrize("config", [{}, {"a": 1}, {"text_config": {}}, {"text_config": {"text_config": None}}])
def test_a_configuration_of_something_else_is_refused(config: dict[str, Any]) -> None:
    assert "is missing" in refusal(config)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.integers(0, 200)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted({key for case in CASES for key in (case.config.get("text_config") or case.config)})


@given(
    st.sampled_from(CASES),
    st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3),
    st.sampled_from([1, 2, 8]),
)
def test_any_value_in_any_field_gives_a_number_or_a_refusal(case: Any, change: dict[str, Any], tp: int) -> None:
    try:
        result = footprint({**case.config, **change}, tp=tp)
    except UsageError as error:
        assert str(error)
    else:
        assert 0 < result.unique_bytes_per_token <= result.bytes_per_token_total
        assert 0 <= result.growing_bytes_per_token_rank <= result.bytes_per_token_rank
