"""Where a record can be read: a state file, an engine's or a server's ``/metrics``, LMCache's log."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from eactl.errors import UsageError
from eactl.telemetry.exported import COUNTERS, GAUGES, POLICY_NUMBERS, PREFIX
from eactl.telemetry.prometheus import figure, totals
from eactl.telemetry.record import TierRecord
from eactl.telemetry.statefile import read_state, state_dir

_TIMEOUT_S = 5.0
_MAX_BYTES = 32 << 20
_SILENT_S = 10.0  # ten intervals of a plugin that writes every second
_LOG_LINE = re.compile(r"hit tokens: (\d+), need to load: (-?\d+)")


@dataclass(frozen=True, slots=True)
class Reading:
    """A record, or why there is none, with what a reader should know about it.

    ``metrics`` says under which exported name each figure was found.
    """

    record: TierRecord | None
    warnings: tuple[dict[str, str], ...] = ()
    metrics: dict[str, str] = field(default_factory=dict)


class Source(Protocol):
    """Something that can be read again and again. ``read`` raises OSError or ValueError when it cannot be now."""

    name: str

    def read(self) -> Reading: ...


def open_source(text: str) -> Source:
    """The source behind a URL or a path. Raises UsageError for an address that is neither."""
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"not an address: {text}", where="--url", hint="write it as http://host:port")
        return UrlSource(text if parts.path not in ("", "/") else f"{text.rstrip('/')}/metrics")
    if re.fullmatch(r"[\w.-]+:\d{1,5}", text) and not Path(text).exists():
        return UrlSource(f"http://{text}/metrics")
    path = Path(text)
    if path.is_dir():
        raise UsageError(f"{path} is a directory", where="--url", hint="name a state file in it, or an address")
    return FileSource(path)


def local_sources() -> list[Source]:
    """The state files of this user's engines: those still written, or if there are none, all that were left."""
    files = sorted(state_dir().glob("tier-*.json"))
    alive = [path for path in files if time.time() - _written_s(path) < 60]
    return [FileSource(path) for path in alive or files]


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # its engine has just ended
        return 0.0


