"""KV bytes per token and rank (β_rank, Eq. 1) of any model, from its configuration.

The paper's equation is for grouped-query attention; MLA, sliding windows, hybrids and models with two kinds of layers
follow the rules by which vLLM lays out their caches (``AttentionSpec`` page sizes, ``get_num_kv_heads``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eactl.errors import UsageError
from eactl.model.attention import INDEXER, MLA, KvLayer, ModelShape, read_shape
from eactl.model.footprint_notes import notes_on
from eactl.model.footprint_result import Footprint, LayerGroup
from eactl.model.kvdtype import KvDtype, parse_kv_dtype

__all__ = ["MAX_TP", "Footprint", "LayerGroup", "footprint", "weigh", "why_not"]

MAX_TP = 1024
_INDEXER_GROUP = 128  # elements of an indexer key that share one float32 scale


def footprint(
    config: Mapping[str, object], *, tp: int = 1, kv_dtype: str = "auto", model: str | None = None
) -> Footprint:
    """The footprint of the model that ``config`` (the object in a config.json) describes, on ``tp`` ranks.

    Raises UsageError for a TP the model cannot be split over, an unknown attention or data type, and a configuration
    that is not of a model with KV per token or lacks a field.
    """
    return weigh(read_shape(config, model=model), tp=tp, kv_dtype=kv_dtype, model=model)


def weigh(shape: ModelShape, *, tp: int, kv_dtype: str = "auto", model: str | None = None) -> Footprint:
    """The footprint of a shape that was read before. Raises UsageError for an impossible TP or data type."""
    if isinstance(tp, bool) or not isinstance(tp, int) or not 1 <= tp <= MAX_TP:
        raise UsageError(f"{tp!r} ranks", where="--tp", hint=f"give a whole number from 1 to {MAX_TP}")
    if (reason := why_not(shape, tp)) is not None:
        fits = ", ".join(str(n) for n in range(1, 65) if why_not(shape, n) is None)
        raise UsageError(f"{model or 'the model'} cannot run on {tp} ranks: {reason}", where="--tp", hint=f"use {fits}")
    dtype = resolve_dtype(shape, kv_dtype)
    groups = [_price(layer, count, tp, dtype) for layer, count in shape.layers]
    if shape.state_layers:
        groups.append(LayerGroup("state", shape.state_layers, 0))
    mtp = None
    if shape.mtp is not None:
        mtp = sum(_price(layer, shape.mtp_layers, tp, dtype).bytes_per_token_rank for layer in shape.mtp)
    is_replicated = all(layer.is_replicated for layer, _ in shape.layers) and not shape.state_layers
    bare = Footprint(
        model=model,
        tp=tp,
        kv_dtype=dtype.name,
        layers=tuple(groups),
        tier_ranks=1 if is_replicated else tp,
        state_bytes_per_sequence_rank=_state_bytes(shape, tp),
        mtp_layers=shape.mtp_layers,
        mtp_bytes_per_token_rank=mtp,
    )
    return replace(bare, notes=notes_on(bare, shape, requested_dtype=kv_dtype))


def why_not(shape: ModelShape, tp: int) -> str | None:
    """Why ``tp`` ranks cannot share the model's heads, or None if they can.

    vLLM's rules: query heads divide over the ranks; KV heads divide, or repeat evenly where ranks outnumber them.
    """
    for heads in sorted({shape.query_heads, *(layer.query_heads for layer, _ in shape.layers)}):
        if heads % tp:
            return f"{heads} query heads do not divide by {tp}"
    for layer, _ in shape.layers:
        if not layer.is_replicated and layer.kv_heads % tp and tp % layer.kv_heads:
            return f"{layer.kv_heads} KV heads neither divide by {tp} nor repeat evenly"
    if shape.state is not None and not shape.state.fits(tp):
        return f"{shape.state.heads} state heads do not divide by {tp}"
    return None


def _state_bytes(shape: ModelShape, tp: int) -> int | None:
    if not shape.state_layers:
        return 0
    return None if shape.state is None else shape.state_layers * shape.state.bytes_on_rank(tp)


def resolve_dtype(shape: ModelShape, requested: str) -> KvDtype:
    """The data type that KV is stored in. ``auto`` is what the checkpoint asks for, else the model's own in 16 bits."""
    dtype = parse_kv_dtype(requested)
    if dtype is None:
        dtype = shape.kv_dtype or shape.dtype or KvDtype("bfloat16")
        if dtype.name == "float32":
            dtype = KvDtype("bfloat16")  # engines serve 32-bit checkpoints in 16 bits
    has_indexer = any(layer.kind == INDEXER for layer, _ in shape.layers)
    return KvDtype("fp8_ds_mla") if has_indexer and dtype.is_fp8 else dtype


def _price(layer: KvLayer, count: int, tp: int, dtype: KvDtype) -> LayerGroup:
    heads_rank = max(1, layer.kv_heads // tp)
    if layer.kind == INDEXER:
        per_head = layer.k_dim + layer.k_dim // _INDEXER_GROUP * 4  # 8-bit key and scales, whatever the KV type
    elif layer.kind == MLA:
        per_head = dtype.latent_bytes(layer.k_dim)
    else:
        per_head = dtype.side_bytes(layer.k_dim) + dtype.side_bytes(layer.v_dim)
    return LayerGroup(
        kind=layer.kind,
        count=count,
        bytes_per_token_rank=count * heads_rank * per_head,
        unique_bytes_per_token=count * layer.kv_heads * per_head,
        copies=heads_rank * tp // layer.kv_heads,
        window_tokens=layer.window_tokens,
        kv_heads=layer.kv_heads,
        kv_heads_rank=heads_rank,
        k_dim=layer.k_dim,
        v_dim=layer.v_dim,
    )
