"""Talking to a running vLLM: requests with unique prompts, and its own counters before and after."""

from __future__ import annotations

import http.client
import json
import os
import random
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from eactl.errors import CannotRunHereError, UsageError
from eactl.telemetry.prometheus import figure, totals

_TIMEOUT_S = 120.0
_LEAST_IDS = 16
_MAX_PAGE_BYTES = 64 << 20
_PREFILL = "vllm:request_prefill_time_seconds"
_COMPUTED = "vllm:request_prefill_kv_computed_tokens"
# Text whose tokens cover many ids of any vocabulary; what it says does not matter.
_WORDS = (
    "The quick brown fox jumps over the lazy dog while 0123456789 people read, write (and test) code: def main(): "
    "return {'a': [1, 2.5, None], \"b\": x <= y} # über naïve façade, mais où? Der große Bär trinkt Öl; 東京 привет"
)


@dataclass(frozen=True, slots=True)
class Counters:
    """The server's totals at one moment, over all its engines; None is not exported by this version."""

    prefill_s: float
    requests: float
    gpu_hits: float | None
    host_hits: float | None
    computed: float | None
    running: float | None

    def minus(self, earlier: Counters) -> Counters:
        """What was added since ``earlier``."""
        return Counters(
            self.prefill_s - earlier.prefill_s, self.requests - earlier.requests,
            _difference(self.gpu_hits, earlier.gpu_hits), _difference(self.host_hits, earlier.host_hits),
            _difference(self.computed, earlier.computed), self.running,
        )  # fmt: skip


def _difference(now: float | None, earlier: float | None) -> float | None:
    return None if now is None else now - (earlier or 0.0)


class ServerClient:
    """One vLLM server. Every call raises CannotRunHereError when the server cannot be reached or does not answer."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"not an address: {url!r}", where="--url", hint="write http://127.0.0.1:8000")
        self.base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"
        key = os.environ.get("VLLM_API_KEY") or os.environ.get("OPENAI_API_KEY")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def model(self) -> tuple[str, int]:
        """The first served model's name and its longest context."""
        answer = self._json("/v1/models")
        try:
            entry = answer["data"][0]
            return str(entry["id"]), int(entry["max_model_len"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise CannotRunHereError(
                "the server's /v1/models does not name a model and its max_model_len", where=f"--url {self.base}",
                hint="give the address of a vLLM OpenAI server",
            ) from error  # fmt: skip

    def version(self) -> str | None:
        """The server's version, None where it does not say."""
        try:
            return str(self._json("/version")["version"])
        except (CannotRunHereError, KeyError, TypeError):
            return None

    def vocabulary(self, model: str) -> list[int]:
        """Token ids that are certainly in the vocabulary, at least 16 different ones."""
        answer = self._json("/tokenize", {"model": model, "prompt": _WORDS, "add_special_tokens": False})
        ids = sorted({int(token) for token in answer.get("tokens", [])})
        if len(ids) >= _LEAST_IDS:
            return ids
        # A tokenizer of whole words knows none of these; low ids are in every vocabulary, the lowest are special.
        plain = list(range(16, 512))
        self.complete(model, unique_prompt(plain, 64), 1)
        return plain

    def counters(self) -> Counters:
        """The totals now. Raises CannotRunHereError when prefill times are not exported."""
        sums = totals(self._text("/metrics"))
        if f"{_PREFILL}_sum" not in sums:
            raise CannotRunHereError(
                f"the server's /metrics has no {_PREFILL}", where=f"--url {self.base}",
                hint="start vLLM without --disable-log-stats, or use --method layers",
            )  # fmt: skip
        return Counters(
            prefill_s=sums[f"{_PREFILL}_sum"],
            requests=sums.get(f"{_PREFILL}_count", 0.0),
            gpu_hits=figure(sums, "gpu_hit_tokens")[0],
            host_hits=figure(sums, "host_hit_tokens")[0],
            computed=sums.get(f"{_COMPUTED}_sum"),
            running=sums.get("vllm:num_requests_running"),
        )

    def complete(self, model: str, prompt: list[int], max_tokens: int) -> Mapping[str, Any]:
        """One greedy completion; returns the server's ``usage``."""
        usage = self._json("/v1/completions", _completion(model, prompt, max_tokens)).get("usage")
        return usage if isinstance(usage, Mapping) else {}

    def open_stream(self, model: str, prompt: list[int], max_tokens: int) -> http.client.HTTPResponse:
        """A completion that streams until it is closed or done."""
        return self._open("/v1/completions", {**_completion(model, prompt, max_tokens), "stream": True})

    def _json(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        text = self._text(path, body)
        try:
            answer = json.loads(text)
        except ValueError as error:
            raise self._gone(path, "its answer is not JSON") from error
        if not isinstance(answer, dict):
            raise self._gone(path, "its answer is not a JSON object")
        return answer

    def _text(self, path: str, body: Mapping[str, Any] | None = None) -> str:
        try:
            with self._open(path, body) as response:
                return response.read(_MAX_PAGE_BYTES).decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(path, str(error)) from error

    def _open(self, path: str, body: Mapping[str, Any] | None = None) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self._headers)  # noqa: S310 - http(s) only, checked
        try:
            response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code}: {error.read(300).decode(errors='replace').strip()}"
            raise self._gone(path, reason, refused=error.code in (401, 403)) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._gone(path, str(getattr(error, "reason", error))) from error
        return response

    def _gone(self, path: str, reason: str, *, refused: bool = False) -> CannotRunHereError:
        hint = (
            "put its key into the environment variable VLLM_API_KEY"
            if refused
            else "check that vLLM runs there and is healthy"
        )
        return CannotRunHereError(
            f"the server does not answer {path} ({reason})", where=f"--url {self.base}", hint=hint
        )


def _completion(model: str, prompt: list[int], max_tokens: int) -> dict[str, Any]:
    return {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}


def unique_prompt(vocabulary: list[int], tokens: int) -> list[int]:
    """Random tokens: with 16 different ones, the chance that even one block of 16 was seen before is 16^-16."""
    return random.Random(secrets.randbits(128)).choices(vocabulary, k=tokens)  # noqa: S311 - unlike others, not secret


class DecodingLoad:
    """Requests that decode in the background, each replaced when it ends, until the block is left."""

    def __init__(self, client: ServerClient, model: str, vocabulary: list[int], count: int, max_tokens: int) -> None:
        self._client, self._model, self._vocabulary = client, model, vocabulary
        self._max_tokens = max_tokens
        self._stop = threading.Event()
        self._open: list[http.client.HTTPResponse] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]

    def __enter__(self) -> DecodingLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _run(self) -> None:
        # A fault ends this stream only: the measuring side meets the same one and reports it.
        with suppress(CannotRunHereError, OSError, http.client.HTTPException):
            while not self._stop.is_set():
                prompt = unique_prompt(self._vocabulary, 64)
                with self._client.open_stream(self._model, prompt, self._max_tokens) as response:
                    while not self._stop.is_set() and response.readline():
                        pass
