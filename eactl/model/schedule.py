"""Which of a model's layers hold KV, a state or nothing, from any of the ways in which configurations say it."""

from __future__ import annotations

from collections.abc import Callable

from eactl.model.fields import MAX_LAYERS, MAX_WINDOW, Fields, shown

FULL, SLIDING, CHUNKED, STATE, BOTH, NONE = "full", "sliding", "chunked", "state", "full+state", "none"

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")

_NAMED = {
    "full_attention": FULL, "attention": FULL, "sliding_attention": SLIDING, "chunked_attention": CHUNKED,
    "linear_attention": STATE, "mamba": STATE, "conv": STATE, "hybrid": BOTH, "mlp": NONE, "moe": NONE,
}  # fmt: skip
_LETTERS = {"M": STATE, "*": FULL, "-": NONE, "E": NONE}

# Families whose configuration may give a window and leave the layers that slide to the implementation.
_ALL_SLIDE = frozenset({"mistral", "mixtral", "phi3", "phi3_v", "phimoe", "starcoder2"})
_EVEN_SLIDE = frozenset({"gemma2", "gpt_oss"})
_EVERY_NTH_FULL = {
    "gemma3": 6, "gemma3_text": 6, "gemma4": 6, "gemma4_text": 6, "gemma4_unified": 6, "gemma4_unified_text": 6,
    "gemma3n": 5, "gemma3n_text": 5, "cohere2": 4, "cohere2_vision": 4,
}  # fmt: skip
_TOP_SLIDE = frozenset({"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe"})
_PARALLEL_STATE = frozenset({"falcon_h1"})  # attention and Mamba side by side in every layer


def layer_count(fields: Fields, family: str) -> int:
    """Attention layers in the decoder stack. Raises UsageError when no field says so."""
    if family.startswith("longcat") and fields.has("num_layers"):
        return 2 * fields.required(("num_layers",), "the number of layers", high=MAX_LAYERS)  # two attentions each
    if (pattern := fields.text("hybrid_override_pattern")) and not any(fields.has(name) for name in LAYERS):
        return len(pattern)
    if (names := fields.items("layers_block_type")) and not any(fields.has(name) for name in LAYERS):
        return len(names)
    return fields.required(LAYERS, "the number of layers", high=MAX_LAYERS)


def mtp_count(fields: Fields) -> int:
    """Layers of multi-token prediction that the checkpoint carries; they hold KV only when the engine uses them."""
    return fields.first(MTP_LAYERS, low=0, high=MAX_LAYERS) or 0


def window_tokens(fields: Fields) -> int | None:
    """The sliding window; None where it is absent, switched off (also by 0 or −1) or no shorter than the context."""
    if fields.flag("use_sliding_window") is False:
        return None
    window = fields.first(("sliding_window", "sliding_window_size"), low=-1, high=MAX_WINDOW) or 0
    longest = fields.integer("max_position_embeddings", high=MAX_WINDOW) or MAX_WINDOW + 1
    return window if 0 < window < longest else None


def layer_kinds(fields: Fields, family: str, count: int) -> list[str]:
    """The kind of each of ``count`` layers: full, sliding, chunked, state, full+state or none.

    Raises UsageError for a schedule of the wrong length, an unknown kind, or a window without a schedule.
    """
    for name, read in _WRITTEN.items():
        if fields.has(name):
            kinds = _fit(fields, name, read(fields, name), count)
            break
    else:
        kinds = _derived(fields, family, count)
    if family.startswith("gemma4") and kinds[-1] == SLIDING:
        kinds[-1] = FULL  # the implementation forces it
    if window_tokens(fields) is None and SLIDING in kinds:
        if not any(fields.has(name) for name in ("sliding_window", "sliding_window_size")):
            raise fields.wrong("some layers slide, but no sliding_window says how far")
        kinds = [FULL if kind == SLIDING else kind for kind in kinds]
    return _drop_shared(fields, kinds)


def _fit(fields: Fields, name: str, kinds: list[str], count: int) -> list[str]:
    if len(kinds) == count + mtp_count(fields):
        kinds = kinds[:count]  # some files list the layers of multi-token prediction too
    if len(kinds) != count:
        raise fields.wrong(f"{name} lists {len(kinds)} layers and the model has {count}")
    return kinds


def _drop_shared(fields: Fields, kinds: list[str]) -> list[str]:
    """The last ``num_kv_shared_layers`` layers read the KV of earlier ones and store none."""
    shared = fields.integer("num_kv_shared_layers", low=0, high=MAX_LAYERS) or 0
    if shared >= len(kinds):
        raise fields.wrong(f"num_kv_shared_layers is {shared} of {len(kinds)} layers, so none would hold KV")
    return kinds[: len(kinds) - shared] + [NONE] * shared


def _names(fields: Fields, name: str) -> list[str]:
    kinds = []
    for position, value in enumerate(fields.items(name) or ()):
        kind = _NAMED.get(value) if isinstance(value, str) else None
        if kind is None:
            raise fields.unsupported(f"unknown attention: {name}[{position}] is {shown(value)}")
        kinds.append(kind)
    return kinds


def _letters(fields: Fields, name: str) -> list[str]:
    text = fields.text(name) or ""
    for position, letter in enumerate(text):
        if letter not in _LETTERS:
            raise fields.unsupported(f"unknown attention: {name} has {letter!r} at layer {position}")
    return [_LETTERS[letter] for letter in text]


