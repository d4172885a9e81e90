"""What is known about model families by name: which are plain, which cannot have a token KV cache, which to refuse.

The arithmetic reads fields, not names. Names decide only where fields alone mislead: a family that is listed here
was checked against its implementation, so that fields we do not read are known not to change its KV.
"""

from __future__ import annotations

import re

from eactl.model.fields import Fields


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENCODER_DECODER = _names(
    "bart blenderbot cohere_asr encoder-decoder florence2 fsmt led m2m_100 marian mbart mt5 nllb-moe pegasus "
    "plbart prophetnet seamless_m4t speech_to_text switch_transformers t5 t5gemma udop umt5 whisper"
)
ENCODER_ONLY = _names(
    "albert bert camembert canine clip convbert deberta deberta-v2 distilbert electra ernie eurobert flaubert funnel "
    "gte ibert layoutlm longformer modernbert mpnet new nomic_bert reformer rembert roberta roformer siglip "
    "squeezebert vit wav2vec2 xlm xlm-roberta xlm-roberta-xl"
)
DIFFUSION = _names("diffusion_gemma diffusion_gemma_text dream llada llada_moe sdar")
ATTENTION_FREE = _names("falcon_mamba mamba mamba2 rwkv rwkv5 rwkv6 rwkv7 rwkv_v7 xlstm")

# Families in which no field for KV heads means as many as query heads.
MULTI_HEAD = _names(
    "baichuan bloom falcon gpt2 gpt_bigcode gpt_neox gptj internlm jais llama minicpm minicpm3 mpt opt orion persimmon "
    "phi qwen RefinedWeb RefinedWebModel xverse"
)

# Reviewed families: what is not read from their configuration does not change their KV.
KNOWN = _names(
    """afmoe apertus arcee arctic aya_vision baichuan bailing_moe bamba bloom chatglm cohere cohere2 cohere2_vision
    dbrx deci deepseek deepseek_ocr deepseek_v2 deepseek_v3 deepseek_v32 deepseek_vl_v2 dots1 dots_ocr ernie4_5
    ernie4_5_moe exaone exaone4 exaone_moe falcon falcon_h1 fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text
    gemma4 gemma4_text gemma4_unified gemma4_unified_text glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe
    glm4v_moe_text glm4v_text glm_moe_dsa gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite granitemoe granitemoehybrid
    granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe idefics3 internlm internlm2 internlm3 internvl
    internvl_chat jais jamba kimi_k2 kimi_k25 kimi_linear kimi_vl laguna lfm2 lfm2_moe llama llama4 llama4_text llava
    llava_next longcat_flash minicpm minicpm3 minimax minimax_m1 minimax_m2 minimax_text_01 ministral3 mimo mimo_v2
    mimo_v2_flash mistral mistral3 mixtral molmo mpt nemotron nemotron-nas nemotron_h olmo olmo2 olmo3 olmoe opt orion
    ovis paligemma pangu_ultra_moe persimmon phi phi3 phi3_v phi4mm phimoe pixtral qwen qwen2 qwen2_5_omni_text
    qwen2_5_omni_thinker qwen2_5_vl qwen2_5_vl_text qwen2_audio qwen2_moe qwen2_vl qwen2_vl_text qwen3 qwen3_5
    qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe qwen3_omni_moe_text
    qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text RefinedWeb RefinedWebModel seed_oss
    smollm3 smolvlm solar stablelm starcoder2 step3_text step3_vl step3p5 telechat telechat2 voxtral xverse zamba2"""
)

# A field that changes the KV in a way this arithmetic does not know, whatever the family.
_REFUSED_FIELDS = {
    "compress_ratios": "compresses its KV by a ratio of its own in each layer",
    "use_cla": "shares KV between neighbouring layers",
    "cross_attention_layers": "has cross-attention layers, whose KV belongs to images and not to prompt tokens",
    "layer_group_size": "mixes MLA and linear attention in groups",
    "loop_num": "runs its layers several times, each time with KV of its own",
}

