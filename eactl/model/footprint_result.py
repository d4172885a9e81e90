"""What a model's KV weighs, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from eactl.model.attention import MLA

_BLOCK_STEP_TOKENS = 16


@dataclass(frozen=True)
class LayerGroup:
    """Layers of one kind. Byte counts are for all ``count`` layers together.

    ``unique_bytes_per_token`` counts every head once, ``copies`` ranks hold the same bytes. A group of kind ``state``
    keeps nothing per token.
    """

    kind: str
    count: int
    bytes_per_token_rank: int
    unique_bytes_per_token: int = 0
    copies: int = 1
    window_tokens: int | None = None
    kv_heads: int = 0
    kv_heads_rank: int = 0
    k_dim: int = 0
    v_dim: int = 0


@dataclass(frozen=True)
class Footprint:
    """What a model's KV weighs at one TP and data type; all counts are exact integers, in bytes.

    ``state_bytes_per_sequence_rank`` is 0 without state layers and None when the configuration does not give their
    size. ``mtp_bytes_per_token_rank`` comes on top when the engine uses the checkpoint's layers of multi-token
    prediction, None when not known.
    """

    model: str | None
    tp: int
    kv_dtype: str
    layers: tuple[LayerGroup, ...]
    tier_ranks: int
    state_bytes_per_sequence_rank: int | None = 0
    mtp_layers: int = 0
    mtp_bytes_per_token_rank: int | None = 0
    notes: tuple[str, ...] = ()

    @property
    def bytes_per_token_rank(self) -> int:
        """One token's KV in all attention layers on one rank."""
        return sum(group.bytes_per_token_rank for group in self.layers)

    @property
    def growing_bytes_per_token_rank(self) -> int:
        """The part of it that grows with the context; layers with a window stop growing at the window."""
        return sum(group.bytes_per_token_rank for group in self.layers if group.window_tokens is None)

    @property
    def bytes_per_token_total(self) -> int:
        """One token's KV on all ranks together, copies included."""
        return self.bytes_per_token_rank * self.tp

    @property
    def unique_bytes_per_token(self) -> int:
        """One token's KV with every head counted once."""
        return sum(group.unique_bytes_per_token for group in self.layers)

    @property
    def tier_bytes_per_token_rank(self) -> int:
        """What one token takes in one rank's host tier: all attention layers, windowed ones included.

        LMCache's in-process connector switches vLLM's hybrid cache manager off and stores every attention layer for
        every token; its multi-process server does the same except for windows shorter than a chunk, so this is exact
        there too or an upper bound.
        """
        return self.bytes_per_token_rank

    @property
    def tier_bytes_per_token_total(self) -> int:
        """What one token takes in the tiers of all ranks that store (MLA is stored by the first rank only)."""
        return self.tier_bytes_per_token_rank * self.tier_ranks

    @property
    def attention_block_tokens(self) -> int | None:
        """Tokens to which vLLM enlarges attention blocks so that their pages are no smaller than a state's.

        LMCache chunks must be a multiple of it. None without state layers, where the state's size is not known, and
        for MLA, whose block sizes depend on the backend; in steps of 16 tokens otherwise.
        """
        states = next((group.count for group in self.layers if group.kind == "state"), 0)
        per_token = max(group.bytes_per_token_rank // group.count for group in self.layers)
        if not states or self.state_bytes_per_sequence_rank is None or any(g.kind == MLA for g in self.layers):
            return None
        return -(-self.state_bytes_per_sequence_rank // states // (per_token * _BLOCK_STEP_TOKENS)) * _BLOCK_STEP_TOKENS

    def tier_chunk_bytes_rank(self, chunk_tokens: int) -> int:
        """What one chunk takes in one rank's tier: its tokens, and one snapshot of the state if the model has one."""
        return self.tier_bytes_per_token_rank * chunk_tokens + (self.state_bytes_per_sequence_rank or 0)
