"""The admission gate of one engine: one decision per request, the counters, and the record others may read.

Knows no engine: the connectors translate. The scheduler thread calls the hooks, a publisher thread ``record``;
a lock keeps them apart. Nothing here may stop an engine: the connectors catch what is raised, count it with
``fault`` and store as if there were no policy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from eactl.policy import Admission, Lineage, TierReport
from eactl.telemetry.record import TierRecord

logger = logging.getLogger("vllm.eactl")
_REMEMBERED_SKIPS = 4096


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a connector knows of a request at a resolved prefix lookup.

    ``task`` is the client's own id of its task, if it gave one. ``target_tokens`` is what has to be in the
    cache before the next token: the prompt, and after a preemption the output so far as well.
    """

    request: str
    prompt: Sequence[int]
    hashes: Sequence[Hashable]
    hit_tokens: int
    target_tokens: int
    task: str | None = None
    skip_asked: bool = False
    preemptions: int = 0


@dataclass(slots=True)
class _Live:
    save: bool = True
    lineage: int | None = None
    prompt: Sequence[int] = ()
    preemptions: int = 0
    target_tokens: int = 0
    loaded_tokens: int = 0  # by the host tier, for the start that is under way
    to_compute: int = 0


@dataclass(slots=True)
class Counters:
    """Since the engine's start; names as in TierRecord."""

    requests: int = 0
    skipped_requests: int = 0
    saved_requests: int = 0
    pressure_requests: int = 0
    skipped_chunks: int = 0
    client_skipped_requests: int = 0
    missed_after_skip_tokens: int = 0
    stored_tokens: int = 0
    restored_tokens: int = 0
    gpu_hit_tokens: int = 0
    computed_tokens: int = 0
    preemptions: int = 0
    faults: int = 0


@dataclass(slots=True)
class TierState:
    """What the engine's tier said last; the record takes it over as it is."""

    at_s: float | None = None  # monotonic
    registered_chunks: int | None = None
    evicted_chunks: int | None = None
    failed_allocation_chunks: int | None = None
    stored_chunks: int | None = None


