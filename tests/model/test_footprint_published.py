"""Published models whose numbers were worked out independently, where that collection lies beside the checkout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eactl.errors import UsageError
from eactl.model.footprint import footprint

COLLECTION = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "models" / "models.json"
MODELS: list[dict[str, Any]] = json.loads(COLLECTION.read_text())["models"] if COLLECTION.is_file() else []

pytestmark = pytest.mark.skipif(not MODELS, reason="no ../shared/cases/models/models.json beside this checkout")


def config_of(model: dict[str, Any]) -> dict[str, Any]:
    """The configuration; where the collection describes a list of blocks in words, the list that it describes."""
    config: dict[str, Any] = dict(model["config"])
    if isinstance(config.get("block_configs"), str):
        with_attention = {"attention": {"n_heads_in_group": 8, "no_op": False}}
        without = {"attention": {"n_heads_in_group": None, "no_op": True}}
        config["block_configs"] = [with_attention] * 49 + [without] * 31
    return config


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_a_published_model_weighs_what_was_worked_out(model: dict[str, Any]) -> None:
    expected = model["expected_bytes_per_token_bf16"]
    if expected is None:
        with pytest.raises(UsageError, match="unsupported config: compress_ratios"):
            footprint(config_of(model))
        return
    assert len(expected) >= 4
    for key, numbers in expected.items():
        tp = int(key.removeprefix("tp"))
        if "error" in numbers:
            with pytest.raises(UsageError, match=f"cannot run on {tp} ranks"):
                footprint(config_of(model), tp=tp)
            continue
        result = footprint(config_of(model), tp=tp)
        assert {
            "all_attention_layers": result.bytes_per_token_rank,
            "growing_full_layers_only": result.growing_bytes_per_token_rank,
            "sum_over_ranks_all_layers": result.bytes_per_token_total,
            "unique_all_layers": result.unique_bytes_per_token,
        } == numbers


@pytest.mark.parametrize(
    "model", [m for m in MODELS if "fixed_state_bytes_per_sequence_tp1" in m], ids=lambda m: m["name"]
)
def test_its_state_and_the_block_size_that_follows(model: dict[str, Any]) -> None:
    expected = model["fixed_state_bytes_per_sequence_tp1"]
    result = footprint(config_of(model))
    assert result.state_bytes_per_sequence_rank == expected["total"]
    assert result.attention_block_tokens == expected.get(
        "implied_attention_block_tokens_tp1", result.attention_block_tokens
    )


@pytest.mark.parametrize("model", [m for m in MODELS if "mtp" in m], ids=lambda m: m["name"])
def test_its_layers_of_multi_token_prediction(model: dict[str, Any]) -> None:
    expected = model["mtp"]
    result = footprint(config_of(model))
    assert result.mtp_layers == expected["layers"]
    assert result.mtp_bytes_per_token_rank in (
        expected.get("extra_bytes_per_token"), expected.get("extra_bytes_per_token_tp1"),
    )  # fmt: skip


@pytest.mark.parametrize("model", [m for m in MODELS if m["expected_bytes_per_token_bf16"]], ids=lambda m: m["name"])
def test_its_layers_by_kind(model: dict[str, Any]) -> None:
    layers = model["layers"]
    expected = {
        (g["kind"].removesuffix("_local"), g["count"], g["kv_heads_total"], g["k_dim"], g["window"])
        for g in layers["groups"]
    }
    if layers["mla_layers"]:
        expected.add(("mla", layers["mla_layers"], 1, layers["mla_dim"], None))
    if layers["dsa_indexer_layers"]:
        expected.add(("mla_indexer", layers["dsa_indexer_layers"], 1, 128, None))
    groups = [group for group in footprint(config_of(model)).layers if group.kind != "state"]
    assert {(g.kind, g.count, g.kv_heads, g.k_dim, g.window_tokens) for g in groups} == expected
