"""The record on vLLM's own ``/metrics``: sent along with vLLM's connector statistics, about once a second."""

from __future__ import annotations

from typing import Any

from eactl.telemetry.record import COUNTERS, TierRecord

KEY = "eactl"
PREFIX = "eactl:"
GAUGES = {
    "report_timestamp_seconds": ("at_s", "When the engine last published its state (Unix time)."),
    "report_age_seconds": ("age_s", "Age of the tier's own report at that time."),
    "registered_chunks": ("registered_chunks", "Chunks that the host tier holds."),
    "capacity_chunks": ("capacity_chunks", "Chunks that fit the host tier's configured size."),
    "evicted_window_chunks": ("evicted_window", "Chunks evicted to make room within the policy's window."),
    "full_and_evicting": ("full_and_evicting", "1 while the tier is full and evicts (Eq. 10)."),
    "active_agents": ("agents", "Tasks with a request in the policy's window."),
    "mean_prompt_tokens": ("mean_prompt_tokens", "Mean prompt length of the latest requests."),
    "working_set_bytes": ("working_set_bytes", "Reuse working set (Eq. 5), all ranks."),
    "host_bytes": ("host_bytes", "Configured size of the host tier, all ranks."),
    "tier_bytes_per_token": ("tier_bytes_per_token", "Bytes that the tier takes for a token, all ranks."),
    "pressure": ("pressure", "1 while large refills are declined."),
}
HELP = {
    "requests": "Requests that were decided.",
    "skipped_requests": "Requests whose new KV was not stored.",
    "saved_requests": "Requests that were allowed to store.",
    "pressure_requests": "Requests that were decided under pressure.",
    "skipped_chunks": "New full chunks of declined requests.",
    "client_skipped_requests": "Requests that asked not to be stored.",
    "missed_after_skip_tokens": "Tokens looked for in vain after their task had been declined.",
    "evicted_chunks": "Chunks evicted to make room.",
    "failed_allocation_chunks": "Chunks dropped because the tier had no room at that moment.",
    "stored_tokens": "Tokens written to the host tier.",
    "restored_tokens": "Tokens restored from the host tier.",
    "gpu_hit_tokens": "Prompt tokens found in the GPU's cache.",
    "computed_tokens": "Prompt tokens computed (prefill).",
    "preemptions": "Preempted requests.",
    "faults": "Faults of the plugin that were passed over.",
}


def exported_names() -> list[str]:
    """Every metric name as it stands on ``/metrics``."""
    return [f"{PREFIX}{name}" for name in GAUGES] + [f"{PREFIX}{name}_total" for name in HELP]


class StatsFeed:
    """Turns records into statistics for vLLM's log thread: counters as increases, gauges as they are."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}

    def take(self, record: TierRecord) -> dict[str, Any]:
        counters, gauges = {}, {}
        for name in COUNTERS:
            value = getattr(record, name)
            if value is None or name not in HELP:
                continue
            rise = value - self._sent.get(name, 0)
            self._sent[name] = value
            counters[name] = value if rise < 0 else rise  # fell: what it counts was restarted
        for name, (attribute, _) in GAUGES.items():
            value = getattr(record, attribute)
            if value is not None:
                gauges[name] = float(value)
        return {"counters": counters, "gauges": gauges}


def merge(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any] | None:
    """Two of StatsFeed's statistics as one: increases add up, the later gauges stand."""
    if not left or not right:
        return right or left
    counters = dict(left["counters"])
    for name, rise in right["counters"].items():
        counters[name] = counters.get(name, 0) + rise
    return {"counters": counters, "gauges": {**left["gauges"], **right["gauges"]}}


class Metrics:
    """The metrics in the engine's API server; built from what vLLM gives a connector's ``build_prom_metrics``."""

    def __init__(self, gauge: Any, counter: Any, labels: list[str], values: dict[int, list[object]]) -> None:
        self._gauges: dict[str, dict[int, Any]] = {}
        self._counters: dict[str, dict[int, Any]] = {}
        for name, (_, text) in GAUGES.items():
            metric = gauge(name=PREFIX + name, documentation=text, labelnames=labels, multiprocess_mode="mostrecent")
            self._gauges[name] = {engine: metric.labels(*labelled) for engine, labelled in values.items()}
        for name, text in HELP.items():
            metric = counter(name=PREFIX + name, documentation=text, labelnames=labels)
            self._counters[name] = {engine: metric.labels(*labelled) for engine, labelled in values.items()}

    def observe(self, data: dict[str, Any] | None, engine: int) -> None:
        if not data:
            return
        for name, rise in data["counters"].items():
            if rise > 0 and name in self._counters:
                self._counters[name][engine].inc(rise)
        for name, value in data["gauges"].items():
            if name in self._gauges:
                self._gauges[name][engine].set(value)
