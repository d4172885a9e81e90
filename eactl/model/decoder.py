"""What one prompt token costs to compute: matrices of each decoder layer, whole and on one tensor-parallel rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from eactl.errors import UsageError
from eactl.model.attention import INDEXER, MLA, KvLayer, ModelShape, read_shape, text_fields
from eactl.model.feedforward import FeedForward, read_feed_forwards
from eactl.model.fields import MAX_HEAD_DIM, MAX_HIDDEN, Fields

_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
_HINT = "measure on the running server (--method server), or give --active-params or --us-per-token"


@dataclass(frozen=True, slots=True)
class Latent:
    """The projections of multi-head latent attention; ``q_rank`` None means queries are not compressed."""

    q_rank: int | None
    kv_rank: int
    rope_dim: int
    nope_dim: int


@dataclass(frozen=True, slots=True)
class AttentionBlock:
    """One layer's attention. For MLA, ``k_dim`` and ``v_dim`` are those of the expanded heads that prefill uses."""

    query_heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    window_tokens: int | None = None
    latent: Latent | None = None

    def parameters(self, hidden: int) -> int:
        """Elements of the projections in and out."""
        out = self.query_heads * self.v_dim * hidden
        if self.latent is None:
            return hidden * (self.query_heads * self.k_dim + self.kv_heads * (self.k_dim + self.v_dim)) + out
        latent = self.latent
        heads_in = self.query_heads * self.k_dim
        queries = hidden * heads_in if latent.q_rank is None else latent.q_rank * (hidden + heads_in)
        down = hidden * (latent.kv_rank + latent.rope_dim)
        up = latent.kv_rank * self.query_heads * (latent.nope_dim + self.v_dim)
        return queries + down + up + out

    def pair_flop(self) -> int:
        """FLOP for one query token looking at one key token, over all heads: 2·d for QKᵀ and 2·d for PV."""
        return 2 * self.query_heads * (self.k_dim + self.v_dim)

    def on_rank(self, tp: int) -> AttentionBlock:
        """This rank's share of the heads; KV heads are copied when there are fewer than ranks (Eq. 1)."""
        kv_heads = self.query_heads // tp if self.latent else max(1, self.kv_heads // tp)
        return replace(self, query_heads=self.query_heads // tp, kv_heads=kv_heads)


@dataclass(frozen=True, slots=True)
class Decoder:
    """All decoder layers: attention and feed-forward blocks, each with how many layers have it."""

    hidden: int
    layers: int
    attention: tuple[tuple[AttentionBlock, int], ...]
    feed_forward: tuple[tuple[FeedForward, int], ...]
    notes: tuple[str, ...] = ()

    @property
    def active_parameters(self) -> int:
        """Matrix elements that one prompt token passes through in the layers (embeddings and the head do not count)."""
        attention = sum(count * block.parameters(self.hidden) for block, count in self.attention)
        return attention + sum(count * block.active_parameters(self.hidden) for block, count in self.feed_forward)

    @property
    def total_parameters(self) -> int:
        """Matrix elements of all layers, every expert counted."""
        attention = sum(count * block.parameters(self.hidden) for block, count in self.attention)
        return attention + sum(count * block.total_parameters(self.hidden) for block, count in self.feed_forward)

    @property
    def linear_flop_per_token(self) -> int:
        """2 FLOP per active element. Attention inside windows (a few percent) is left out: this is a lower bound."""
        return 2 * self.active_parameters

    @property
    def quadratic_flop_per_token2(self) -> float:
        """Attention of layers without a window: n prompt tokens see n²/2 pairs of query and key."""
        return sum(count * block.pair_flop() / 2 for block, count in self.attention if block.window_tokens is None)

    def on_rank(self, tp: int) -> Decoder:
        """The shapes that one of ``tp`` ranks computes. The caller has checked that the heads can be shared."""
        return replace(
            self,
            attention=tuple((block.on_rank(tp), count) for block, count in self.attention),
            feed_forward=tuple((block.on_rank(tp), count) for block, count in self.feed_forward),
        )


def read_decoder(config: Mapping[str, object], *, model: str | None = None) -> Decoder:
    """The decoder that a config.json's object describes.

    Raises UsageError for a missing field and for layers whose arithmetic is not known (state layers, shared KV).
    """
    shape = read_shape(config, model=model)
    fields = text_fields(Fields(config, f"model {model}" if model else "model config"))
    layers, notes = _attention(shape, fields)
    count = sum(n for _, n in layers)
    if shape.state_layers:
        raise UsageError(
            f"{shape.state_layers} of its layers keep a state instead of KV, and what they compute is not modelled",
            where=fields.where, hint=_HINT,
        )  # fmt: skip
    feed_forwards = read_feed_forwards(fields, shape.family)
    if len(feed_forwards) != count:
        raise UsageError(
            f"only {count} of {len(feed_forwards)} layers have KV of their own", where=fields.where, hint=_HINT
        )
    hidden = fields.required(_HIDDEN, "the hidden size", high=MAX_HIDDEN)
    return Decoder(hidden, count, tuple(layers), tuple(Counter(feed_forwards).items()), notes)


def _attention(shape: ModelShape, fields: Fields) -> tuple[list[tuple[AttentionBlock, int]], tuple[str, ...]]:
    blocks = [(_block(layer, fields), count) for layer, count in shape.layers if layer.kind != INDEXER]
    if any(layer.kind == INDEXER for layer, _ in shape.layers):
        return blocks, ("sparse attention is priced as dense: prefill of long prompts is cheaper than this",)
    return blocks, ()


def _block(layer: KvLayer, fields: Fields) -> AttentionBlock:
    if layer.kind != MLA:
        return AttentionBlock(layer.query_heads, layer.kv_heads, layer.k_dim, layer.v_dim, layer.window_tokens)
    kv_rank = fields.required(("kv_lora_rank",), "the rank of the KV latent", high=MAX_HIDDEN)
    rope = fields.required(("qk_rope_head_dim",), "the size of the rotary key", high=MAX_HEAD_DIM)
    nope = fields.required(("qk_nope_head_dim",), "the size of the plain key", high=MAX_HEAD_DIM)
    value = fields.required(("v_head_dim",), "the size of a value", high=MAX_HEAD_DIM)
    latent = Latent(fields.integer("q_lora_rank", high=MAX_HIDDEN), kv_rank, rope, nope)
    return AttentionBlock(layer.query_heads, layer.query_heads, nope + rope, value, None, latent)
