"""Prefill on a running vLLM by the server's own clock: unique prompts that cannot hit, alone and under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from eactl.errors import CannotRunHereError, UsageError
from eactl_probes.notices import ignore_progress
from eactl_probes.prefill import PrefillFindings, PrefillPoint
from eactl_probes.sampling import Budget, Effort, sample
from eactl_probes.server_client import Counters, DecodingLoad, ServerClient, unique_prompt

LENGTHS = (512, 2048, 4096, 8192, 32768)
_LEAST_LENGTHS = 4  # three terms through three lengths leave no residual that could speak against them
_SETTLE_S = 5.0
_MOST_SPOILT = 10


class _Session:
    """One server, its model and what was sampled from it."""

    def __init__(self, findings: PrefillFindings, url: str) -> None:
        self.findings = findings
        self.client = ServerClient(url)
        self.model, self.max_tokens = self.client.model()
        self.vocabulary = self.client.vocabulary(self.model)
        self.spoilt: dict[str, int] = {"other-traffic": 0, "cache-hit": 0}
        findings.details |= {
            "url": self.client.base, "server_model": self.model, "server_version": self.client.version(),
            "max_model_len": self.max_tokens, "spoilt_samples": self.spoilt,
        }  # fmt: skip

    def prefill_s(self, tokens: int) -> float:
        """Seconds between scheduling and first token of one prompt, from the server's histogram.

        A sample during which another request finished, or whose prompt was found in a cache, is thrown away and taken
        again. Raises CannotRunHereError when that keeps happening.
        """
        for _ in range(_MOST_SPOILT):
            before = self.client.counters()
            usage = self.client.complete(self.model, unique_prompt(self.vocabulary, tokens), max_tokens=1)
            added = self._settled(before)
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            if added.requests != 1:
                self.spoilt["other-traffic"] += 1
            elif cached or added.gpu_hits or added.host_hits or (added.computed or tokens) < tokens:
                self.spoilt["cache-hit"] += 1
            else:
                return added.prefill_s
        if self.spoilt["cache-hit"] >= self.spoilt["other-traffic"]:
            what, hint = "the server finds random prompts in its cache", "probe vLLM itself, not a proxy before it"
        else:
            what, hint = "another request finished during every sample", "probe while nobody else uses the server"
        raise CannotRunHereError(what, where=f"--url {self.client.base}", hint=hint)

    def _settled(self, before: Counters) -> Counters:
        """The counters once the request is in them: the server books it just after it has answered."""
        end = time.monotonic() + _SETTLE_S
        while True:
            added = self.client.counters().minus(before)
            if added.requests >= 1 or time.monotonic() > end:
                return added
            time.sleep(0.01)

    def wait_for_running(self, count: int) -> None:
        """Until ``count`` requests are decoding. Raises CannotRunHereError when they never do."""
        end = time.monotonic() + 30
        while (self.client.counters().running or 0) < count:
            if time.monotonic() > end:
                raise CannotRunHereError(
                    f"the server does not run {count} requests at once", where="--concurrency",
                    hint="lower it to the server's --max-num-seqs or less",
                )  # fmt: skip
            time.sleep(0.05)


def measure_server(
    findings: PrefillFindings,
    *,
    url: str,
    lengths: Sequence[int] | None,
    concurrency: int,
    seconds: float,
    progress: Callable[[str], None] = ignore_progress,
) -> None:
    """Fill ``findings`` from the server; with ``concurrency`` above 1 also beside that many less one decoding requests.

    Raises UsageError for lengths beyond its context, CannotRunHereError when it is not there, dies, or never serves a
    sample alone and uncached.
    """
    findings.method = "server"
    progress("asking the server")
    session = _Session(findings, url)
    wanted = fitting_lengths(lengths, session.max_tokens)
    findings.details["concurrency"] = concurrency
    _note_prefix_metrics(session)
    rounds = [(findings.points, 1)] + ([(findings.loaded_points, concurrency)] if concurrency > 1 else [])
    budget = Budget(seconds)
    for position, (points, at_once) in enumerate(rounds):
        share = Budget(budget.share(len(rounds) - position))
        beside = at_once - 1
        load = (
            DecodingLoad(session.client, session.model, session.vocabulary, beside, max(64, session.max_tokens - 65))
            if beside
            else nullcontext()
        )
        with load:
            if beside:
                session.wait_for_running(beside)
            for step, tokens in enumerate(wanted):
                progress(f"server: {tokens} tokens" + (f" beside {beside} decoding" if beside else ""))
                effort = Effort(share.share(len(wanted) - step), least=3, most=30, warm_ups=2)
                points.append(
                    PrefillPoint(tokens, sample(lambda tokens=tokens: session.prefill_s(tokens), effort))  # type: ignore[misc]
                )


def fitting_lengths(lengths: Sequence[int] | None, max_tokens: int) -> tuple[int, ...]:
    """The lengths asked for, or four or five that the server's context holds."""
    longest = max_tokens - 1
    if lengths:
        if max(lengths) > longest:
            raise UsageError(
                f"{max(lengths)} tokens do not fit into the server's context of {max_tokens}", where="--tokens",
                hint=f"give lengths up to {longest}",
            )  # fmt: skip
        return tuple(lengths)
    wanted = [n for n in LENGTHS if n <= longest]
    if len(wanted) >= _LEAST_LENGTHS:
        return tuple(wanted)
    return tuple(sorted({max(1, longest * part // 8) for part in (1, 2, 4, 7)}))


def _note_prefix_metrics(session: _Session) -> None:
    counters = session.client.counters()
    if counters.gpu_hits is None and counters.computed is None:
        session.findings.notices.add(
            "no-hit-counters", "the server exports no prefix-cache counters: hits could not be excluded by them",
            "random prompts make hits all but impossible; update vLLM to have them checked",
        )  # fmt: skip
