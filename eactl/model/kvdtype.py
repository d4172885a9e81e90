"""Data types of a KV cache: how many bytes one head's key or value takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eactl.errors import UsageError
from eactl.model.fields import shown

NVFP4_GROUP = 16
SCALE_BYTES = 4  # one float32 scale per token and head for K, another for V

# DeepSeek's packed sparse-MLA rows: quantised latent, its scales, and the rotary part in 16 bits.
DS_MLA_ROW_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
DS_MLA_DIM = 576

_ALIASES = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32",
    "fp8_inc": "fp8_e4m3", "nvfp4_4over6": "nvfp4", "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2",
}  # fmt: skip

_SIDE_BYTES: dict[str, Callable[[int], int]] = {
    "bfloat16": lambda dim: 2 * dim,
    "float16": lambda dim: 2 * dim,
    "float32": lambda dim: 4 * dim,
    "fp8": lambda dim: dim,
    "fp8_e4m3": lambda dim: dim,
    "fp8_e5m2": lambda dim: dim,
    "int8": lambda dim: dim,
    "fp8_per_token_head": lambda dim: dim + SCALE_BYTES,
    "int8_per_token_head": lambda dim: dim + SCALE_BYTES,
    "int4_per_token_head": lambda dim: dim // 2 + SCALE_BYTES,
    "nvfp4": lambda dim: dim // 2 + dim // NVFP4_GROUP,  # two values a byte, one scale byte a group
}

NAMES = ("auto", *_SIDE_BYTES, *DS_MLA_ROW_BYTES)


@dataclass(frozen=True)
class KvDtype:
    """One KV data type by the name vLLM's ``--kv-cache-dtype`` uses."""

    name: str

    @property
    def is_quantised(self) -> bool:
        """Whether values are stored in fewer than 16 bits."""
        return self.name not in ("bfloat16", "float16", "float32")

    @property
    def is_fp8(self) -> bool:
        """Whether this is one of the plain 8-bit floating-point types."""
        return self.name in ("fp8", "fp8_e4m3", "fp8_e5m2")

    def side_bytes(self, dim: int) -> int:
        """Bytes of one head's key (or value) of ``dim`` elements for one token.

        Raises UsageError for the packed MLA rows, which only a latent of 576 elements has, and for nvfp4 heads that
        its groups of 16 do not divide.
        """
        if self.name in DS_MLA_ROW_BYTES:
            raise UsageError(
                f"{self.name} packs MLA latents and this model has other layers", where="--kv-dtype",
                hint="use auto or fp8",
            )  # fmt: skip
        if self.name == "nvfp4" and dim % NVFP4_GROUP:
            raise UsageError(
                f"nvfp4 packs {NVFP4_GROUP} elements and a head has {dim}", where="--kv-dtype", hint="use auto or fp8"
            )
        return _SIDE_BYTES[self.name](dim)

    def latent_bytes(self, dim: int) -> int:
        """Bytes of one MLA latent of ``dim`` elements (compressed KV and rotary key together) for one token."""
        if self.name not in DS_MLA_ROW_BYTES:
            if "per_token_head" in self.name or self.name == "nvfp4":
                hint = "use auto, fp8 or fp8_ds_mla"
                raise UsageError(f"{self.name} is not defined for MLA latents", where="--kv-dtype", hint=hint)
            return self.side_bytes(dim)
        if dim != DS_MLA_DIM:
            raise UsageError(
                f"{self.name} needs a latent of {DS_MLA_DIM} elements and this model's has {dim}",
                where="--kv-dtype", hint="use auto or fp8",
            )  # fmt: skip
        return DS_MLA_ROW_BYTES[self.name]


def parse_kv_dtype(text: str) -> KvDtype | None:
    """The data type of that name in any case (``bf16`` and ``torch.bfloat16`` too); None for ``auto``.

    Raises UsageError for an unknown name.
    """
    name = text.strip().lower().removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name == "auto":
        return None
    if name in _SIDE_BYTES or name in DS_MLA_ROW_BYTES:
        return KvDtype(name)
    raise UsageError(f"unknown KV data type {shown(text)}", where="--kv-dtype", hint=f"choose from {', '.join(NAMES)}")
