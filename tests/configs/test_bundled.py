"""The bundled table: every name is found, every shape can be priced, and none disagrees with what is published."""

from __future__ import annotations

import pytest

from eactl.configs.bundled import BundledModel, bundled, find_bundled, is_quantised_name, near_names
from eactl.errors import UsageError
from eactl.model.footprint import footprint

TABLE = bundled()


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_every_shape_has_a_weight_or_a_reason(entry: BundledModel) -> None:
    try:
        assert footprint(entry.config).bytes_per_token_rank > 0
    except UsageError as refusal:
        assert entry.name == "DeepSeek-V4-Flash"
        assert "compress_ratios" in str(refusal)


def test_no_name_means_two_shapes() -> None:
    names = [name.lower() for entry in TABLE for name in (entry.name, *entry.names)]
    assert len(names) == len(set(names)) > 150


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.name)
def test_each_of_its_names_finds_it(entry: BundledModel) -> None:
    for name in (entry.name, *entry.names):
        for spelling in (name, name.lower(), name.upper(), f"some-org/{name}"):
            assert find_bundled(spelling) == (name, entry)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3-Coder-30B-A3B"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", "Qwen3-Coder-30B-A3B"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3-235B-A22B"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct-GPTQ-Int4", "Qwen2.5-Coder-32B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "Meta-Llama-3.1-8B"),
        ("google/gemma-3-27b-it-qat-q4_0-unquantized", "Gemma-3-27B"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1"),
        ("mistralai/Devstral-Small-2507", "Devstral-Small"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_variants_of_a_model_share_its_shape(spec: str, name: str) -> None:
    found = find_bundled(spec)
    assert found is not None
    assert found[0] == name


def test_the_first_mistral_slides_and_the_later_ones_do_not() -> None:
    # the version is a suffix that is dropped elsewhere, and here it decides
    assert [find_bundled(f"mistralai/Mistral-7B-Instruct-{v}") for v in ("v0.1", "v0.3")] == [
        ("Mistral-7B-Instruct-v0.1", next(e for e in TABLE if e.name == "Mistral-7B-v0.1")),
        ("Mistral-7B-Instruct-v0.3", next(e for e in TABLE if e.name == "Mistral-7B-v0.3")),
    ]


@pytest.mark.parametrize(
    "spec", ["", "/", "Qwen", "Qwen3", "Qwen3-Coder", "-fp8", "not-a-model", "DeepSeek-R1-Distill"]
)
def test_part_of_a_name_is_not_a_name(spec: str) -> None:
    assert find_bundled(spec) is None


def test_a_misspelt_name_finds_its_neighbours() -> None:
    assert near_names("qwen3-codr-30b-a3b")[0] == "Qwen3-Coder-30B-A3B"
    assert near_names("zzzzzz") == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Qwen3-32B-FP8", True), ("x/Kimi-K2.5-NVFP4", True), ("Qwen2.5-7B-AWQ", True), ("Qwen3-32B", False)],
)
def test_a_name_tells_whether_weights_are_quantised(name: str, expected: bool) -> None:
    assert is_quantised_name(name) is expected


# Bytes of one token in 16 bits, worked out by hand from published shapes: layers x KV heads x (K + V) x 2 B.
@pytest.mark.parametrize(
    ("name", "layers", "kv_heads", "k_plus_v"),
    [
        ("Qwen3-Coder-30B-A3B", 48, 4, 256), ("Qwen2.5-Coder-32B", 64, 8, 256), ("Llama-3.1-8B", 32, 8, 256),
        ("Llama-3.3-70B", 80, 8, 256), ("Llama-3.1-405B", 126, 8, 256), ("Mixtral-8x7B", 32, 8, 256),
        ("Mistral-Small-24B", 40, 8, 256), ("GLM-4.6", 92, 8, 256), ("gpt-oss-120b", 36, 8, 128),
        ("Gemma-3-27B", 62, 16, 256), ("Qwen3.5-27B", 16, 4, 512), ("DeepSeek-V3", 61, 1, 576),
        ("falcon-7b", 32, 1, 128),
    ],
)  # fmt: skip
def test_well_known_models_weigh_what_their_shape_says(name: str, layers: int, kv_heads: int, k_plus_v: int) -> None:
    found = find_bundled(name)
    assert found is not None
    assert footprint(found[1].config).bytes_per_token_rank == layers * kv_heads * k_plus_v * 2
