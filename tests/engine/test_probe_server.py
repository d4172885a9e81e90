"""``probe prefill --method server`` on a real vLLM: its own metrics, unique prompts, load beside, a death midway."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eactl.errors import CannotRunHereError
from eactl_probes.prefill import PrefillFindings
from eactl_probes.prefill_server import measure_server
from eactl_probes.server_client import ServerClient
from tests.cli_runner import eactl
from tests.engine.stack import Engine, engine

OPTIONS = ("--max-model-len", "4096")


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with engine(tiny_model, tmp_path_factory.mktemp("probe"), connector=False, vllm=OPTIONS) as running:
        yield running


def test_the_command_measures_alone_and_beside_decoding_requests(server: Engine) -> None:
    result = eactl("probe", "prefill", "--url", server.url, "--concurrency", "3", "--quick", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["method"] == "server"
    assert document["details"]["server_model"] == "tiny"
    assert document["details"]["max_model_len"] == 4096
    assert document["us_per_token"] > 0
    assert [p["tokens"] for p in document["points"]] == [p["tokens"] for p in document["loaded"]["points"]]
    times = [point["median_s"] for point in document["points"]]
    assert times == sorted(times)  # four lengths up to the context: longer ones take longer


def test_nothing_that_it_sends_is_ever_found_in_the_cache(server: Engine) -> None:
    before = server.metrics()
    findings = PrefillFindings("server")
    measure_server(findings, url=server.url, lengths=(256, 512), concurrency=1, seconds=1)
    after = server.metrics()
    assert after["vllm:prefix_cache_hits_total"] == before["vllm:prefix_cache_hits_total"]
    # Every sample that was kept was computed whole: as many tokens as were sent.
    samples = sum(len(point.samples.seconds) * point.tokens for point in findings.points)
    computed = "vllm:request_prefill_kv_computed_tokens_sum"
    assert after[computed] - before[computed] >= samples


def test_the_servers_prefill_time_leaves_queueing_out(server: Engine) -> None:
    """The time to the first token as a client sees it is longer than what is measured."""
    client = ServerClient(server.url)
    findings = PrefillFindings("server")
    measure_server(findings, url=server.url, lengths=(2048,), concurrency=1, seconds=1)
    prompt = [16 + (7 * i) % 400 for i in range(2048)]
    begin = time.perf_counter()
    client.complete("tiny", prompt, 1)
    assert min(findings.points[0].samples.seconds) < time.perf_counter() - begin


def test_obr_takes_the_prefill_cost_from_the_server(server: Engine, tmp_path: Path) -> None:
    result = eactl(
        "probe", "obr", "--url", server.url, "--kv-bytes-per-token", "1024", "--bandwidth", "10", "--quick", "--json"
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["sources"] == {
        "bandwidth_gib_s": "given", "overhead_us": "assumed", "us_per_token": "measured (server)",
        "quadratic_us_per_token2": "measured (server)", "d2h_gib_s": "assumed equal to host to device",
    }  # fmt: skip
    assert document["prefill"]["method"] == "server"
    assert document["verdict"] in ("restore", "recompute", "unclear")


def test_a_server_that_dies_midway_leaves_what_was_measured(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with engine(tiny_model, tmp_path_factory.mktemp("dying"), connector=False, vllm=OPTIONS) as doomed:
        findings = PrefillFindings("server")

        def kill_in_the_second_length(text: str) -> None:
            if "1024" in text:
                threading.Timer(0.2, lambda: doomed.children[-1].end(0)).start()

        with pytest.raises(CannotRunHereError, match="the server does not answer"):
            measure_server(
                findings, url=doomed.url, lengths=(256, 1024), concurrency=1, seconds=60,
                progress=kill_in_the_second_length,
            )  # fmt: skip
    assert [point.tokens for point in findings.points] == [256]