@dataclass(slots=True)
class AdmissionGate:
    """Decides once per request and keeps the answer until ``finished``."""

    admission: Admission
    lineage: Lineage
    engine: str = ""
    gpu_kv_tokens: int | None = None  # K_G
    label: str | None = None  # what the record calls the policy, where that is LMCache's own
    clock: Callable[[], float] = time.monotonic  # seconds, for the windows
    counters: Counters = field(default_factory=Counters)
    tier: TierState = field(default_factory=TierState)
    _live: dict[str, _Live] = field(default_factory=dict)
    _prefilling: dict[str, _Live] = field(default_factory=dict)
    _skipped: OrderedDict[Hashable, int] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _started_at_s: float = field(default_factory=time.time)

    def known(self, request: str) -> bool:
        """Whether this request has been decided."""
        return request in self._live

    def saves(self, request: str) -> bool:
        """The decision that stands; True where there is none."""
        live = self._live.get(request)
        return live is None or live.save

    def resolved(self, lookup: Lookup) -> bool:
        """A request's first lookup has been answered: decide, and say whether it may store."""
        live = self._live[lookup.request] = _Live(prompt=lookup.prompt, target_tokens=lookup.target_tokens)
        live.preemptions = lookup.preemptions
        with self._lock:
            self._decide(live, lookup)
        return live.save

    def resolved_again(self, request: str, target_tokens: int, preemptions: int) -> None:
        """A later lookup, as each step makes for a preempted request: the decision stands."""
        live = self._live[request]
        live.target_tokens = target_tokens
        if preemptions > live.preemptions:
            self.counters.preemptions += preemptions - live.preemptions
            live.preemptions = preemptions

    def loading(self, request: str, tokens: int) -> None:
        """The tier will restore ``tokens`` for this start of the request."""
        if tokens > 0 and (live := self._live.get(request)):
            live.loaded_tokens += tokens
            self.counters.restored_tokens += tokens

    def started(self, request: str, computed_tokens: int) -> None:
        """The request (re)starts with ``computed_tokens`` in the GPU's cache, restored ones included."""
        if live := self._live.get(request):
            self.counters.gpu_hit_tokens += max(0, computed_tokens - live.loaded_tokens)
            live.loaded_tokens = 0
            live.to_compute = max(0, live.target_tokens - computed_tokens)
            if live.to_compute:
                self._prefilling[request] = live

    def stepped(self, scheduled: dict[str, int]) -> None:
        """One engine step with this many tokens for each request; counts the prefill among them."""
        for request, live in list(self._prefilling.items()):
            tokens = min(scheduled.get(request, 0), live.to_compute)
            self.counters.computed_tokens += tokens
            live.to_compute -= tokens
            if not live.to_compute:
                del self._prefilling[request]

    def finished(self, request: str, hashes: Sequence[Hashable]) -> None:
        """The request is over, however it ended; ``hashes`` cover its prompt and output."""
        live = self._live.pop(request, None)
        self._prefilling.pop(request, None)
        if live is not None and live.lineage is not None:
            with self._lock:
                self.lineage.end(live.lineage, hashes, live.prompt)

    def reported(self, report: TierReport, state: TierState) -> None:
        """The tier was read. Any thread."""
        now_s = self.clock()
        with self._lock:
            self.tier = state
            state.at_s = now_s
            self.admission.observe_report(report, now_s)

    def fault(self, where: str) -> None:
        """Something of ours failed and was passed over. Call it from an except block."""
        self.counters.faults += 1
        if self.counters.faults == 1 or self.counters.faults % 1000 == 0:
            logger.exception("eactl: fault %d, in %s; serving goes on as without a policy", self.counters.faults, where)

    def record(self) -> TierRecord:
        """Everything, for the state file and the metrics. Any thread."""
        now_s = self.clock()
        with self._lock:
            pool = self.admission.pool(now_s)
            tier = self.tier
            size = self.admission.tier
        counters = {name: getattr(self.counters, name) for name in Counters.__slots__}
        if tier.stored_chunks is not None:
            counters["stored_tokens"] = tier.stored_chunks * size.chunk_tokens
        host_bytes = size.host_bytes
        return TierRecord(
            at_s=time.time(),
            policy=self.label or self.admission.policy,
            age_s=None if tier.at_s is None else round(now_s - tier.at_s, 3),
            engine=self.engine,
            started_at_s=self._started_at_s,
            chunk_tokens=size.chunk_tokens,
            tier_bytes_per_token=size.bytes_per_token,
            registered_chunks=tier.registered_chunks,
            capacity_chunks=size.capacity_chunks,
            occupancy=_ratio(tier.registered_chunks, size.capacity_chunks),
            evicted_window=pool.evicted_window,
            full_and_evicting=pool.full_and_evicting,
            agents=pool.agents,
            mean_prompt_tokens=pool.mean_prompt_tokens,
            working_set_bytes=pool.working_set_bytes,
            host_bytes=host_bytes,
            kept_bytes=int(host_bytes * size.kept_share),
            gamma_h=_ratio(pool.working_set_bytes, host_bytes),
            gpu_kv_tokens=self.gpu_kv_tokens,
            gamma_g=_ratio(pool.agents * pool.mean_prompt_tokens, self.gpu_kv_tokens),
            pressure=pool.pressure,
            evicted_chunks=tier.evicted_chunks,
            failed_allocation_chunks=tier.failed_allocation_chunks,
            **counters,
        )

    def _decide(self, live: _Live, lookup: Lookup) -> None:
        counters = self.counters
        tokens = len(lookup.prompt)
        counters.requests += 1
        if tokens < self.admission.tier.chunk_tokens:
            # Nothing of it can be stored, so it is no part of the pool: a health check that asks every second
            # must not look like sixty agents.
            counters.saved_requests += 1
            return
        task: Hashable = lookup.task
        if task is None:
            task = live.lineage = self.lineage.begin(lookup.hashes, lookup.prompt)
        now_s = self.clock()
        self.admission.observe_lookup(task, tokens, now_s)
        decision = self.admission.decide(tokens, lookup.hit_tokens, now_s)
        counters.pressure_requests += decision.pressure
        if declined := self._skipped.pop(task, 0):
            counters.missed_after_skip_tokens += max(0, min(declined, tokens) - lookup.hit_tokens)
        if decision.save and not lookup.skip_asked:
            counters.saved_requests += 1
            return
        live.save = False
        counters.skipped_requests += 1
        counters.skipped_chunks += decision.new_chunks
        counters.client_skipped_requests += lookup.skip_asked
        self._skipped[task] = tokens
        if len(self._skipped) > _REMEMBERED_SKIPS:
            self._skipped.popitem(last=False)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
