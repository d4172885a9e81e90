"""A tokenizer of our own, trained at test time: byte-level BPE with chat tokens, as current models have it."""

from __future__ import annotations

from pathlib import Path

import orjson
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATE = (
    "{%- for message in messages %}"
    "<|im_start|>{{ message.role }}\n"
    "{%- if message.reasoning_content %}\n<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}\n"
    "<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>"
    "{%- endfor %}<|im_end|>{{ '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = ["def main(argument):\n    return argument\n", "the quick brown fox, jumps over the lazy dog. " * 3,
           "import os\nfor name in os.listdir('.'):\n    print(name)\n", "0123456789 " * 4]  # fmt: skip


def write_model(folder: Path, *, template: str | None = TEMPLATE, bos: bool = False) -> Path:
    """A model directory with tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|im_start|>", "<|im_end|>", "<s>"],
    )  # fmt: skip
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in ("<think>", "</think>")])
    if bos:
        from tokenizers.processors import TemplateProcessing

        begin = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, object] = {"bos_token": {"content": "<s>"}, "eos_token": "<|im_end|>"}
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_bytes(orjson.dumps(config))
    return folder
