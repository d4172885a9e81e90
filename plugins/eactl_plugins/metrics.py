"""The record on vLLM's own ``/metrics``: sent along with vLLM's connector statistics, about once a second."""

from __future__ import annotations

from typing import Any

from eactl.telemetry.exported import COUNTERS, GAUGES, POLICY_NUMBERS, PREFIX
from eactl.telemetry.record import TierRecord

KEY = "eactl"


class StatsFeed:
    """Turns records into statistics for vLLM's log thread: counters as increases, gauges as they are."""

    def __init__(self) -> None:
        self._sent: dict[str, int] = {}

    def take(self, record: TierRecord) -> dict[str, Any]:
        counters: dict[str, int] = {}
        gauges: dict[str, float] = {}
        for name in COUNTERS:
            value = getattr(record, name)
            if value is None:
                continue
            rise = value - self._sent.get(name, 0)
            self._sent[name] = value
            counters[name] = value if rise < 0 else rise  # fell: what it counts was restarted
        for name, (attribute, _) in GAUGES.items():
            value = getattr(record, attribute)
            if attribute == "policy":
                value = POLICY_NUMBERS.get(value)
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
        for name, text in COUNTERS.items():
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
