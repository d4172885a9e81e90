"""What a person must know to use a footprint: which number counts where, and what the arithmetic assumed."""

from __future__ import annotations

from collections.abc import Iterator

from eactl.model.attention import INDEXER, MLA, ModelShape
from eactl.model.footprint_result import Footprint
from eactl.model.kvdtype import KvDtype
from eactl.units import human_bytes


def notes_on(result: Footprint, shape: ModelShape, *, requested_dtype: str) -> tuple[str, ...]:
    """The notes that belong to ``result``, most important first."""
    return (*_tier(result, shape), *_copies(result, shape), *_assumed(result, shape, requested_dtype))


def _tier(result: Footprint, shape: ModelShape) -> Iterator[str]:
    windows = [(group.kind, group.window_tokens) for group in result.layers if group.window_tokens is not None]
    if windows:
        yield (
            f"Sizing uses all attention layers ({human_bytes(result.bytes_per_token_rank)} per token and rank): "
            "LMCache keeps windowed layers for every token too, although the engine needs only their last window."
        )
        window = min((window for kind, window in windows if kind == "sliding"), default=None)
        if window is not None:
            yield (
                f"Where the sliding window ({window:,} tokens) is shorter than a chunk, LMCache's multi-process server "
                "keeps only that much of each chunk in sliding layers, and a tier holds more tokens than counted here; "
                "in-process it does not."
            )
    if shape.state_layers:
        state = result.state_bytes_per_sequence_rank
        size = "of a size this config does not give" if state is None else f"of {human_bytes(state)} per rank"
        yield (
            f"{shape.state_layers} layers keep a state {size} for each sequence and no KV per token. LMCache's "
            "multi-process server stores one snapshot of it with every chunk, so larger chunks spread it thinner; its "
            "in-process connector cannot run such a model."
        )
        if (block := result.attention_block_tokens) is not None:
            yield (
                f"vLLM enlarges attention blocks to about {block:,} tokens to match the state's page (its log has the "
                "number); chunks must be a multiple of that."
            )
    if any(group.kind == INDEXER for group in result.layers):
        yield (
            "The sparse-attention indexer has a key cache of its own, counted here; LMCache's multi-process server "
            "stores it, its in-process connector fails at start on such models (LMCache #5002)."
        )


def _copies(result: Footprint, shape: ModelShape) -> Iterator[str]:
    if result.tp == 1:
        return
    if result.tier_ranks == 1:
        yield (
            f"MLA keeps the same latent on all {result.tp} ranks; LMCache stores it on the first rank only. vLLM's own "
            f"CPU offload stored {result.tp} copies before July 2026 (#48906, #50301) and one since."
        )
        return
    yield (
        f"LMCache's max_local_cpu_size is a size per rank: the host must hold it {result.tp} times, once for each rank."
    )
    repeated = [group for group in result.layers if group.copies > 1 and group.kind not in (MLA, INDEXER)]
    if repeated:
        copies = " or ".join(str(number) for number in sorted({group.copies for group in repeated}))
        yield f"There are fewer KV heads than ranks: {copies} ranks hold and store the same heads."


def _assumed(result: Footprint, shape: ModelShape, requested: str) -> Iterator[str]:
    if result.kv_dtype == "fp8_ds_mla" and requested.lower() != "fp8_ds_mla":
        yield (
            "fp8 KV of a sparse MLA model is taken as packed rows of 656 bytes (fp8_ds_mla), as FlashMLA stores it; "
            "some other backends keep one byte per element."
        )
    if requested.lower() == "auto" and shape.kv_dtype is not None:
        yield f"The checkpoint asks for {shape.kv_dtype.name} KV; --kv-dtype bfloat16 overrides it."
    elif requested.lower() == "auto" and shape.dtype is None:
        yield "The config names no data type; 16 bits are assumed, as engines do."
    elif requested.lower() == "auto" and shape.dtype is not None and shape.dtype.name == "float32":
        yield "The config says float32; engines serve such models in 16 bits, and so does this count."
    if KvDtype(result.kv_dtype).is_quantised:
        yield (
            "A tier need not keep the GPU's KV format: compare with the bytes of the first stored chunk over its "
            "tokens, and give --kv-bytes-per-token to size if they differ."
        )
    if result.mtp_layers:
        extra = result.mtp_bytes_per_token_rank
        added = f"adds {extra:,} bytes per token and rank" if extra is not None else "adds KV of its own"
        layers = "MTP layer" if result.mtp_layers == 1 else f"{result.mtp_layers} MTP layers"
        yield f"Speculative decoding with the checkpoint's {layers} {added}, not counted here."
    if shape.assumes_multi_head:
        yield (
            f"The config gives no number of KV heads; {shape.query_heads}, one for each query head, are assumed. Check "
            "that: with grouped queries the KV is several times smaller."
        )
    if not shape.is_known_family:
        kind = f"Model type {shape.family!r} is not known here" if shape.family else "The config has no model_type"
        yield f"{kind}; its fields describe {_described(result)}, and nothing in it says otherwise."


def _described(result: Footprint) -> str:
    return "MLA" if any(group.kind == MLA for group in result.layers) else "plain grouped-query attention"
