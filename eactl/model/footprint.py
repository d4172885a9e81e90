"""KV bytes per token and rank (β_rank, Eq. 1) of a model from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eactl.errors import UsageError
from eactl.model.fields import MAX_DIM, MAX_HEADS, MAX_LAYERS, Fields


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one kind: ``bytes_per_token_rank`` is the sum over the group's ``count`` layers."""

    kind: str
    count: int
    bytes_per_token_rank: int
    unique_bytes_per_token: int
    window_tokens: int | None = None


@dataclass(frozen=True)
class Footprint:
    """What a model's KV weighs; all byte counts are exact integers."""

    model: str | None
    tp: int
    kv_dtype: str
    layers: tuple[LayerGroup, ...]
    bytes_per_token_rank: int
    growing_bytes_per_token_rank: int
    unique_bytes_per_token: int
    tier_ranks: int
    state_bytes_per_sequence_rank: int | None = 0
    notes: tuple[str, ...] = ()

    @property
    def bytes_per_token_total(self) -> int:
        """Summed over the ranks of one tensor-parallel engine."""
        return self.bytes_per_token_rank * self.tp

    @property
    def tier_bytes_per_token_rank(self) -> int:
        """What one token occupies in the host tier of one rank: the number that sizing uses."""
        return self.bytes_per_token_rank

    @property
    def tier_bytes_per_token_total(self) -> int:
        """What one token occupies in all ranks' host tiers together (ranks that store nothing do not count)."""
        return self.tier_bytes_per_token_rank * self.tier_ranks


def footprint(
    config: Mapping[str, object], *, tp: int = 1, kv_dtype: str = "auto", model: str | None = None
) -> Footprint:
    """KV bytes per token of the model that ``config`` (a config.json's object) describes, at ``tp`` ranks.

    Raises UsageError for an impossible TP, an unknown attention or a missing field.
    """
    fields = Fields(config)
    if kv_dtype not in ("auto", "bfloat16", "float16"):
        raise UsageError(f"unknown KV dtype {kv_dtype!r}", where="--kv-dtype", hint="use auto, bfloat16 or float16")
    for name in ("kv_lora_rank", "layer_types", "compress_ratios", "block_configs", "text_config"):
        if fields.has(name):
            raise fields.error(f"unsupported config: {name}")
    layers = fields.required(("num_hidden_layers",), "the number of layers", high=MAX_LAYERS)
    heads = fields.required(("num_attention_heads",), "the number of query heads", high=MAX_HEADS)
    kv_heads = fields.first(("num_key_value_heads",), high=MAX_HEADS) or heads
    dim = fields.first(("head_dim",), high=MAX_DIM)
    if dim is None:
        dim = fields.required(("hidden_size",), "the hidden size", high=MAX_DIM) // heads
    if heads % tp or (kv_heads >= tp and kv_heads % tp) or (kv_heads < tp and tp % kv_heads):
        raise UsageError(f"{heads} query and {kv_heads} KV heads cannot be split over {tp} ranks", where="--tp")
    per_head = layers * 2 * dim * 2
    group = LayerGroup("full", layers, per_head * max(1, kv_heads // tp), per_head * kv_heads)
    return Footprint(
        model=model, tp=tp, kv_dtype="bfloat16", layers=(group,),
        bytes_per_token_rank=group.bytes_per_token_rank,
        growing_bytes_per_token_rank=group.bytes_per_token_rank,
        unique_bytes_per_token=group.unique_bytes_per_token,
        tier_ranks=tp,
    )  # fmt: skip
