"""Bytes per token, kind by kind; then laws that hold for every configuration, against a placement of single heads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import UsageError
from eactl.model.footprint import Footprint, footprint
from tests.model.footprint_cases import BY_NAME, CASES, Case

PER_TP = [(case, tp) for case in CASES for tp in case.rank_bytes]


@pytest.mark.parametrize(
    ("case", "tp"), PER_TP, ids=lambda value: value.name if isinstance(value, Case) else f"TP{value}"
)
def test_one_token_weighs_what_the_layers_add_up_to(case: Case, tp: int) -> None:
    result = footprint(case.config, tp=tp)
    assert result.bytes_per_token_rank == case.rank_bytes[tp]
    assert result.growing_bytes_per_token_rank == case.growing(tp)
    assert result.bytes_per_token_total == tp * case.rank_bytes[tp]
    assert result.unique_bytes_per_token == case.unique_bytes


# --- the paper's table and public reports


@pytest.mark.parametrize(("tp", "kib"), [(1, 96), (2, 48), (4, 24), (8, 24)])
def test_qwen3_coder_30b_as_in_the_paper(tp: int, kib: int) -> None:
    config = {"num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4}
    assert footprint({**config, "head_dim": 128}, tp=tp).bytes_per_token_rank == kib * 1024


@pytest.mark.parametrize(("tp", "kib"), [(1, 256), (2, 128), (4, 64), (8, 32)])
def test_qwen25_coder_32b_as_in_the_paper(tp: int, kib: int) -> None:
    config = {"num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8}
    assert footprint(config, tp=tp).bytes_per_token_rank == kib * 1024


def test_head_dim_is_read_before_it_is_derived() -> None:
    config = {"hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 36}
    assert footprint({**config, "head_dim": 128}).bytes_per_token_rank == 147456  # 36 x 8 x 256 x 2
    assert footprint(config).bytes_per_token_rank == 92160  # 36 x 8 x 160 x 2: right only when nothing says otherwise


def test_full_and_sliding_layers_keep_their_own_heads_and_sizes() -> None:
    config = {
        "model_type": "gemma4_text", "num_hidden_layers": 48, "hidden_size": 3840, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 256, "num_global_key_value_heads": 1, "global_head_dim": 512,
        "attention_k_eq_v": True, "sliding_window": 1024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 8,
    }  # fmt: skip
    result = footprint(config)
    assert result.growing_bytes_per_token_rank == 16384  # 8 x 1 x (512 + 512) x 2
    assert result.bytes_per_token_rank == 16384 + 40 * 8 * 512 * 2


def test_mla_is_kept_once_by_lmcache_and_once_per_rank_by_older_offload() -> None:
    config = {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    }  # fmt: skip
    result = footprint(config, tp=8)
    assert result.tier_ranks == 1
    assert 512 * 2**30 // result.tier_bytes_per_token_total == 7_823_255  # tokens in 512 GiB, one copy
    assert 512 * 2**30 // result.bytes_per_token_total == 977_906  # eight copies
    assert any("first rank only" in note and "8 copies" in note for note in result.notes)


def test_an_mla_hybrid_is_kept_by_every_rank() -> None:
    # its state differs between ranks, so LMCache cannot keep the first rank's copy alone
    assert footprint(BY_NAME["KDA with MLA"].config, tp=4).tier_ranks == 4


# --- data types


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", 10 * 4 * 256 * 2), ("bfloat16", 20480), ("torch.float16", 20480), ("BF16", 20480), ("float32", 40960),
        ("fp8", 10240), ("fp8_e4m3", 10240), ("fp8_e5m2", 10240), ("int8", 10240),
        ("fp8_per_token_head", 10 * 4 * 2 * (128 + 4)), ("int8_per_token_head", 10560),
        ("int4_per_token_head", 10 * 4 * 2 * (64 + 4)), ("nvfp4", 10 * 4 * 2 * (64 + 8)), ("nvfp4_4over6", 5760),
    ],
)  # fmt: skip
def test_the_kv_data_type_sets_the_bytes_of_an_element(name: str, expected: int) -> None:
    assert footprint(BY_NAME["grouped-query attention"].config, kv_dtype=name).bytes_per_token_rank == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", 5 * (1152 + 132)), ("fp8_ds_mla", 5 * (656 + 132)), ("nvfp4_ds_mla", 5 * (352 + 132)),
        ("fp8", 5 * (656 + 132)),
    ],
)  # fmt: skip
def test_packed_rows_of_sparse_mla_and_an_indexer_that_is_always_8_bit(name: str, expected: int) -> None:
    case = BY_NAME["MLA with an indexer in each layer"]
    assert footprint(case.config, kv_dtype=name).bytes_per_token_rank == expected


def test_fp8_of_plain_mla_is_a_byte_per_element() -> None:
    assert footprint(BY_NAME["MLA"].config, kv_dtype="fp8").bytes_per_token_rank == 5 * 576


@pytest.mark.parametrize(
    ("case", "name", "message"),
    [
        (
            "grouped-query attention",
            "fp8_e4m4",
            "unknown KV data type 'fp8_e4m4', --kv-dtype, choose from auto, bfloat16",
        ),
        ("grouped-query attention", "fp8_ds_mla", "fp8_ds_mla packs MLA latents and this model has other layers"),
        ("MLA", "int8_per_token_head", "int8_per_token_head is not defined for MLA latents"),
        ("MLA", "nvfp4", "nvfp4 is not defined for MLA latents"),
        ("keys longer than values, and sliding layers with more heads", "fp8_ds_mla", "fp8_ds_mla packs MLA latents"),
    ],
)
def test_a_data_type_that_the_model_cannot_have_is_refused(case: str, name: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        footprint(BY_NAME[case].config, kv_dtype=name)
    assert message in str(refusal.value)


def test_a_latent_of_another_size_has_no_packed_row() -> None:
    config = {**BY_NAME["MLA"].config, "kv_lora_rank": 256}
    with pytest.raises(UsageError, match="needs a latent of 576 elements and this model's has 320"):
        footprint(config, kv_dtype="fp8_ds_mla")


@pytest.mark.parametrize(
    "quantisation",
    [
        {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}},
        {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
        {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
    ],
)
def test_auto_follows_a_checkpoint_that_asks_for_8_bit_kv(quantisation: dict[str, Any]) -> None:
    config = {**BY_NAME["grouped-query attention"].config, "quantization_config": quantisation}
    result = footprint(config)
    assert (result.kv_dtype, result.bytes_per_token_rank) == ("fp8", 10240)
    assert "The checkpoint asks for fp8 KV; --kv-dtype bfloat16 overrides it." in result.notes
    assert footprint(config, kv_dtype="bfloat16").bytes_per_token_rank == 20480


def test_quantised_weights_alone_leave_the_kv_as_it_is() -> None:
    quantisation = {"quant_method": "fp8", "weight_block_size": [128, 128], "kv_cache_scheme": None}
    config = {**BY_NAME["grouped-query attention"].config, "quantization_config": quantisation}
    assert footprint(config).bytes_per_token_rank == 20480


def test_a_32_bit_checkpoint_is_counted_in_16_bits_and_says_so() -> None:
    result = footprint({**BY_NAME["grouped-query attention"].config, "torch_dtype": "float32"})
    assert result.bytes_per_token_rank == 20480
    assert any("float32" in note for note in result.notes)


# --- states, chunks, multi-token prediction


def test_a_state_is_counted_for_each_sequence_and_split_by_head() -> None:
    # 6 layers; convolution (2 x 4 x 32 + 8 x 32) x 3 x 2 B, recurrent matrix 8 x 32 x 32 x 4 B (float32)
    case = BY_NAME["gated DeltaNet with full attention in every fourth layer"]
    assert footprint(case.config).state_bytes_per_sequence_rank == 6 * (512 * 3 * 2 + 8192 * 4)
    assert footprint(case.config, tp=4).state_bytes_per_sequence_rank == 6 * (512 * 3 * 2 + 8192 * 4) // 4


@pytest.mark.parametrize(
    ("tp", "groups"),
    [(1, 4), (4, 4), (8, 8)],  # four groups become eight where eight ranks need one each
)
def test_mamba2_groups_repeat_where_ranks_outnumber_them(tp: int, groups: int) -> None:
    # 3 layers; convolution (16 x 32 + 2 x groups x 16) x 3 x 2 B, recurrent matrix 16 x 32 x 16 x 4 B (Nemotron-H)
    case = BY_NAME["Mamba with attention by pattern letters"]
    expected = 3 * ((16 * 32 + 2 * groups * 16) * 3 * 2 + 16 * 32 * 16 * 4) // tp
    assert footprint(case.config, tp=tp).state_bytes_per_sequence_rank == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 6 Mamba-1 layers: 1024 channels x 3 x 2 B, and 1024 x 16 x 2 B in the model's own 16 bits
        ("Mamba with attention by period", 6 * (1024 * 3 * 2 + 1024 * 16 * 2)),
        # 3 Mamba-2 layers: (8 x 32 + 2 x 16) x 3 x 2 B, and 8 x 32 x 16 x 2 B
        ("attention and Mamba side by side", 3 * (288 * 3 * 2 + 4096 * 2)),
        # 3 KDA layers: 3 x 8 x 32 x 3 x 2 B, and 8 x 32 x 32 x 4 B
        ("KDA with MLA", 3 * (768 * 3 * 2 + 8192 * 4)),
        ("grouped-query attention", 0),
    ],
)
def test_each_kind_of_state_has_its_size(name: str, expected: int) -> None:
    assert footprint(BY_NAME[name].config).state_bytes_per_sequence_rank == expected


def test_a_short_convolution_is_a_state_too() -> None:
    config = {
        "model_type": "lfm2", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "conv_dim": 96,
    }  # fmt: skip
    result = footprint(config, tp=2)
    assert result.bytes_per_token_rank == 1 * 1 * 32 * 2
    assert result.state_bytes_per_sequence_rank == 2 * 96 * 2 * 2 // 2  # 2 layers x 96 channels x 2 steps x 2 B, halved


def test_a_state_of_unknown_size_is_none_and_never_zero() -> None:
    case = BY_NAME["Mamba with attention by pattern letters"]
    config = {key: value for key, value in case.config.items() if not key.startswith("mamba_")}
    assert footprint(config).state_bytes_per_sequence_rank is None


def test_a_chunk_holds_its_tokens_and_one_snapshot_of_the_state() -> None:
    plain = footprint(BY_NAME["grouped-query attention"].config, tp=4)
    assert plain.tier_chunk_bytes_rank(1024) == 1024 * 5120
    hybrid = footprint(BY_NAME["gated DeltaNet with full attention in every fourth layer"].config)
    assert hybrid.tier_chunk_bytes_rank(256) == 256 * 2048 + hybrid.state_bytes_per_sequence_rank


def test_attention_blocks_grow_to_the_page_of_a_state() -> None:
    # a state of 512 x 3 x 2 + 8192 x 4 = 35,840 B over 1,024 B per token of an attention layer: 35 tokens, so 48
    hybrid = footprint(BY_NAME["gated DeltaNet with full attention in every fourth layer"].config)
    assert hybrid.attention_block_tokens == 48
    assert footprint(BY_NAME["grouped-query attention"].config).attention_block_tokens is None


def test_mtp_is_told_and_not_counted() -> None:
    case = BY_NAME["MLA with an indexer in every fourth layer"]
    result = footprint({**case.config, "num_nextn_predict_layers": 2}, tp=2)
    assert result.bytes_per_token_rank == case.rank_bytes[1]
    assert result.mtp_bytes_per_token_rank == 2 * (1152 + 132)  # such a layer always has an indexer of its own
    assert any("2 MTP layers adds 2,568 bytes" in note for note in result.notes)


def test_sizing_uses_all_attention_layers_and_says_why() -> None:
    result = footprint(BY_NAME["sliding and full layers by list"].config)
    assert result.tier_bytes_per_token_rank == result.bytes_per_token_rank == 6144
    assert "Sizing uses all attention layers (6 KiB per token and rank)" in result.notes[0]


def test_an_unlisted_family_of_plain_fields_is_read_and_marked() -> None:
    config = {**BY_NAME["grouped-query attention"].config, "model_type": "brandnew"}
    result = footprint(config, tp=4)
    assert result.bytes_per_token_rank == 5120
    assert any("'brandnew' is not known here" in note for note in result.notes)


def test_kv_heads_that_no_field_gives_are_marked_as_assumed() -> None:
    config = {key: value for key, value in BY_NAME["grouped-query attention"].config.items() if "key_value" not in key}
    result = footprint(config)
    assert result.bytes_per_token_rank == 4 * 20480  # 16 KV heads instead of 4
    assert any("no number of KV heads; 16, one for each query head, are assumed" in note for note in result.notes)
    assert not any("assumed" in note for note in footprint(BY_NAME["multi-head attention"].config).notes)


def test_layers_of_one_kind_are_one_group_in_the_order_of_the_model() -> None:
    result = footprint(BY_NAME["sliding and full layers by list"].config, tp=8)
    assert [(group.kind, group.count, group.window_tokens, group.copies) for group in result.layers] == [
        ("full", 2, None, 2), ("sliding", 4, 512, 2),
    ]  # fmt: skip


# --- laws


@st.composite
def grouped(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A grouped-query model and a TP that it can be split over."""
    kv_heads = draw(st.integers(1, 16))
    heads = kv_heads * draw(st.integers(1, 8))
    fits = [tp for tp in range(1, heads + 1) if heads % tp == 0 and (kv_heads % tp == 0 or tp % kv_heads == 0)]
    config = {
        "model_type": "llama", "num_hidden_layers": draw(st.integers(1, 12)), "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": draw(st.integers(1, 300)), "torch_dtype": "bfloat16",
    }  # fmt: skip
    return config, draw(st.sampled_from(fits))


