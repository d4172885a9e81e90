"""Feed-forward blocks of each layer: dense, or a mixture of experts of which a token visits a few."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eactl.model.fields import MAX_HIDDEN, MAX_LAYERS, Fields
from eactl.model.schedule import layer_count

MAX_EXPERTS = 1 << 14

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k")
_DENSE = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
# Families whose block is in–activation–out; all others multiply by a gate as well.
_UNGATED = frozenset({
    "gpt2", "gptj", "gpt_bigcode", "gpt_neox", "falcon", "RefinedWeb", "RefinedWebModel", "starcoder2", "opt", "bloom",
    "mpt", "phi", "nemotron",
})  # fmt: skip
# Families with experts whose layout of layers and shared experts is known to be as read here.
_MOE = frozenset({
    "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe",
    "glm4_moe_lite", "glm_moe_dsa", "gpt_oss", "minimax_m2", "llama4_text", "llama4", "olmoe",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class FeedForward:
    """One layer's block: ``experts`` 0 is a dense block of width ``width``, else each expert has that width."""

    width: int
    gated: bool = True
    experts: int = 0
    experts_per_token: int = 0
    shared_width: int = 0

    def active_parameters(self, hidden: int) -> int:
        """Matrix elements one token passes through, the router included."""
        return hidden * self._matrices * self._width_seen(self.experts_per_token) + hidden * self.experts

    def total_parameters(self, hidden: int) -> int:
        """Matrix elements of the block, every expert counted."""
        return hidden * self._matrices * self._width_seen(self.experts) + hidden * self.experts

    def on_rank(self, tp: int) -> FeedForward:
        """One rank's slice: every matrix is cut along its width, as vLLM does without expert parallelism."""
        return replace(self, width=-(-self.width // tp), shared_width=-(-self.shared_width // tp))

    def _width_seen(self, experts: int) -> int:
        return self.width * experts + self.shared_width if self.experts else self.width

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2


def read_feed_forwards(fields: Fields, family: str) -> list[FeedForward]:
    """The block of every layer in order. Raises UsageError for a missing width and an unknown layout of experts."""
    count = layer_count(fields, family)
    gated = family not in _UNGATED
    if fields.has("block_configs") or fields.has("hybrid_override_pattern"):
        raise fields.unsupported("each layer has a feed-forward width of its own, which is not read")
    experts = fields.first(_EXPERTS, low=0, high=MAX_EXPERTS) or 0
    if experts < 2:
        return [FeedForward(_dense_width(fields), gated)] * count
    if family not in _MOE:
        raise fields.unsupported(f"how {family or 'this model'} lays out its experts is not known")
    per_token = fields.required(_PER_TOKEN, "the number of experts per token", high=experts)
    width = fields.integer("moe_intermediate_size", high=MAX_HIDDEN) or _dense_width(fields)
    sparse = FeedForward(width, gated, experts, per_token, _shared_width(fields, family, width))
    if all(_is_sparse(fields, family, position) for position in range(count)):
        return [sparse] * count
    dense_width = fields.integer("intermediate_size_mlp", high=MAX_HIDDEN) or _dense_width(fields)
    dense = FeedForward(dense_width, gated)
    return [sparse if _is_sparse(fields, family, position) else dense for position in range(count)]


def _dense_width(fields: Fields) -> int:
    width = fields.first(_DENSE, high=MAX_HIDDEN)
    if width is None and (hidden := fields.integer("n_embd", high=MAX_HIDDEN)) is not None:
        return 4 * hidden  # GPT-2's class says so when n_inner is null
    return width or fields.required(_DENSE, "the width of the feed-forward block", high=MAX_HIDDEN)


def _shared_width(fields: Fields, family: str, width: int) -> int:
    own = fields.first(("shared_expert_intermediate_size",), low=0, high=MAX_HIDDEN)
    if own is not None:
        return own
    if family.startswith("llama4"):
        return width  # one shared expert of the same width
    return (fields.integer("n_shared_experts", low=0, high=MAX_EXPERTS) or 0) * width


def _is_sparse(fields: Fields, family: str, position: int) -> bool:
    """Whether the layer at ``position`` has experts: the first few may be dense, or only every so many have them."""
    if position < (fields.integer("first_k_dense_replace", low=0, high=MAX_LAYERS) or 0):
        return False
    if position in (fields.integers("mlp_only_layers", low=0, high=MAX_LAYERS) or ()):
        return False
    if family.startswith("llama4") and (chosen := fields.integers("moe_layers", low=0, high=MAX_LAYERS)):
        return position in chosen
    step = fields.first(("decoder_sparse_step", "interleave_moe_layer_step"), low=1, high=MAX_LAYERS) or 1
    return (position + 1) % step == 0
