"""The bundled table of popular shapes: only the fields that the KV arithmetic needs, each with where it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

# Suffixes of names that leave the attention's shape as it is: tuning, quantisation of weights, packaging, dates.
_VARIANT = re.compile(
    r"[-_](instruct|it|chat|base|thinking|reasoning|hf|pt|qat|original|latest|preview|fp8(-dynamic|-kv|-block)?|bf16"
    r"|awq|gptq|int[48]|w[48]a(8|16)|bnb|[48]bit|nvfp4(a16)?|fp4|mxfp4|marlin|q4_0|unquantized|gguf|mlx|\d{4}|v0\.\d)$"
)
_QUANTISED = re.compile(r"[-_](fp8|nvfp4|fp4|awq|gptq|int4|int8|w4a|w8a)")


@dataclass(frozen=True)
class BundledModel:
    """One shape: ``names`` are other models that have it, ``is_checked`` whether it was compared with their files."""

    name: str
    names: tuple[str, ...]
    config: Mapping[str, object]
    source: str
    is_checked: bool


@cache
def bundled() -> tuple[BundledModel, ...]:
    """The table, in its order."""
    document = json.loads(files(__package__).joinpath("models.json").read_bytes())
    return tuple(
        BundledModel(
            name=entry["name"],
            names=tuple(entry.get("names", ())),
            config=entry["config"],
            source=document["sources"][entry["source"]],
            is_checked=entry["source"] == "checked",
        )
        for entry in document["models"]
    )


def find_bundled(spec: str) -> tuple[str, BundledModel] | None:
    """The name in the table that ``spec`` means, and its entry; None if there is none.

    Case does not matter, nor do an organisation before the name and suffixes of variants (-Instruct, -FP8, -2507).
    """
    index = _index()
    key = spec.rsplit("/", 1)[-1].lower()
    while key not in index:
        shorter = _VARIANT.sub("", key)
        if shorter == key:
            return None
        key = shorter
    return index[key]


def is_quantised_name(spec: str) -> bool:
    """Whether a model's name says that its weights are quantised; such a checkpoint may ask for quantised KV too."""
    return _QUANTISED.search(spec.lower()) is not None


def near_names(spec: str) -> list[str]:
    """Up to three bundled names that look like ``spec``, closest first."""
    key = spec.rsplit("/", 1)[-1].lower()
    return [_index()[match][0] for match in get_close_matches(key, _index(), n=3, cutoff=0.6)]


@cache
def _index() -> Mapping[str, tuple[str, BundledModel]]:
    return {name.lower(): (name, entry) for entry in bundled() for name in (entry.name, *entry.names)}
