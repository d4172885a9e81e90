"""A server that misbehaves in ways a healthy one does not: a stand-in over HTTP answers as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from eactl.errors import CannotRunHereError, UsageError
from eactl_probes.prefill import PrefillFindings
from eactl_probes.prefill_document import prefill_fields
from eactl_probes.prefill_server import fitting_lengths, measure_server
from eactl_probes.server_client import ServerClient, unique_prompt


class Scripted:
    """Counters of a made-up vLLM: a completion takes 10 µs per token by its own clock; ``on_request`` adds faults."""

    def __init__(self) -> None:
        self.prefill_s, self.requests, self.hits, self.computed = 0.0, 0, 0, 0
        self.completions = 0
        self.on_request: Callable[[Scripted, int], None] | None = None
        self.dies_after: int | None = None
        self.names = {"hits": "vllm:prefix_cache_hits_total"}
        self.tokens = list(range(100, 200))
        self.keys: list[str | None] = []

    def complete(self, tokens: int) -> None:
        self.completions += 1
        self.prefill_s += tokens * 1e-5
        self.requests += 1
        self.computed += tokens
        if self.on_request:
            self.on_request(self, tokens)

    def metrics(self) -> str:
        lines = [
            f'vllm:request_prefill_time_seconds_sum{{engine="0"}} {self.prefill_s}',
            f'vllm:request_prefill_time_seconds_count{{engine="0"}} {self.requests}',
            f'{self.names["hits"]}{{engine="0"}} {self.hits}',
            f'vllm:request_prefill_kv_computed_tokens_sum{{engine="0"}} {self.computed}',
            "vllm:num_requests_running 0",
        ]
        return "\n".join(lines) + "\n"


@contextmanager
def serving(server: Scripted) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            server.keys.append(self.headers.get("Authorization"))
            if self.path == "/v1/models":
                self._send(json.dumps({"data": [{"id": "m", "max_model_len": 4096}]}))
            elif self.path == "/metrics":
                self._send(server.metrics())
            elif self.path == "/version":
                self._send('{"version": "0.0"}')
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize":
                self._send(json.dumps({"tokens": server.tokens}))
            elif server.dies_after is not None and server.completions >= server.dies_after:
                self.connection.close()
            else:
                server.complete(len(body["prompt"]))
                self._send(json.dumps({"usage": {"prompt_tokens": len(body["prompt"])}}))

        def _send(self, text: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        http.server_close()


def measure(server: Scripted, lengths: tuple[int, ...] = (100, 400)) -> PrefillFindings:
    findings = PrefillFindings("server")
    with serving(server) as url:
        measure_server(findings, url=url, lengths=lengths, concurrency=1, seconds=0.2)
    return findings


@pytest.mark.parametrize(
    "name",
    [
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_hits",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits",
    ],
)
def test_prefill_is_the_servers_own_time_under_old_and_new_names(name: str) -> None:
    server = Scripted()
    server.names["hits"] = name
    findings = measure(server)
    # 10 us per token by the server's clock, whatever the requests took.
    assert [point.samples.median_s for point in findings.points] == pytest.approx([1e-3, 4e-3])
    assert findings.details["spoilt_samples"] == {"other-traffic": 0, "cache-hit": 0}


def test_a_server_that_finds_random_prompts_in_its_cache_is_refused() -> None:
    server = Scripted()
    server.on_request = lambda s, tokens: setattr(s, "hits", s.hits + 16)
    with pytest.raises(CannotRunHereError, match="finds random prompts in its cache"):
        measure(server)


def test_hits_that_only_show_as_fewer_computed_tokens_count_too() -> None:
    server = Scripted()
    server.on_request = lambda s, tokens: setattr(s, "computed", s.computed - 16)
    with pytest.raises(CannotRunHereError, match="finds random prompts in its cache"):
        measure(server)


def test_a_busy_server_is_refused() -> None:
    server = Scripted()
    server.on_request = lambda s, tokens: setattr(s, "requests", s.requests + 1)
    with pytest.raises(CannotRunHereError, match="another request finished during every sample"):
        measure(server)


def test_single_disturbances_are_taken_again() -> None:
    server = Scripted()

    def disturb(s: Scripted, tokens: int) -> None:
        if s.completions % 4 == 2:
            s.requests += 1

    server.on_request = disturb
    findings = measure(server)
    assert len(findings.points) == 2
    assert findings.details["spoilt_samples"]["other-traffic"] > 0  # type: ignore[index]


def test_a_server_that_dies_midway_leaves_what_was_measured() -> None:
    server = Scripted()
    findings = PrefillFindings("server")
    server.dies_after = 34  # the first length takes 2 warm-up runs and at most 30 samples
    with serving(server) as url, pytest.raises(CannotRunHereError, match="does not answer /v1/completions"):
        measure_server(findings, url=url, lengths=(100, 400), concurrency=1, seconds=5)
    assert [point.tokens for point in findings.points] == [100]
    document = prefill_fields(findings, "failed")
    assert document["us_per_token"] == pytest.approx(10)
    assert document["status"] == "failed"


def test_lengths_beyond_the_context_are_refused() -> None:
    with pytest.raises(UsageError, match="5000 tokens do not fit into the server's context of 4096"):
        measure(Scripted(), (100, 5000))


def test_a_tokenizer_of_one_word_falls_back_to_low_ids() -> None:
    server = Scripted()
    server.tokens = [3, 3, 3]
    assert len(measure(server).points) == 2


def test_the_key_travels_in_a_header_and_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "sesame")
    server = Scripted()
    measure(server)
    assert set(server.keys) == {"Bearer sesame"}


def test_something_that_is_not_vllm_is_told() -> None:
    class Other(Scripted):
        def metrics(self) -> str:
            return "up 1\n"

    with pytest.raises(CannotRunHereError, match="has no vllm:request_prefill_time_seconds"):
        measure(Other())


@pytest.mark.parametrize("url", ["", "ftp://x", "file:///etc/passwd", "http://"])
def test_only_http_addresses_are_opened(url: str) -> None:
    with pytest.raises(UsageError, match="not an address"):
        ServerClient(url)


def test_prompts_do_not_repeat_a_block() -> None:
    vocabulary = list(range(100))
    blocks = [tuple(unique_prompt(vocabulary, 16)) for _ in range(2000)]
    assert len(set(blocks)) == len(blocks)


@pytest.mark.parametrize(
    ("context", "lengths"),
    [
        (65536, (512, 2048, 4096, 8192, 32768)),
        (8193, (512, 2048, 4096, 8192)),
        (4096, (511, 1023, 2047, 3583)),  # eighths of the 4,095 that leave room for one token of output
        (3, (1,)),
    ],
)
def test_lengths_by_default_are_as_many_as_tell_a_fit_from_an_accident(context: int, lengths: tuple[int, ...]) -> None:
    assert fitting_lengths(None, context) == lengths
