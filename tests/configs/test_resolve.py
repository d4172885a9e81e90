"""Where ``--model`` finds a configuration, in which order, and what it says when there is none or it is broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eactl.configs import resolve_model
from eactl.configs.resolve import MAX_CONFIG_BYTES, hub_cache
from eactl.errors import UsageError

CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
}


@pytest.fixture(autouse=True)
def no_foreign_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home, so that models of whoever runs the tests are not found."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "hub"


def write(path: Path, value: object = CONFIG) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def refusal(spec: object) -> str:
    with pytest.raises(UsageError) as raised:
        resolve_model(str(spec))
    return str(raised.value)


# --- where it is found


def test_a_directory_with_a_config(tmp_path: Path) -> None:
    write(tmp_path / "my-model" / "config.json")
    found = resolve_model(str(tmp_path / "my-model"))
    assert (found.name, found.origin, found.config) == ("my-model", "directory", CONFIG)


def test_the_current_directory_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "my-model" / "config.json")
    monkeypatch.chdir(tmp_path / "my-model")
    assert resolve_model(".").name == "my-model"


def test_a_directory_in_mistrals_own_format(tmp_path: Path) -> None:
    write(tmp_path / "m" / "params.json", {"dim": 512, "n_layers": 2, "n_heads": 8, "n_kv_heads": 2, "head_dim": 64})
    assert resolve_model(str(tmp_path / "m")).config["n_kv_heads"] == 2


def test_a_file_is_named_by_its_directory_or_itself(tmp_path: Path) -> None:
    assert resolve_model(str(write(tmp_path / "my-model" / "config.json"))).name == "my-model"
    found = resolve_model(str(write(tmp_path / "tiny.json")))
    assert (found.name, found.origin) == ("tiny", "file")


def test_an_engine_loads_a_directory_or_a_repository_and_no_bare_name_of_the_table(tmp_path: Path) -> None:
    file = write(tmp_path / "my-model" / "config.json")
    folder = str(file.parent)
    loads = {spec: resolve_model(spec).loads_from(spec) for spec in (
        folder, str(file), "Qwen3-Coder-30B-A3B", "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    )}  # fmt: skip
    assert loads == {
        folder: folder,
        str(file): folder,
        "Qwen3-Coder-30B-A3B": "PATH/TO/Qwen3-Coder-30B-A3B",
        "Qwen/Qwen3-Coder-30B-A3B-Instruct": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    }


def test_the_home_directory_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "m" / "config.json")
    assert resolve_model("~/m").name == "m"


def test_a_cached_model_is_the_revision_that_main_points_to(no_foreign_cache: Path) -> None:
    folder = no_foreign_cache / "models--org--name"
    write(folder / "snapshots" / "aaaa" / "config.json", {**CONFIG, "num_hidden_layers": 3})
    write(folder / "snapshots" / "bbbb" / "config.json", {**CONFIG, "num_hidden_layers": 4})
    os.utime(folder / "snapshots" / "bbbb" / "config.json", (2e9, 2e9))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaaa\n")
    found = resolve_model("org/name")
    assert (found.origin, found.config["num_hidden_layers"]) == ("huggingface-cache", 3)


def test_a_cached_model_without_main_is_its_newest_revision(no_foreign_cache: Path) -> None:
    folder = no_foreign_cache / "models--gpt2"
    write(folder / "snapshots" / "aaaa" / "config.json", {**CONFIG, "num_hidden_layers": 3})
    write(folder / "snapshots" / "bbbb" / "config.json", {**CONFIG, "num_hidden_layers": 4})
    os.utime(folder / "snapshots" / "aaaa" / "config.json", (2e9, 2e9))
    assert resolve_model("gpt2").config["num_hidden_layers"] == 3


def test_a_cache_entry_with_weights_only_falls_through_to_the_table(no_foreign_cache: Path) -> None:
    folder = no_foreign_cache / "models--Qwen--Qwen3-32B"
    (folder / "snapshots" / "aaaa").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("aaaa")
    assert resolve_model("Qwen/Qwen3-32B").origin == "bundled"


def test_a_path_comes_first_then_the_cache_then_the_table(
    no_foreign_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_model("Qwen/Qwen3-32B").origin == "bundled"
    write(no_foreign_cache / "models--Qwen--Qwen3-32B" / "snapshots" / "aaaa" / "config.json")
    assert resolve_model("Qwen/Qwen3-32B").origin == "huggingface-cache"
    write(tmp_path / "Qwen" / "Qwen3-32B" / "config.json")
    assert resolve_model("Qwen/Qwen3-32B").origin == "directory"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HF_HOME": "", "HOME": "/d"}, "/d/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_huggingface_hub_keeps_it(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    assert hub_cache() == Path(expected)


def test_a_bundled_name_says_what_its_numbers_were_compared_with() -> None:
    found = resolve_model("qwen/qwen3-coder-30b-a3b-instruct")
    assert (found.name, found.origin, found.notes) == ("Qwen3-Coder-30B-A3B", "bundled", ())
    assert found.described == "the bundled table (compared with a public copy of the model's config.json)"
    assert "check it against yours" in resolve_model("Phi-4").notes[0]


def test_a_quantised_variant_from_the_table_may_have_other_kv() -> None:
    assert "may ask for 8-bit KV" in resolve_model("Qwen/Qwen3-32B-FP8").notes[0]


# --- what is not found


def test_an_unknown_name_lists_its_neighbours() -> None:
    assert refusal("qwen3-codr-30b-a3b") == (
        "no model 'qwen3-codr-30b-a3b' here, in the Hugging Face cache or in the bundled table, --model, "
        "did you mean Qwen3-Coder-30B-A3B or Qwen3-Coder-480B-A35B or Qwen3-30B-A3B? "
        "Otherwise give its directory or config.json"
    )


def test_a_name_like_no_other_says_where_the_names_are() -> None:
    assert "'eactl probe footprint --list'" in refusal("zzzzzz")


@pytest.mark.parametrize(
    "spec", ["./nowhere", "/nowhere/config.json", "../nowhere", "nowhere.json", "~/nowhere", "~noone/x"]
)
def test_a_path_that_does_not_exist_is_not_taken_for_a_name(spec: str) -> None:
    assert refusal(spec) == f"no file or directory {spec}, --model, check the path"


@pytest.mark.parametrize("spec", ["", "   ", "a\0b", "x" * 5000])
def test_no_name_at_all(spec: str) -> None:
    assert "--model, give a directory, a config.json or a name" in refusal(spec)


@pytest.mark.parametrize("spec", ["models--x/../../etc", "a/b/c", "org/..", "a/" + "b" * 300, "b" * 300])
def test_a_name_cannot_walk_out_of_the_cache(spec: str) -> None:
    assert "no model" in refusal(spec) or "no config.json" in refusal(spec)


# --- what is found and cannot be used


def test_directories_of_something_else_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert f"no config.json in {tmp_path / 'empty'}" in refusal(tmp_path / "empty")
    write(tmp_path / "lora" / "adapter_config.json", {"base_model_name_or_path": "Qwen/Qwen3-8B"})
    assert "holds a LoRA adapter, --model, give its base model, Qwen/Qwen3-8B" in refusal(tmp_path / "lora")
    write(tmp_path / "image" / "model_index.json", {})
    assert "a diffusion pipeline, which has no KV cache" in refusal(tmp_path / "image")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON (Expecting value)"),
        (b"{\n\n'a': 1}", "not JSON (Expecting property name enclosed in double quotes)"),
        (b'{"a": 1', "not JSON"),
        (b"\x00\x00\x00\x00", "not JSON"),
        (b"\xff\xfe\xfa{}", "not JSON"),
        (b"PK\x03\x04binary", "not JSON"),
        (b"[1]", "holds a list, not an object"),
        (b"null", "holds null, not an object"),
        (b'"x"', "holds a string, not an object"),
        (b"12", "holds a number, not an object"),
        (b"true", "holds true or false, not an object"),
        (b"{}", "is empty"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"a":' * 200_000, "is nested too deeply"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else None,
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert message in refusal(path)
    assert str(path) in refusal(path)


def test_the_line_of_a_syntax_error_is_given(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": 1,\n"b": }')
    assert refusal(path) == f"not JSON (Expecting value), {path}:2, give the model's config.json"


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)  # sparse: 100 MiB that take no room
    assert "has 104,857,600 bytes, which no configuration has" in refusal(path)
    path.write_text(json.dumps({**CONFIG, "junk": "x" * (MAX_CONFIG_BYTES - 1000)}))
    assert resolve_model(str(path)).config["num_hidden_layers"] == 2


def test_weights_and_devices_are_no_configurations(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert "holds weights, --model, give the model's config.json or its directory" in refusal(tmp_path / "model.gguf")
    assert "/dev/null is not a regular file" in refusal("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in refusal(tmp_path / "pipe")  # and does not wait for a writer


def test_infinity_is_read_as_published_files_have_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"num_hidden_layers": 2, "time_step_limit": [0.0, Infinity]}')
    assert resolve_model(str(path)).config["num_hidden_layers"] == 2


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(CONFIG).encode())
    assert resolve_model(str(path)).config == CONFIG
