"""What vLLM itself would keep per token: builds each model of the footprint cases and reads its cache specifications.

Run as a program in the engine environment; prints one JSON line per case and TP: the name, the TP, and either bytes per
token on a rank and bytes of state per sequence, or the reason why this vLLM cannot build the model here. Models are
built without weights.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.model.footprint_cases import CASES

# model type -> vLLM's architecture, and fields it needs that the KV does not depend on.
_MOE = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True}
_DEEPSEEK = {
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "first_k_dense_replace": 99, "q_lora_rank": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_group": 1,
    "topk_group": 1,
}  # fmt: skip
_CHATGLM = {
    "original_rope": True, "padded_vocab_size": 768, "ffn_hidden_size": 768, "rmsnorm": True, "seq_length": 512,
    "tie_word_embeddings": False,
}  # fmt: skip
_GEMMA3N = {
    "altup_num_inputs": 2, "laurel_rank": 8, "hidden_size_per_layer_input": 16, "intermediate_size": [256] * 10,
    "activation_sparsity_pattern": [0.0] * 10,
}  # fmt: skip
_LONGCAT = _DEEPSEEK | {
    "mla_scale_q_lora": True, "mla_scale_kv_lora": True, "moe_topk": 2, "zero_expert_num": 2,
    "zero_expert_type": "identity", "expert_ffn_hidden_size": 64, "ffn_hidden_size": 64,
}  # fmt: skip
_MINICPM3 = {"q_lora_rank": 64, "scale_emb": 1, "scale_depth": 1, "dim_model_base": 64}
_STEP = {"moe_layers_enum": "1", "moe_num_experts": 16, "moe_top_k": 2}
_ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("Qwen3ForCausalLM", {}),
    "llama": ("LlamaForCausalLM", {}),
    "gpt2": ("GPT2LMHeadModel", {}),
    "falcon": ("FalconForCausalLM", {}),
    "chatglm": ("ChatGLMModel", _CHATGLM),
    "gemma2": ("Gemma2ForCausalLM", {}),
    "gemma3_text": ("Gemma3ForCausalLM", {}),
    "gemma3n_text": ("Gemma3nForCausalLM", _GEMMA3N),
    "gemma4_text": ("Gemma4ForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", {}),
    "minicpm3": ("MiniCPM3ForCausalLM", _MINICPM3),
    "deepseek_v3": ("DeepseekV3ForCausalLM", _DEEPSEEK),
    "longcat_flash": ("LongcatFlashForCausalLM", _LONGCAT),
    "laguna": ("LagunaForCausalLM", _MOE | {"gating": False, "shared_expert_intermediate_size": 64}),
    "llama4_text": ("Llama4ForCausalLM", {"num_local_experts": 16, "intermediate_size_mlp": 256}),
    "mimo_v2_flash": ("MiMoV2FlashForCausalLM", {"layernorm_epsilon": 1e-6, "moe_layer_freq": [0] * 5}),
    "step3p5": ("Step3p5ForCausalLM", _STEP),
    "qwen3_next": ("Qwen3NextForCausalLM", _MOE | {"decoder_sparse_step": 1, "shared_expert_intermediate_size": 64}),
    "nemotron_h": ("NemotronHForCausalLM", {"expand": 1, "chunk_size": 16}),
    "jamba": ("JambaForCausalLM", {"num_experts": 1}),
    "falcon_h1": ("FalconH1ForCausalLM", {"mamba_d_ssm": 256, "mamba_expand": 1, "mamba_chunk_size": 16}),
}
_COMMON = {
    "vocab_size": 768, "intermediate_size": 768, "hidden_act": "silu", "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",
    "mamba_ssm_dtype": "float32",
}  # fmt: skip


def for_vllm(config: dict[str, Any]) -> dict[str, Any] | None:
    """A case's configuration with what vLLM needs besides; None where this vLLM does not know the model."""
    text = dict(config.get("text_config") or config)
    architecture, extra = _ARCHITECTURES.get(text["model_type"], (None, {}))
    if architecture is None:
        return None
    if pattern := text.get("hybrid_override_pattern"):
        text["hybrid_override_pattern"] = pattern.replace("E", "-")  # experts without a gate need a GPU
    return {"max_position_embeddings": 2048, **_COMMON, **text, **extra, "architectures": [architecture]}


def main() -> None:
    """Print one JSON line per case, as soon as it is known: ``[name, result]``."""
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    for case in CASES:
        if len(sys.argv) > 1 and sys.argv[1] not in case.name:
            continue
        for tp in case.rank_bytes:
            print(json.dumps([case.name, tp, result_of(case.config, tp)]), flush=True)


def result_of(config: dict[str, Any], tp: int) -> dict[str, Any]:
    """What vLLM keeps for a model on one of ``tp`` ranks, or why it cannot say."""
    full = for_vllm(config)
    if full is None:
        return {"unknown": "this vLLM has no such model"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(full))
        try:
            return dict(kept(folder, tp))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def kept(folder: str, tp: int) -> dict[str, int]:
    """Bytes per token and of state that vLLM's layers declare for the model in ``folder`` on one of ``tp`` ranks."""
    import torch
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        LoadConfig,
        ModelConfig,
        ParallelConfig,
        VllmConfig,
        set_current_vllm_config,
    )
    from vllm.distributed import destroy_model_parallel, init_distributed_environment, initialize_model_parallel
    from vllm.distributed.parallel_state import get_tp_group
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    model = ModelConfig(
        model=folder,
        tokenizer=folder,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=512,
        enforce_eager=True,
    )
    config = VllmConfig(
        model_config=model,
        cache_config=CacheConfig(block_size=16),
        parallel_config=ParallelConfig(),
        device_config=DeviceConfig("cpu"),
        load_config=LoadConfig(load_format="dummy"),
    )
    per_token = growing = state = 0
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file://{tempfile.mkdtemp()}/rendezvous", 0, "gloo")
        destroy_model_parallel()  # which groups exist depends on whether the model has experts
        initialize_model_parallel(1)
        get_tp_group().world_size = config.parallel_config.tensor_parallel_size = (
            tp  # building a model talks to no rank
        )
        with set_default_torch_dtype(torch.bfloat16), torch.device("meta"):
            initialize_model(vllm_config=config)
        for layer in config.compilation_config.static_forward_context.values():
            if not hasattr(layer, "get_kv_cache_spec") or getattr(layer, "kv_sharing_target_layer_name", None):
                continue  # the engine gives no cache to a layer that reads another one's
            spec = layer.get_kv_cache_spec(config)
            if spec is None:
                continue
            if hasattr(spec, "shapes"):
                state += spec.state_content_size_bytes
            else:
                bytes_per_token = spec.unpadded_page_size_bytes // spec.block_size
                per_token += bytes_per_token
                growing += 0 if type(spec).__name__.startswith(("SlidingWindow", "ChunkedLocal")) else bytes_per_token
    return {"bytes_per_token": per_token, "growing_bytes_per_token": growing, "state_bytes": state}


if __name__ == "__main__":
    main()