class FileSource:
    """A plugin's state file; else saved Prometheus text, or LMCache's log."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def read(self) -> Reading:
        with self._path.open("rb") as stream:
            start = stream.read(4096)
        if start.lstrip().startswith(b"{"):
            return self._state()
        if self._path.stat().st_size > _MAX_BYTES:
            return self._log()
        try:
            return from_metrics(self._path.read_text(errors="replace"), self.name)
        except ValueError:
            return self._log()

    def _state(self) -> Reading:
        record = read_state(self._path)
        # An engine that no longer writes is not one whose tier was read a moment ago.
        silent_s = max(0.0, time.time() - record.at_s)
        age_s = None if record.age_s is None else record.age_s + silent_s
        warnings = () if silent_s < _SILENT_S else (_warning(
            "not-written", f"the file was last written {silent_s:.0f} s ago",
            "the engine has stopped, or cannot write it (see its log)",
        ),)  # fmt: skip
        return Reading(replace(record, source=self.name, age_s=age_s), warnings)

    def _log(self) -> Reading:
        with self._path.open(errors="replace") as lines:
            return from_log(lines, self.name)


class UrlSource:
    """``/metrics`` of a vLLM server, with our plugin or without, or of an LMCache server."""

    def __init__(self, url: str) -> None:
        self.name = url

    def read(self) -> Reading:
        request = urllib.request.Request(self.name, headers={"Accept": "text/plain"})  # noqa: S310 - checked when opened
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
                text = response.read(_MAX_BYTES + 1).decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            raise OSError(f"it answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise OSError(getattr(error.reason, "strerror", None) or str(error.reason)) from None
        except http.client.HTTPException as error:
            raise OSError(str(error) or type(error).__name__) from None
        if len(text) > _MAX_BYTES:
            raise ValueError(f"it answered more than {_MAX_BYTES >> 20} MiB")
        return from_metrics(text, self.name)


def from_log(lines: Iterable[str], source: str) -> Reading:
    """Count what "need to load" lines say was restored.

    A negative figure is normal: GPU blocks are finer than chunks, so the GPU can hold more than the tier has. Nothing
    is loaded then, so it counts as 0 and never against other requests.
    """
    requests = restored = negative = 0
    for line in lines:
        if match := _LOG_LINE.search(line):
            requests += 1
            restored += max(0, int(match.group(2)))
            negative += int(match.group(2)) < 0
    if not requests:
        raise ValueError("it is no state file, no metrics text and no log of LMCache")
    warnings = [_warning(
        "negative-load", f"{negative} of {requests} requests needed less than nothing from the tier",
        "normal: the GPU held more of them than the tier's whole chunks; counted as 0",
    )] if negative else []  # fmt: skip
    return Reading(
        TierRecord(at_s=time.time(), policy="unknown", source=source, requests=requests, restored_tokens=restored),
        tuple(warnings),
    )


def from_metrics(text: str, source: str) -> Reading:
    """A record from Prometheus text. What is not exported stays None. Raises ValueError when nothing is known."""
    sums = totals(text)
    ours = {name[len(PREFIX) :]: value for name, value in sums.items() if name.startswith(PREFIX)}
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    for metric, (field_name, _) in GAUGES.items():
        if metric in ours:
            values[field_name] = _typed(field_name, ours[metric])
            names[field_name] = PREFIX + metric
    for counter in COUNTERS:
        if f"{counter}_total" in ours:
            values[counter] = int(ours[f"{counter}_total"])
            names[counter] = f"{PREFIX}{counter}_total"
    for field_name, aliased in _FALLBACKS.items():
        if field_name not in values:
            value, metric_name = figure(sums, aliased)
            if value is not None and metric_name is not None:
                values[field_name], names[field_name] = int(value), metric_name
    warnings = _old_gauges(sums)
    if not values:
        if warnings:
            return Reading(TierRecord(at_s=time.time(), policy="unknown", source=source), warnings)
        raise ValueError("it exports no metric of vLLM, LMCache or eactl that is known here")
    now_s = time.time()
    published_s = values.get("at_s")
    if values.get("age_s") is not None and published_s:
        values["age_s"] += max(0.0, now_s - published_s)
    values |= {"source": source, "at_s": now_s, "policy": values.get("policy", "unknown")}
    capacity, registered = values.get("capacity_chunks"), values.get("registered_chunks")
    if capacity and registered is not None:
        values["occupancy"] = registered / capacity
    if (
        values.get("gpu_kv_tokens")
        and values.get("mean_prompt_tokens") is not None
        and values.get("agents") is not None
    ):
        values["gamma_g"] = values["agents"] * values["mean_prompt_tokens"] / values["gpu_kv_tokens"]
    if values.get("host_bytes") and values.get("working_set_bytes") is not None:
        values["gamma_h"] = values["working_set_bytes"] / values["host_bytes"]
    return Reading(TierRecord(**values), warnings, names)


# What vLLM and LMCache export themselves, where our plugin does not
_FALLBACKS = {
    "gpu_hit_tokens": "gpu_hit_tokens", "restored_tokens": "host_hit_tokens", "preemptions": "preemptions",
    "evicted_chunks": "evicted_chunks", "failed_allocation_chunks": "failed_allocation_chunks",
}  # fmt: skip


def _typed(field_name: str, value: float) -> Any:
    if field_name == "policy":
        return {number: name for name, number in POLICY_NUMBERS.items()}.get(int(value), "unknown")
    if field_name in ("full_and_evicting", "pressure"):
        return bool(value)
    if field_name in ("at_s", "started_at_s", "age_s", "mean_prompt_tokens", "working_set_bytes",
                      "tier_bytes_per_token"):  # fmt: skip
        return value
    return int(value)


def _old_gauges(sums: dict[str, float]) -> tuple[dict[str, str], ...]:
    stale = [name for name in ("lmcache:retrieve_hit_rate", "lmcache:cache_hit_rate") if name in sums]
    if not stale:
        return ()
    hits, tokens = figure(sums, "lookup_hit_tokens")[0], figure(sums, "lookup_tokens")[0]
    real = f"its lookup counters say {hits / tokens:.0%}" if hits is not None and tokens else "do not go by it"
    return (_warning(
        "hit-rate-gauge", f"{stale[0]} is always near 1: it only sees tokens that a lookup had found",
        f"{real}; use lmcache:lookup_hit_rate or the lookup counters",
    ),)  # fmt: skip


def _warning(code: str, text: str, hint: str) -> dict[str, str]:
    return {"code": code, "text": text, "hint": hint}
