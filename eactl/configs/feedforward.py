"""Feed-forward fields of bundled shapes: the bundled table itself holds only what the KV cache depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from eactl.configs.bundled import find_bundled
from eactl.configs.resolve import ResolvedModel


def complete_config(model: ResolvedModel) -> dict[str, object]:
    """The model's configuration, for a bundled one with its feed-forward fields where they are known."""
    if model.origin != "bundled":
        return model.config
    found = find_bundled(model.name)
    return {**model.config, **(_table().get(found[1].name, {}) if found else {})}


@cache
def _table() -> Mapping[str, Mapping[str, object]]:
    document = json.loads(files(__package__).joinpath("feedforward.json").read_bytes())
    models: Mapping[str, Mapping[str, object]] = document["models"]
    return models
