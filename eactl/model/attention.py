"""What a model keeps per token, layer by layer, before any tensor parallelism or data type is chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from eactl.model.families import KNOWN, MULTI_HEAD, refuse_unknown_attention, refuse_without_kv
from eactl.model.fields import MAX_HEAD_DIM, MAX_HEADS, MAX_HIDDEN, MAX_LAYERS, MAX_WINDOW, Fields
from eactl.model.kvdtype import KvDtype, parse_kv_dtype
from eactl.model.schedule import (
    BOTH,
    CHUNKED,
    FULL,
    LAYERS,
    NONE,
    SLIDING,
    STATE,
    layer_count,
    layer_kinds,
    mtp_count,
    window_tokens,
)
from eactl.model.state import StateLayer, read_state

MLA, INDEXER = "mla", "mla_indexer"

_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = (
    "n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups", "n_kv_heads",
)  # fmt: skip
_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
_HEAD_DIM = ("head_dim", "hidden_size_per_head", "attention_head_dim")
_MAX_NESTING = 4
_INNER = ("text_config", "llm_config", "language_config", "thinker_config")

# google/gemma-3-4b-it leaves these to its class; every larger Gemma 3 states its own.
_GEMMA3_4B = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}


@dataclass(frozen=True)
class KvLayer:
    """One layer's KV: ``kv_heads`` over all ranks, each with a key of ``k_dim`` and a value of ``v_dim`` elements.

    An MLA layer is one head with a latent of ``k_dim`` and no value; an indexer has one 8-bit key and its scales.
    """

    kind: str
    kv_heads: int
    k_dim: int
    v_dim: int
    query_heads: int
    window_tokens: int | None = None

    @property
    def is_replicated(self) -> bool:
        """Whether every rank holds the same bytes, whatever the TP."""
        return self.kind in (MLA, INDEXER)


@dataclass(frozen=True)
class ModelShape:
    """All that the KV footprint depends on. ``layers`` pairs each different layer with its count, in layer order."""

    family: str
    layers: tuple[tuple[KvLayer, int], ...]
    query_heads: int
    dtype: KvDtype | None  # the model's own; None when its configuration does not say
    kv_dtype: KvDtype | None  # what the checkpoint asks for, if it does
    state_layers: int = 0
    state: StateLayer | None = None
    mtp_layers: int = 0
    mtp: tuple[KvLayer, ...] | None = ()  # KV of one layer of multi-token prediction; None when it is not known
    is_known_family: bool = True
    assumes_multi_head: bool = False  # no field gives the KV heads, and the family usually has one


def read_shape(config: Mapping[str, object], *, model: str | None = None) -> ModelShape:
    """The shape that a config.json's object describes.

    Raises UsageError for a model without a KV cache per token, an unknown attention, and missing or absurd fields.
    """
    root = Fields(config, f"model {model}" if model else "model config")
    refuse_without_kv(root)
    fields = text_fields(root)
    if fields is not root:
        refuse_without_kv(fields)
    family = fields.text("model_type") or root.text("model_type") or ""
    refuse_unknown_attention(fields, family)
    if family == "gemma3_text" and fields.values.get("hidden_size") == 2560 and not fields.has("num_attention_heads"):
        fields = replace(fields, values={**_GEMMA3_4B, **fields.values})

    count = layer_count(fields, family)
    kinds = layer_kinds(fields, family, count)
    reader = _LayerReader(fields, family, count)
    per_layer = [reader.read(position, kind) for position, kind in enumerate(kinds)]
    flat = [layer for layers in per_layer for layer in layers]
    if not flat:
        raise fields.unsupported("no layer of this model keeps KV per token, so there is nothing to offload")
    dtype = _model_dtype(root, fields)
    states = sum(kind in (STATE, BOTH) for kind in kinds)
    full = next((layers for layers, kind in zip(per_layer, kinds, strict=True) if kind == FULL), ())
    slides = any(layer.window_tokens for layer in flat)
    return ModelShape(
        family=family,
        layers=tuple(Counter(flat).items()),
        query_heads=reader.query_heads,
        dtype=dtype,
        kv_dtype=_checkpoint_kv_dtype(root, fields),
        state_layers=states,
        state=read_state(fields, family, 4 if dtype and dtype.name == "float32" else 2) if states else None,
        mtp_layers=mtp_count(fields),
        mtp=None if slides else reader.with_indexer(full),
        is_known_family=family in KNOWN,
        assumes_multi_head=reader.assumes_multi_head,
    )


class _LayerReader:
    """Heads and dimensions of each layer; the fields that hold for the whole model are read once."""

    def __init__(self, fields: Fields, family: str, count: int) -> None:
        self.fields = fields
        self.family = family
        self.query_heads = fields.required(_HEADS, "the number of query heads", high=MAX_HEADS)
        self.query_heads_by_layer = self._by_layer("num_attention_heads_per_layer", count)
        self.kv_heads_by_layer = self._by_layer("num_key_value_heads_per_layer", count)
        self.assumes_multi_head = False
        self.window = window_tokens(fields)
        self.latent = None if family == "minicpm3" else fields.integer("kv_lora_rank", high=MAX_HIDDEN)
        self.indexers = self._indexers(count)

    def read(self, position: int, kind: str) -> tuple[KvLayer, ...]:
        """The KV that the layer at ``position`` keeps; empty for a layer without KV per token."""
        if kind in (NONE, STATE):
            return ()
        if self.latent is not None:
            if kind != FULL:
                raise self.fields.unsupported(f"unknown attention: MLA in a {kind} layer")
            return self._mla(self.latent, has_indexer=self.indexers is not None and self.indexers[position])
        layer = self._grouped(position, FULL if kind == BOTH else kind)
        if layer.query_heads % layer.kv_heads:
            raise self.fields.wrong(
                f"{layer.query_heads} query heads cannot share {layer.kv_heads} KV heads at layer {position}"
            )
        return (layer,)

    def with_indexer(self, layers: tuple[KvLayer, ...]) -> tuple[KvLayer, ...]:
        """The KV of a layer of multi-token prediction, made like ``layers`` but never without its indexer."""
        if self.latent is not None and self.indexers is not None:
            return self._mla(self.latent, has_indexer=True)
        return layers

    def _mla(self, latent: int, *, has_indexer: bool) -> tuple[KvLayer, ...]:
        rope = self.fields.required(("qk_rope_head_dim",), "the size of the rotary key", high=MAX_HEAD_DIM)
        layer = KvLayer(MLA, 1, latent + rope, 0, self.query_heads)
        if not has_indexer:
            return (layer,)
        dim = self.fields.required(("index_head_dim",), "the size of an indexer key", high=MAX_HEAD_DIM)
        if dim % 128:
            raise self.fields.unsupported(f"index_head_dim is {dim}, and scales are kept for groups of 128")
        return (layer, KvLayer(INDEXER, 1, dim, 0, self.query_heads))

    def _indexers(self, count: int) -> list[bool] | None:
        """Which layers of a sparse MLA model build an indexer of their own; the others reuse the one before."""
        fields = self.fields
        if not fields.has("index_topk"):
            return None
        if self.latent is None:
            raise fields.unsupported("unsupported config: index_topk without MLA")
        if (types := fields.items("indexer_types")) is not None:
            if len(types) < count or not set(map(str, types)) <= {"full", "shared"}:
                raise fields.wrong(f"indexer_types is not one of full or shared for each of {count} layers")
            return [kind == "full" for kind in types[:count]]
        if (pattern := fields.text("index_topk_pattern")) is not None:
            return [i >= len(pattern) or pattern[i] != "S" for i in range(count)]
        every = fields.integer("index_topk_freq", high=MAX_LAYERS) or 1
        offset = fields.integer("index_skip_topk_offset", low=0, high=MAX_LAYERS)
        offset = 2 if offset is None else offset
        return [max(i - offset + 1, 0) % every == 0 for i in range(count)]

    def _grouped(self, position: int, kind: str) -> KvLayer:
        """A layer of multi-head, grouped-query or multi-query attention."""
        heads, kv_heads, k_dim, v_dim = self._whole_model(position)
        fields = self.fields
        is_local = kind in (SLIDING, CHUNKED)
        if is_local and fields.has("swa_num_key_value_heads"):  # MiMo-V2
            heads = fields.integer("swa_num_attention_heads", high=MAX_HEADS) or heads
            kv_heads = fields.integer("swa_num_key_value_heads", high=MAX_HEADS) or kv_heads
            k_dim = fields.integer("swa_head_dim", high=MAX_HEAD_DIM) or k_dim
            v_dim = fields.integer("swa_v_head_dim", high=MAX_HEAD_DIM) or k_dim
        if not is_local and (self.family.startswith("gemma4") or fields.has("global_head_dim")):
            k_dim = v_dim = fields.required(("global_head_dim",), "the head size of full layers", high=MAX_HEAD_DIM)
            if fields.flag("attention_k_eq_v") is not False:  # K equal to V still fills both, so nothing is halved
                kv_heads = fields.integer("num_global_key_value_heads", high=MAX_HEADS) or kv_heads
        if (other := fields.nested("attention_other_setting")) is not None and kind == SLIDING:  # Step 3.5
            heads = other.integer("num_attention_heads", high=MAX_HEADS) or heads
            kv_heads = other.integer("num_attention_groups", high=MAX_HEADS) or kv_heads
            k_dim = v_dim = other.integer("head_dim", high=MAX_HEAD_DIM) or k_dim
        if (own := self._own(position)) is not None:
            kv_heads = own.integer("num_key_value_heads", high=MAX_HEADS) or kv_heads
            k_dim = v_dim = own.integer("head_dim", high=MAX_HEAD_DIM) or k_dim
        window = None
        if kind == SLIDING:
            window = self.window
        elif kind == CHUNKED:
            window = fields.required(("attention_chunk_size",), "the attention chunk", high=MAX_WINDOW)
        return KvLayer(kind, kv_heads, k_dim, v_dim, heads, window)

    def _whole_model(self, position: int) -> tuple[int, int, int, int]:
        """(query heads, KV heads, key size, value size) of a layer with no settings of its own."""
        fields = self.fields
        heads = self.query_heads_by_layer[position] if self.query_heads_by_layer else self.query_heads
        kv_heads = self.kv_heads_by_layer[position] if self.kv_heads_by_layer else self._kv_heads(position)
        if self.family == "minicpm3":  # an MLA model that engines run with full heads, V padded to K's size
            nope = fields.required(("qk_nope_head_dim",), "the size of the plain key", high=MAX_HEAD_DIM)
            dim = nope + fields.required(("qk_rope_head_dim",), "the size of the rotary key", high=MAX_HEAD_DIM)
            return heads, heads, dim, dim
        k_dim = fields.first(_HEAD_DIM, low=0, high=MAX_HEAD_DIM)
        if not k_dim:
            hidden = fields.required(_HIDDEN, "head_dim, and the hidden size to derive it from,", high=MAX_HIDDEN)
            if hidden % self.query_heads:
                raise fields.wrong(f"head_dim is missing, and {hidden} is not a multiple of {self.query_heads} heads")
            k_dim = hidden // self.query_heads
        return heads, kv_heads, k_dim, fields.integer("v_head_dim", low=0, high=MAX_HEAD_DIM) or k_dim

    def _kv_heads(self, position: int) -> int:
        fields, family = self.fields, self.family
        if (blocks := fields.items("block_configs")) is not None:  # Nemotron-NAS
            attention = fields.within(blocks[position], f"block_configs[{position}]").nested("attention")
            group = attention.integer("n_heads_in_group", high=MAX_HEADS) if attention else None
            if group is None or self.query_heads % group:
                raise fields.wrong(f"block_configs[{position}] does not group its {self.query_heads} heads evenly")
            return self.query_heads // group
        if family in ("falcon", "RefinedWeb", "RefinedWebModel") and not fields.flag("new_decoder_architecture"):
            if fields.flag("multi_query"):
                return 1
        elif family == "gpt_bigcode":
            if fields.flag("multi_query") is None:
                raise fields.wrong("multi_query is missing")
            return 1 if fields.flag("multi_query") else self.query_heads
        elif family == "chatglm" and fields.flag("multi_query_attention") is False:
            return self.query_heads
        elif (inner := fields.nested("attn_config")) is not None:  # MPT, DBRX
            if inner.text("attn_type") == "multiquery_attention":
                return 1
            return inner.integer("kv_n_heads", high=MAX_HEADS) or self.query_heads
        given = fields.first(_KV_HEADS, high=MAX_HEADS)
        self.assumes_multi_head = given is None and family not in MULTI_HEAD
        return given or self.query_heads

    def _own(self, position: int) -> Fields | None:
        """Overrides that a configuration may hold for single layers."""
        overrides = self.fields.nested("per_layer_config")
        return None if overrides is None else overrides.nested(str(position))

    def _by_layer(self, name: str, count: int) -> list[int] | None:
        values = self.fields.integers(name, low=1, high=MAX_HEADS)
        if values is not None and len(values) < count:
            raise self.fields.wrong(f"{name} lists {len(values)} layers and the model has {count}")
        return values


def text_fields(root: Fields) -> Fields:
    """The part that describes the language model: configurations of multimodal models nest it, some of them twice."""
    fields = root
    for _ in range(_MAX_NESTING):
        parts = (fields.nested(name) for name in _INNER)
        inner = next((p for p in parts if p is not None and (_says_layers(p) or not _says_layers(fields))), None)
        if inner is None:
            return fields
        fields = inner
    raise root.wrong(f"the language model is nested more than {_MAX_NESTING} levels deep")


def _says_layers(fields: Fields) -> bool:
    return any(fields.has(name) for name in (*LAYERS, "hybrid_override_pattern", "layers_block_type"))


def _model_dtype(root: Fields, fields: Fields) -> KvDtype | None:
    for part in (fields, root):
        name = part.text("dtype") or part.text("torch_dtype")
        if name:
            name = name.removeprefix("torch.")
            return KvDtype(name) if name in ("bfloat16", "float16", "float32") else None
    return None


def _checkpoint_kv_dtype(root: Fields, fields: Fields) -> KvDtype | None:
    """The KV data type that a quantised checkpoint asks for; its ``quantization_config`` itself is about weights."""
    for part in (root, fields):
        quantisation = part.nested("quantization_config")
        if quantisation is None:
            continue
        for place in (quantisation, quantisation.nested("quantization")):
            scheme = place.values.get("kv_cache_scheme") or place.values.get("kv_cache_quant_algo") if place else None
            if isinstance(scheme, Mapping) and scheme.get("type") == "float":
                scheme = "fp8" if scheme.get("num_bits") == 8 else "nvfp4" if scheme.get("num_bits") == 4 else None
            if isinstance(scheme, str) and scheme.lower() in ("fp8", "nvfp4"):
                return parse_kv_dtype(scheme)
    return None