def heads_by_rank(heads: int, kv_heads: int, tp: int) -> list[set[int]]:
    """Which KV heads each rank needs: rank r has a contiguous share of the query heads, and each needs its KV head."""
    share, group = heads // tp, heads // kv_heads
    return [{query // group for query in range(rank * share, (rank + 1) * share)} for rank in range(tp)]


@given(grouped())
def test_every_rank_holds_exactly_the_kv_heads_that_its_queries_need(model: tuple[dict[str, Any], int]) -> None:
    config, tp = model
    placed = heads_by_rank(config["num_attention_heads"], config["num_key_value_heads"], tp)
    per_head = config["num_hidden_layers"] * 2 * config["head_dim"] * 2
    result = footprint(config, tp=tp)
    assert {len(rank) * per_head for rank in placed} == {result.bytes_per_token_rank}
    assert sum(len(rank) for rank in placed) * per_head == result.bytes_per_token_total
    assert len(set().union(*placed)) * per_head == result.unique_bytes_per_token
    assert result.layers[0].copies == sum(0 in rank for rank in placed)


@given(grouped())
def test_more_ranks_never_make_a_rank_heavier_and_never_lose_a_head(model: tuple[dict[str, Any], int]) -> None:
    config, tp = model
    one, many = footprint(config), footprint(config, tp=tp)
    assert many.bytes_per_token_rank <= one.bytes_per_token_rank
    assert many.unique_bytes_per_token == one.unique_bytes_per_token <= many.bytes_per_token_total


@given(st.sampled_from(CASES), st.sampled_from(["auto", "fp8", "bfloat16"]))
def test_parts_add_up_to_the_whole(case: Case, dtype: str) -> None:
    for tp in case.rank_bytes:
        result: Footprint = footprint(case.config, tp=tp, kv_dtype=dtype)
        assert sum(group.bytes_per_token_rank for group in result.layers) == result.bytes_per_token_rank
        windowed = sum(group.bytes_per_token_rank for group in result.layers if group.window_tokens is not None)
        assert result.growing_bytes_per_token_rank + windowed == result.bytes_per_token_rank
        assert (
            sum(group.unique_bytes_per_token * group.copies for group in result.layers) == result.bytes_per_token_total
        )
