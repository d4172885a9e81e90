"""Made-up configurations, one for each kind of attention, with what one token weighs per rank.

Sizes are small and different from each other, so that a number taken from the wrong field shows. The engine's own
cache specifications are compared with the same list in tests/engine/test_footprint_vllm.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """``rank_bytes`` and ``growing_bytes``: TP -> bytes of one token on one rank in 16 bits, all and growing layers."""

    name: str
    config: dict[str, Any]
    rank_bytes: dict[int, int]
    unique_bytes: int
    growing_bytes: dict[int, int] = field(default_factory=dict)  # empty: the same as rank_bytes

    def growing(self, tp: int) -> int:
        return self.growing_bytes.get(tp, self.rank_bytes[tp])


def _decoder(family: str, layers: int, hidden: int, heads: int, kv_heads: int | None, **more: Any) -> dict[str, Any]:
    shape = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    kv = {} if kv_heads is None else {"num_key_value_heads": kv_heads}
    return {"model_type": family, **shape, **kv, "torch_dtype": "bfloat16", **more}


_MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
_INDEXER = {"index_topk": 64, "index_head_dim": 128}

# fmt: off
CASES = [
    Case(
        "grouped-query attention",  # 10 layers x 4 KV heads x (128 + 128) x 2 B
        _decoder("qwen3", 10, 1024, 16, 4, head_dim=128),
        {1: 20480, 2: 10240, 4: 5120, 8: 5120, 16: 5120},
        20480,
    ),
    Case(
        "grouped-query attention without head_dim",  # 1536 / 12 = 128: 10 x 2 x 256 x 2
        _decoder("llama", 10, 1536, 12, 2),
        {1: 10240, 2: 5120, 4: 5120},
        10240,
    ),
    Case(
        "multi-head attention",  # 6 x 12 x 128 x 2
        {"model_type": "gpt2", "n_layer": 6, "n_head": 12, "n_embd": 768, "torch_dtype": "float16"},
        {1: 18432, 2: 9216, 3: 6144, 12: 1536},
        18432,
    ),
    Case(
        "multi-query attention",  # 6 x 1 x 256 x 2 on every rank
        {"model_type": "gpt_bigcode", "n_layer": 6, "n_head": 8, "n_embd": 1024, "multi_query": True},
        {1: 3072, 2: 3072, 8: 3072},
        3072,
    ),
    Case(
        "multi-head although multi_query exists",  # 6 x 8 x 256 x 2
        {"model_type": "gpt_bigcode", "n_layer": 6, "n_head": 8, "n_embd": 1024, "multi_query": False},
        {1: 24576, 8: 3072},
        24576,
    ),
    Case(
        "new Falcon decoder ignores multi_query",  # 4 x 8 x 128 x 2
        {
            "model_type": "falcon",
            "num_hidden_layers": 4,
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_kv_heads": 8,
            "multi_query": True,
            "new_decoder_architecture": True,
        },
        {1: 8192, 8: 1024, 16: 1024},
        8192,
    ),
    Case(
        "old Falcon decoder is multi-query",  # 4 x 1 x 128 x 2
        {
            "model_type": "falcon",
            "num_hidden_layers": 4,
            "hidden_size": 2048,
            "num_attention_heads": 32,
            "num_kv_heads": 32,
            "multi_query": True,
            "new_decoder_architecture": False,
        },
        {1: 1024, 8: 1024},
        1024,
    ),
    Case(
        "ChatGLM's groups",  # 4 x 2 x 256 x 2
        {
            "model_type": "chatglm",
            "num_layers": 4,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "torch_dtype": "float16",
        },
        {1: 4096, 2: 2048, 4: 2048},
        4096,
    ),
    Case(
        "MPT's nested attention settings",  # 4 x 2 x 128 x 2, heads of 512 / 8
        {"model_type": "mpt", "n_layers": 4, "n_heads": 8, "d_model": 512, "attn_config": {"kv_n_heads": 2}},
        {1: 2048, 2: 1024, 4: 1024},
        2048,
    ),
    Case(
        "MLA",  # 5 x (512 + 64) x 2 on every rank; the 32 KV heads are a decoy
        _decoder("deepseek_v3", 5, 2048, 32, 32, **_MLA, v_head_dim=128, head_dim=64),
        {1: 5760, 2: 5760, 32: 5760},
        5760,
    ),
    Case(
        "MLA with an indexer in each layer",  # 5 x (1152 + 128 + 4)
        _decoder("deepseek_v32", 5, 2048, 32, 32, **_MLA, **_INDEXER),
        {1: 6420, 8: 6420},
        6420,
    ),
    Case(
        "MLA with an indexer in every fourth layer",  # indexers at 0, 1, 5, 9: 10 x 1152 + 4 x 132
        _decoder("glm_moe_dsa", 10, 2048, 32, 32, **_MLA, **_INDEXER, index_topk_freq=4),
        {1: 12048, 8: 12048},
        12048,
    ),
    Case(
        "MLA that engines run with full heads",  # 3 x 8 heads x 2 x (32 + 16) x 2: V is padded to K's size
        _decoder("minicpm3", 3, 512, 8, 8, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=24),
        {1: 4608, 8: 576},
        4608,
    ),
    Case(
        "two attentions in each layer",  # 2 x 3 x 576 x 2
        {
            "model_type": "longcat_flash",
            "num_layers": 3,
            "hidden_size": 1024,
            "num_attention_heads": 8,
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
        },
        {1: 6912, 4: 6912},
        6912,
    ),
    Case(
        "sliding and full layers by list",  # 6 x 4 x 128 x 2 = 6144; two full ones 2048
        _decoder(
            "laguna", 6, 512, 8, 4, head_dim=64, sliding_window=512,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"] * 2,
        ),
        {1: 6144, 2: 3072, 4: 1536, 8: 1536},
        6144,
        {1: 2048, 2: 1024, 4: 512, 8: 512},
    ),
    Case(
        "sliding and full layers by pattern, nested",  # every third of 7 is full: 7 x 2 x 512 x 2; 2 of 7 grow
        {
            "model_type": "gemma3",
            "text_config": _decoder(
                "gemma3_text", 7, 640, 4, 2, head_dim=256, sliding_window=128, sliding_window_pattern=3
            ),
            "vision_config": {"hidden_size": 1152, "num_attention_heads": 16, "num_hidden_layers": 27},
        },
        {1: 14336, 2: 7168, 4: 7168},
        14336,
        {1: 4096, 2: 2048, 4: 2048},
    ),
    Case(
        "sliding and full layers by family",  # gemma2: layers 0, 2, 4 slide, 1 and 3 do not
        _decoder("gemma2", 5, 512, 4, 2, head_dim=64, sliding_window=256),
        {1: 2560, 2: 1280},
        2560,
        {1: 1024, 2: 512},
    ),
    Case(
        "a window that is switched off",  # 4 x 2 x 128 x 2
        _decoder("qwen2", 4, 512, 8, 2, sliding_window=4096, use_sliding_window=False, max_window_layers=2),
        {1: 2048, 2: 1024},
        2048,
    ),
    Case(
        "a window in the upper layers",  # layers 3 and 4 of 5 slide
        _decoder("qwen2", 5, 512, 8, 2, sliding_window=64, use_sliding_window=True, max_window_layers=3),
        {1: 2560},
        2560,
        {1: 1536},
    ),
    Case(
        "a window longer than the context",  # nothing slides
        _decoder("phi3", 4, 512, 8, 2, sliding_window=262144, max_position_embeddings=131072),
        {1: 2048},
        2048,
    ),
    Case(
        "chunked local layers",  # 8 x 2 x 256 x 2; layers 3 and 7 have no rotary positions and attend to all
        {
            "model_type": "llama4",
            "text_config": _decoder("llama4_text", 8, 1024, 8, 2, head_dim=128, attention_chunk_size=512),
        },
        {1: 8192, 2: 4096, 8: 4096},
        8192,
        {1: 2048, 2: 1024, 8: 1024},
    ),
    Case(
        "two kinds of layers with their own heads and sizes",
        # sliding: 5 x 4 x (64 + 64) x 2 = 5120; full: 1 x 2 x (128 + 128) x 2 = 1024, K = V is stored twice
        # TP 4: 5 x 1 x 256 + 1 x 1 x 512
        {
            "model_type": "gemma4",
            "text_config": _decoder(
                "gemma4_text",
                6,
                512,
                8,
                4,
                head_dim=64,
                global_head_dim=128,
                num_global_key_value_heads=2,
                attention_k_eq_v=True,
                sliding_window=256,
                layer_types=["sliding_attention"] * 5 + ["full_attention"],
            ),
        },
        {1: 6144, 2: 3072, 4: 1792, 8: 1792},
        6144,
        {1: 1024, 2: 512, 4: 512, 8: 512},
    ),
    Case(
        "layers that share the KV of earlier ones",  # 4 of 10 keep none: 6 x 2 x 128 x 2, of which layer 4 is full
        _decoder("gemma3n_text", 10, 512, 4, 2, head_dim=64, sliding_window=64, num_kv_shared_layers=4),
        {1: 3072, 2: 1536},
        3072,
        {1: 512, 2: 256},
    ),
    Case(
        "keys longer than values, and sliding layers with more heads",
        # full 2 x 2 x (96 + 64) x 2 = 1280; sliding 3 x 4 x (48 + 32) x 2 = 1920
        _decoder(
            "mimo_v2_flash", 5, 512, 8, 2, head_dim=96, v_head_dim=64, swa_num_attention_heads=8,
            swa_num_key_value_heads=4, swa_head_dim=48, swa_v_head_dim=32, sliding_window_size=128,
            hybrid_layer_pattern=[0, 1, 1, 1, 0], attention_chunk_size=128,
        ),
        {1: 3200, 2: 1600, 4: 1120},
        3200,
        {1: 1280, 2: 640, 4: 640},
    ),
    Case(
        "sliding layers with other settings",  # full 1 x 4 x 128 x 2 = 1024; sliding 2 x 2 x 64 x 2 = 512
        _decoder(
            "step3p5",
            3,
            512,
            8,
            None,
            head_dim=64,
            num_attention_groups=4,
            sliding_window=64,
            layer_types=["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"],
            num_nextn_predict_layers=1,  # the list has an entry for it
            attention_other_setting={
                "attention_type": "sliding_attention",
                "num_attention_heads": 16,
                "num_attention_groups": 2,
                "head_dim": 32,
            },
        ),
        {1: 1536, 2: 768, 4: 512},
        1536,
        {1: 1024, 2: 512, 4: 256},
    ),
    Case(
        "gated DeltaNet with full attention in every fourth layer",  # 2 of 8 x 2 x 256 x 2
        _decoder(
            "qwen3_next", 8, 512, 8, 2, head_dim=128, full_attention_interval=4, linear_num_key_heads=4,
            linear_num_value_heads=8, linear_key_head_dim=32, linear_value_head_dim=32, linear_conv_kernel_dim=4,
        ),
        {1: 2048, 2: 1024, 4: 1024},
        2048,
    ),
    Case(
        "Mamba with attention by pattern letters",  # 2 stars x 2 x 256 x 2
        _decoder(
            "nemotron_h", 7, 512, 8, 2, head_dim=128, hybrid_override_pattern="M-M*E*M", mamba_num_heads=16,
            mamba_head_dim=32, n_groups=4, ssm_state_size=16, conv_kernel=4,
        ),
        {1: 2048, 2: 1024},
        2048,
    ),
    Case(
        "Mamba with attention by period",  # layers 2 and 6 of 8: 2 x 2 x 128 x 2
        _decoder(
            "jamba", 8, 512, 8, 2, attn_layer_period=4, attn_layer_offset=2, mamba_expand=2, mamba_d_state=16,
            mamba_d_conv=4,
        ),
        {1: 1024, 2: 512},
        1024,
    ),
    Case(
        "attention and Mamba side by side",  # 3 x 2 x 128 x 2
        _decoder(
            "falcon_h1", 3, 512, 8, 2, mamba_n_heads=8, mamba_d_head=32, mamba_n_groups=1, mamba_d_state=16,
            mamba_d_conv=4,
        ),
        {1: 1536, 2: 768},
        1536,
    ),
    Case(
        "KDA with MLA",  # layers 3 and 5 of 5: 2 x 576 x 2
        _decoder(
            "kimi_linear", 5, 512, 8, 8, **_MLA,
            linear_attn_config={
                "full_attn_layers": [3, 5], "kda_layers": [1, 2, 4], "head_dim": 32, "num_heads": 8,
                "short_conv_kernel_size": 4,
            },
        ),
        {1: 2304, 4: 2304},
        2304,
    ),
    Case(
        "blocks with and without attention",  # 8 / 4 = 2 heads and 8 / 2 = 4 heads: (2 + 4) x 128 x 2
        _decoder(
            "nemotron-nas", 3, 512, 8, None, num_key_value_heads=None,
            block_configs=[
                {"attention": {"n_heads_in_group": 4, "no_op": False}},
                {"attention": {"n_heads_in_group": None, "no_op": True}},
                {"attention": {"n_heads_in_group": 2}},
            ],
        ),
        {1: 1536, 2: 768, 4: 512},
        1536,
    ),
    Case(
        "KV heads given layer by layer",  # (1 + 2 + 4) x 128 x 2
        _decoder("deci", 3, 512, 8, None, num_key_value_heads_per_layer=[1, 2, 4]),
        {1: 1792, 2: 1024, 4: 768},
        1792,
    ),
]
# fmt: on

BY_NAME = {case.name: case for case in CASES}