# In a family that was not reviewed, a field whose name says that it may touch the KV must be read here or be harmless.
_TOUCHES_KV = re.compile(
    r"attn|attention|(^|_)kv|head|(^|_)key|(^|_)value|layer|window|cache|state|ssm|mamba|conv|latent|lora|index|sparse"
    r"|compress|shar(e|ing)|loop|recur|linear|memory|block|pattern|chunk|interval|period|mla|swa|local|global|delta|query"
)
_READ = _names(
    """attention_chunk_size attention_k_eq_v block_configs full_attention_interval global_head_dim head_dim
    hidden_size_per_head hybrid_override_pattern index_head_dim index_n_heads index_topk kv_lora_rank layer_types
    layers_block_type linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads
    linear_value_head_dim mamba_ssm_dtype max_window_layers mtp_num_hidden_layers n_head n_head_kv n_heads n_kv_heads
    n_layer n_layers num_attention_heads num_global_key_value_heads num_hidden_layers num_key_value_heads num_kv_heads
    num_kv_shared_layers num_layers num_nextn_predict_layers qk_rope_head_dim sliding_window sliding_window_pattern
    text_config use_sliding_window v_head_dim _sliding_window_pattern"""
)
_HARMLESS = re.compile(
    r"_?(attn|attention)_?(bias|dropout|drop|pdrop|probs_dropout_prob|logit_softcapping|implementation|scale|scaling"
    r"|multiplier|output_gate|out_bias|qkv_bias|internal)|qkv_bias|head_bias|lm_head.*|.*norm.*|.*expert.*|.*moe.*|.*mlp.*"
    r"|first_k_dense_replace|decoder_sparse_step|use_cache|cache_implementation|initializer.*|layerdrop|.*dropout.*|tie_.*|.*token_(id|index)"
    r"|(image|video|audio|vision)_.*|chunk_size_feed_forward|.*rope.*|quantization_config|gradient_checkpointing"
    r"|q_lora_rank|qk_nope_head_dim|.*activation.*|query_pre_attn_scalar|shared_intermediate_size"
)
_NEUTRAL_AT_ONE = re.compile(r"ratio|factor|scale|multiplier|loop|interval|freq|group_size")


def refuse_without_kv(root: Fields) -> None:
    """Raise UsageError for a configuration that is not of a model with a causal KV cache per token."""
    family = root.text("model_type") or ""
    if root.has("_class_name") or root.has("_diffusers_version"):
        raise root.unsupported("this is a diffusion pipeline, which has no KV cache")
    if family in DIFFUSION:
        raise root.unsupported(
            f"{family} is a diffusion language model: tokens are rewritten after they are made, so KV is never final"
        )
    if root.flag("is_encoder_decoder") or family in ENCODER_DECODER:
        raise root.unsupported(
            f"{family or 'this'} is an encoder-decoder model: its prompt goes through the encoder, so no prefix of KV "
            "can be kept and reused"
        )
    if family in ENCODER_ONLY:
        raise root.unsupported(f"{family} is an encoder-only model, which keeps no KV between calls")
    if family in ATTENTION_FREE:
        raise root.unsupported(
            f"{family} has no attention layers: a state of fixed size stands for the whole context, so there is no KV "
            "per token that a tier could hold"
        )


def refuse_unknown_attention(fields: Fields, family: str) -> None:
    """Raise UsageError where a field says that the attention is of a kind this arithmetic does not know."""
    for name, why in _REFUSED_FIELDS.items():
        if _is_on(name, fields.values.get(name)):
            raise fields.unsupported(f"unsupported config: {name} ({family or 'the model'} {why})")
    if fields.values.get("use_bidirectional_attention") == "all":
        raise fields.unsupported(f"{family or 'the model'} attends in both directions, so its KV cannot be reused")
    if family in KNOWN:
        return
    for name, value in fields.values.items():
        if _TOUCHES_KV.search(name) and name not in _READ and not _HARMLESS.fullmatch(name) and _is_on(name, value):
            kind = f"model type {family!r}, which is" if family else "a config without model_type, so the family is"
            raise fields.unsupported(f"unsupported config: {name} in {kind} not known here, may change the KV")


def _is_on(name: str, value: object) -> bool:
    """Whether a field switches something on: a ratio, factor or count of passes is neutral at 1."""
    if value is None or value is False or value == [] or value == {} or value in (0, "", "none"):
        return False
    return not (value == 1 and value is not True and _NEUTRAL_AT_ONE.search(name))