def _zero_is(zero: str, one: str) -> Callable[[Fields, str], list[str]]:
    def read(fields: Fields, name: str) -> list[str]:
        return [one if bit else zero for bit in fields.integers(name, low=0, high=1) or ()]

    return read


def _kda(fields: Fields, name: str) -> list[str]:
    """Kimi Linear: two lists of layer numbers that start at 1."""
    part = fields.nested(name)
    assert part is not None  # noqa: S101 - the caller saw the field
    full = part.integers("full_attn_layers", low=1, high=MAX_LAYERS) or []
    state = part.integers("kda_layers", low=1, high=MAX_LAYERS) or []
    if sorted(full + state) != list(range(1, len(full) + len(state) + 1)):
        raise part.wrong("full_attn_layers and kda_layers do not name every layer once")
    return [FULL if number in set(full) else STATE for number in range(1, len(full) + len(state) + 1)]


def _blocks(fields: Fields, name: str) -> list[str]:
    """Nemotron-NAS: one object per block, whose attention may be left out or replaced by a linear layer."""
    kinds = []
    for position, value in enumerate(fields.items(name) or ()):
        attention = fields.within(value, f"{name}[{position}]").nested("attention")
        if attention is None:
            raise fields.unsupported(f"unknown attention: {name}[{position}] has no attention object")
        if attention.has("window_length") or attention.has("sparsify"):
            raise attention.unsupported("unknown attention: a block with a window or sparsity of its own")
        skipped = attention.flag("no_op") or attention.flag("replace_with_linear")
        kinds.append(NONE if skipped else FULL)
    return kinds


_WRITTEN: dict[str, Callable[[Fields, str], list[str]]] = {
    "block_configs": _blocks,
    "layer_types": _names,
    "layers_block_type": _names,
    "hybrid_override_pattern": _letters,
    "linear_attn_config": _kda,
    "attn_type_list": _zero_is(STATE, FULL),  # MiniMax
    "hybrid_layer_pattern": _zero_is(FULL, SLIDING),  # MiMo-V2
}


def _derived(fields: Fields, family: str, count: int) -> list[str]:
    """Schedules that are given by a rule instead of a list."""
    numbers = range(count)
    if (period := fields.integer("attn_layer_period", high=MAX_LAYERS)) is not None:  # Jamba
        offset = fields.integer("attn_layer_offset", low=0, high=MAX_LAYERS) or 0
        return [FULL if i % period == offset else STATE for i in numbers]
    if (indices := fields.integers("attn_layer_indices", low=0, high=count - 1)) is not None:  # Bamba
        return [FULL if i in set(indices) else STATE for i in numbers]
    if (interval := fields.integer("full_attention_interval", high=MAX_LAYERS)) is not None:  # Qwen3-Next
        return [STATE if (i + 1) % interval else FULL for i in numbers]
    if family in _PARALLEL_STATE:
        return [BOTH] * count
    if fields.has("attention_chunk_size") and not family.startswith("mimo_v2"):  # MiMo-V2 sets it and does not use it
        return _chunked(fields, family, count)
    return [FULL] * count if window_tokens(fields) is None else _sliding(fields, family, count)


def _chunked(fields: Fields, family: str, count: int) -> list[str]:
    """Llama 4: layers with rotary positions attend within chunks, the ones without attend to everything."""
    if not family.startswith("llama4"):
        raise fields.unsupported(f"unknown attention: attention_chunk_size in model type {family or '(none)'!r}")
    rotary = fields.integers("no_rope_layers", low=0, high=1)
    if not rotary:
        interval = fields.integer("no_rope_layer_interval", high=MAX_LAYERS) or 4
        rotary = [int((i + 1) % interval != 0) for i in range(count)]
    return _fit(fields, "no_rope_layers", [CHUNKED if bit else FULL for bit in rotary], count)


def _sliding(fields: Fields, family: str, count: int) -> list[str]:
    """A window is given and no list: a pattern or the family says which layers slide."""
    numbers = range(count)
    for name in ("sliding_window_pattern", "_sliding_window_pattern"):
        if isinstance(fields.values.get(name), str):
            raise fields.unsupported(f"unknown attention: {name} is a pattern of letters and layer_types is missing")
    pattern = fields.first(("sliding_window_pattern", "_sliding_window_pattern"), high=MAX_LAYERS)
    pattern = pattern or _EVERY_NTH_FULL.get(family)
    if pattern is not None:
        return [SLIDING if (i + 1) % pattern else FULL for i in numbers]
    if family in _EVEN_SLIDE:
        return [FULL if i % 2 else SLIDING for i in numbers]
    if family in _TOP_SLIDE:
        if fields.flag("use_sliding_window") is None:
            return [FULL] * count  # in these families the window is off unless it is switched on
        first = fields.integer("max_window_layers", low=0, high=MAX_LAYERS)
        if first is None:
            raise fields.wrong("use_sliding_window is true and max_window_layers is missing")
        return [SLIDING if i >= first else FULL for i in numbers]
    if family in _ALL_SLIDE:
        return [SLIDING] * count
    raise fields.unsupported("unknown attention: a sliding_window is given and nothing says which layers slide")
