"""A model small enough to serve on two CPU cores: a random two-layer Qwen3 with its own tokenizer of 4,096 words.

Every word ``w0`` … ``w4095`` is one token, so a test can say exactly which tokens a prompt has. β is
2 · 2 layers · 2 KV heads · 64 · 2 bytes = 1,024 bytes per token.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

VOCABULARY = 4096
BETA_BYTES = 2 * 2 * 2 * 64 * 2
MAX_POSITIONS = 8192
_SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>", "<|unk|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }} {{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


def make(folder: Path, hidden: int = 128) -> Path:
    """Write the model into ``folder`` unless it is there; returns ``folder``. Needs torch and transformers.

    ``hidden`` makes prefill dearer, and leaves the KV as it is.
    """
    if (folder / "model.safetensors").exists():
        return folder
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    words = [*_SPECIAL, "system", "user", "assistant", "tool"]
    words += [f"w{number}" for number in range(VOCABULARY - len(words))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(_SPECIAL))
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>", unk_token="<|unk|>"
    )
    wrapped.chat_template = _TEMPLATE
    wrapped.save_pretrained(folder)

    # Wide, untied weights: every output depends on the whole prompt, so a wrongly restored block shows.
    torch.manual_seed(20)
    config = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False, initializer_range=2.4 / hidden**0.5, eos_token_id=2, bos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0}))
    return folder


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
