"""The installed vLLM and LMCache have what our connectors take from them."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from tests.engine import interfaces
from tests.engine.stack import KEEPS_TOKENS


def folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def test_every_class_member_and_argument_is_there() -> None:
    # The published stack (vLLM 0.13) has no multi-process connector.
    assert interfaces.missing(folder("vllm"), folder("lmcache"), multi_process=KEEPS_TOKENS) == []


def test_what_is_not_there_would_be_found() -> None:
    engine = replace(interfaces.VLLM[0], members={"start_load_kv": ("other",), "no_such_hook": None})
    assert list(interfaces._problems(folder("vllm"), engine)) == [
        "KVConnectorBase_V1.start_load_kv takes ('forward_context',), not ('other',)",
        "KVConnectorBase_V1 has no no_such_hook",
    ]
    assert list(interfaces._problems(folder("vllm"), replace(engine, file="x.py"))) == ["x.py is not there"]
