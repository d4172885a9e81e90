"""Layers that keep a state of fixed size instead of KV per token: Mamba, gated DeltaNet, KDA, short convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from eactl.model.fields import MAX_HEAD_DIM, MAX_HEADS, MAX_HIDDEN, Fields

_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class StateLayer:
    """The state of one layer over all ranks; it is split by head, with groups repeated where ranks outnumber them.

    ``conv_elements`` are the last inputs of the convolution, ``group_elements`` those of one Mamba-2 group,
    ``recurrent_elements`` the recurrent matrix; ``heads`` is what must divide over the ranks.
    """

    kind: str
    heads: int
    conv_elements: int
    recurrent_elements: int
    recurrent_bytes: int
    conv_bytes: int = 2
    groups: int = 0
    group_elements: int = 0

    def fits(self, tp: int) -> bool:
        """Whether ``tp`` ranks can share the state."""
        return self.heads % tp == 0 and self._groups(tp) % tp == 0 and self._conv_elements(tp) % tp == 0

    def bytes_on_rank(self, tp: int) -> int:
        """Bytes of this layer's state for one sequence on one of ``tp`` ranks that can share it."""
        return (self._conv_elements(tp) * self.conv_bytes + self.recurrent_elements * self.recurrent_bytes) // tp

    def _groups(self, tp: int) -> int:
        return self.groups if self.groups % tp == 0 else max(self.groups, tp)

    def _conv_elements(self, tp: int) -> int:
        return self.conv_elements + self._groups(tp) * self.group_elements


def read_state(fields: Fields, family: str, model_bytes: int) -> StateLayer | None:
    """The state layer a configuration describes, or None when it does not say enough to know its size.

    ``model_bytes`` is the size of the model's own data type, which states have unless a field or the family says
    otherwise (gated DeltaNet, KDA and Nemotron-H keep the recurrent part in float32).
    """
    named = fields.text("mamba_ssm_dtype") or fields.text("mamba_ssm_cache_dtype")
    given = _SIZES.get((named or "").removeprefix("torch."))
    for read in (_gated_deltanet, _kda, _mamba2, _mamba1, _short_conv):
        if (layer := read(fields, family, given, model_bytes)) is not None:
            return layer
    return None


def _gated_deltanet(fields: Fields, family: str, given: int | None, model_bytes: int) -> StateLayer | None:
    keys = fields.integer("linear_num_key_heads", high=MAX_HEADS)
    values = fields.integer("linear_num_value_heads", high=MAX_HEADS)
    key_dim = fields.integer("linear_key_head_dim", high=MAX_HEAD_DIM)
    value_dim = fields.integer("linear_value_head_dim", high=MAX_HEAD_DIM)
    kernel = fields.integer("linear_conv_kernel_dim", high=1024)
    if keys is None or values is None or key_dim is None or value_dim is None or kernel is None:
        return None
    channels = 2 * keys * key_dim + values * value_dim
    return StateLayer(
        "gated_deltanet", values, channels * (kernel - 1), values * key_dim * value_dim, given or 4, model_bytes
    )


def _kda(fields: Fields, family: str, given: int | None, model_bytes: int) -> StateLayer | None:
    part = fields.nested("linear_attn_config")
    if part is None:
        return None
    heads = part.integer("num_heads", high=MAX_HEADS)
    dim = part.integer("head_dim", high=MAX_HEAD_DIM)
    kernel = part.integer("short_conv_kernel_size", high=1024)
    if heads is None or dim is None or kernel is None:
        return None
    return StateLayer("kda", heads, 3 * heads * dim * (kernel - 1), heads * dim * dim, given or 4, model_bytes)


def _mamba2(fields: Fields, family: str, given: int | None, model_bytes: int) -> StateLayer | None:
    heads = fields.first(("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"), high=MAX_HEADS)
    dim = fields.first(("mamba_head_dim", "mamba_d_head", "mamba_headdim"), high=MAX_HEAD_DIM)
    groups = fields.first(("n_groups", "mamba_n_groups", "mamba_ngroups"), high=MAX_HEADS)
    state = fields.first(("ssm_state_size", "mamba_d_state"), high=MAX_HEAD_DIM)
    kernel = fields.first(("conv_kernel", "mamba_d_conv"), high=1024)
    if heads is None or dim is None or groups is None or state is None or kernel is None:
        return None
    recurrent = given or (4 if family == "nemotron_h" else model_bytes)
    steps = kernel - 1
    return StateLayer(
        "mamba2", heads, heads * dim * steps, heads * dim * state, recurrent, model_bytes, groups, 2 * state * steps
    )


def _mamba1(fields: Fields, family: str, given: int | None, model_bytes: int) -> StateLayer | None:
    expand = fields.integer("mamba_expand", high=64)
    hidden = fields.integer("hidden_size", high=MAX_HIDDEN)
    state = fields.integer("mamba_d_state", high=MAX_HEAD_DIM)
    kernel = fields.integer("mamba_d_conv", high=1024)
    if family != "jamba" or expand is None or hidden is None or state is None or kernel is None:
        return None
    inner = expand * hidden
    return StateLayer("mamba1", inner, inner * (kernel - 1), inner * state, given or model_bytes, model_bytes)


def _short_conv(fields: Fields, family: str, given: int | None, model_bytes: int) -> StateLayer | None:
    kernel = fields.integer("conv_L_cache", high=1024)
    channels = fields.first(("conv_dim", "hidden_size"), high=MAX_HIDDEN)
    if kernel is None or channels is None:
        return None
    return StateLayer("short_conv", channels, channels * (kernel - 1), 0, 0, model_bytes)
