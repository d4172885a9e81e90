"""``eactl serve`` and ``eactl tail`` as a user meets them: what is refused, with which status, and nothing started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eactl.cli import run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_dry_run_prints_one_document_with_the_plan(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = run(["serve", "--model", str(model), "--device", "cpu", "--host-gib", "0.1", "--dry-run", "--json"])
    document = json.loads(capfd.readouterr().out)
    assert next(iter(document)) == "schema" and document["schema"] == "eactl.serve/1"
    assert {"argv", "env", "servers", "footprint", "tier", "policy", "checks"} <= document.keys()
    assert document["footprint"]["bytes_per_token_rank"] == 2 * 2 * 2 * 64 * 2
    assert document["policy"]["kappa_chunks"] == 32  # 8,192 tokens of 256
    assert status == (1 if any(check["level"] == "refused" for check in document["checks"]) else 0)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--host-gib", "-3"], "--host-gib"),
        (["--host-gib", "lots"], "not a size: 'lots', --host-gib"),
        (["--policy", "lru"], "unknown policy 'lru', --policy, use none, fixed, conditioned, lazy"),
        (["--policy", "lazy", "--mode", "in-process"], "--policy lazy with --mode"),
        (["--", "--kv-transfer-config", "{}"], "--kv-transfer-config"),
        (["--", "--api-key", "secret"], "VLLM_API_KEY"),
        (["--", "--port", "1"], "give it before '--', as --port"),
        (["--json"], "--json"),
        (["--lmcache-server", "x"], "HOST:PORT:HTTP_PORT"),
    ],
)
def test_bad_usage_is_status_2_with_the_option_named(
    model: Path, args: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--model", str(model), "--device", "cpu", *args]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err and "Traceback" not in err and "secret" not in err


def test_a_model_that_does_not_exist_is_status_2(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--model", "/no/such/model", "--dry-run"]) == 2
    assert "/no/such/model" in capfd.readouterr().err


def test_a_state_file_that_cannot_be_written_is_warned_about(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    run(["serve", "--model", str(model), "--dry-run", "--json", "--state-file", str(tmp_path / "file" / "tier.json")])
    checks = {check["name"]: check for check in json.loads(capfd.readouterr().out)["checks"]}
    assert checks["state-file"]["level"] == "warning" and str(tmp_path / "file") in checks["state-file"]["text"]
    run(["serve", "--model", str(model), "--dry-run", "--json", "--state-file", str(tmp_path / "new" / "tier.json")])
    assert "state-file" not in {check["name"] for check in json.loads(capfd.readouterr().out)["checks"]}


def test_what_cannot_run_here_is_status_3_with_every_remedy(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--model", str(model), "--device", "cpu", "--host-gib", "100000", "--tp", "2"]) == 3
    assert "2 × 97.7 TiB" in capfd.readouterr().err


def test_tail_without_an_engine_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EACTL_STATE_DIR", str(tmp_path))
    assert run(["tail", "--once"]) == 3
    assert str(tmp_path) in capfd.readouterr().err


def test_tail_once_of_what_cannot_be_read_is_status_1_and_one_json_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["tail", "--once", "--json", "--url", "http://127.0.0.1:1"]) == 1
    (line,) = capfd.readouterr().out.splitlines()
    shown = json.loads(line)
    assert shown["requests"] is None and shown["warnings"][0]["code"] == "not-read"


def test_tail_into_head_ends_quietly(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.prom"
    metrics.write_text("vllm:num_preemptions_total 3\n")
    command = f"{sys.executable} -m eactl tail --interval 0.1 --url {metrics} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=30)  # noqa: S602
    assert done.stdout.count("\n") == 1 and "3 preemptions" in done.stdout
    assert done.stderr == ""
