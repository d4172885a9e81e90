"""Restore rates from what a running LMCache already wrote: its log lines, or a saved page of its metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from eactl.errors import UsageError
from eactl.model.link import hits_text
from eactl.model.obr import Figure
from eactl.telemetry.prometheus import figure, totals
from eactl.units import GIB
from eactl_probes.notices import Notices
from eactl_probes.sampling import BAND_TAIL, quantile

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# In-process LMCache, 0.3 to 0.5: "Retrieved 1024 out of 1024 required tokens (from 4096 total tokens). size: 0.0234 gb,
# cost 0.9 ms, throughput: …", where gb and GB are 2^30 bytes.
_IN_PROCESS = re.compile(
    r"\b(?P<what>Retrieved|Stored) (?P<tokens>\d+) out of .*?\bsize: (?P<size>[\d.]+) gb, cost (?P<cost>[\d.]+) ms",
    re.IGNORECASE,
)
_OFFLOAD = re.compile(r"offload_time: (?P<cost>[\d.]+) ms")
# Multi-process server with --enable-extra-logging: per GPU and window, GB are 10^9 bytes here.
_EXTRA = re.compile(r"L0<->L1 stats \[(?P<device>[^\]]+)\] last [\d.]+s: store (?P<store>.+?) \| retrieve (?P<load>.+)")
_SIDE = re.compile(r"ops=(?P<ops>\d+) tokens=(?P<tokens>\d+) size=(?P<size>[\d.]+)GB avg_copy=(?P<rate>[\d.]+)GB/s")
# Multi-process server, always on: the time ends when the copies are queued, not when they are done.
_SERVER = re.compile(r"\bRetrieved (?P<tokens>\d+) tokens in (?P<seconds>[\d.]+) seconds")
_HIT_RATES = re.compile(
    r"Prefix cache hit rate: (?P<local>[\d.]+)%.*?External prefix cache hit rate: (?P<host>[\d.]+)%"
)

_LOAD_HISTOGRAM = "lmcache_mp_l0_l1_load_throughput_GB_per_second"
_STORE_HISTOGRAM = "lmcache_mp_l0_l1_store_throughput_GB_per_second"
_MIN_BYTES = 1 << 20  # smaller restores measure their overhead, not the link


@dataclass
class RestoreLog:
    """Rates found in one or several files."""

    load_rates: list[float] = field(default_factory=list)  # bytes/s, one per event or window
    store_rates: list[float] = field(default_factory=list)
    load_bytes: float = 0.0
    load_tokens: float = 0.0
    events: int = 0
    kinds: set[str] = field(default_factory=set)
    gpu_hits: float = 0.0
    host_hits: float = 0.0
    server_tokens: float = 0.0
    server_seconds: float = 0.0

    @property
    def bandwidth(self) -> Figure:
        """The median rate of restores, and the band that eight of ten lie in."""
        return _figure(self.load_rates)

    @property
    def d2h_bandwidth(self) -> Figure | None:
        """Likewise for stores."""
        return _figure(self.store_rates) if self.store_rates else None

    @property
    def bytes_per_token(self) -> float | None:
        """What a restored token really weighed, where both its bytes and its tokens were logged."""
        return self.load_bytes / self.load_tokens if self.load_tokens and self.load_bytes else None


def read_restore_logs(paths: Sequence[Path], bytes_per_token: float | None, notices: Notices) -> RestoreLog:
    """Rates of all restores in the files. ``bytes_per_token`` prices lines that only count tokens.

    Raises UsageError when a file cannot be read or nothing was restored from the host tier.
    """
    found = RestoreLog()
    for path in paths:
        if path.is_dir() or not path.exists():
            raise UsageError(f"no such file: {path}", where="--from-logs", hint="give a log or a saved /metrics page")
        _read(path, found)
    if not found.load_rates:
        _use_server_lines(found, bytes_per_token, notices)
    if not found.load_rates:
        reason = hits_text(found.gpu_hits, found.host_hits)
        names = ", ".join(str(path) for path in paths)
        if found.gpu_hits and reason:
            raise UsageError(
                reason, where=f"--from-logs {names}", hint="log a run whose context exceeds the GPU's cache"
            )
        if found.host_hits:
            raise UsageError(
                "the tier had hits, but neither bytes nor times of their copies were exported",
                where=f"--from-logs {names}",
                hint="LMCache times copies on a GPU only; give its log instead, or measure the link",
            )
        raise UsageError(
            "no restores from the host tier in the log", where=f"--from-logs {names}",
            hint="it takes LMCache's 'Retrieved … tokens' lines (level INFO) or its /metrics page",
        )  # fmt: skip
    weight = found.bytes_per_token
    if weight and bytes_per_token and abs(weight / bytes_per_token - 1) > 0.05:
        notices.add(
            "tier-weight",
            f"the log's restores weighed {weight:,.0f} bytes per token, the model's KV {bytes_per_token:,.0f}",
            "check --tp and --kv-dtype; a compressed GPU cache is stored in the tier at its own size",
        )
    return found


def _read(path: Path, found: RestoreLog) -> None:
    page: list[str] = []
    with path.open(encoding="utf-8", errors="replace") as stream:
        for raw in stream:
            line = raw.rstrip("\n")
            if line.startswith(("lmcache", "vllm:")):
                page.append(line)
            elif "etrieved" in line or "tored" in line or "L0<->L1" in line or "hit rate" in line:
                _read_line(_COLOUR.sub("", line), found)
    if page:
        _read_metrics("\n".join(page), found)


def _read_line(line: str, found: RestoreLog) -> None:
    if match := _IN_PROCESS.search(line):
        size, seconds = float(match["size"]) * GIB, float(match["cost"]) / 1e3
        is_load = match["what"].lower() == "retrieved"
        if not is_load and (offload := _OFFLOAD.search(line)):
            seconds = float(offload["cost"]) / 1e3
        _count(found, is_load, float(match["tokens"]), size, seconds, "in-process log")
    elif match := _EXTRA.search(line):
        for is_load, text in ((True, match["load"]), (False, match["store"])):
            if side := _SIDE.match(text):
                rate, size = float(side["rate"]) * 1e9, float(side["size"]) * 1e9
                if rate > 0:
                    _count(found, is_load, float(side["tokens"]), size, size / rate, "server log", int(side["ops"]))
    elif match := _SERVER.search(line):
        found.server_tokens += float(match["tokens"])
        found.server_seconds += float(match["seconds"])
    elif match := _HIT_RATES.search(line):
        found.gpu_hits += float(match["local"])
        found.host_hits += float(match["host"])


def _count(
    found: RestoreLog, is_load: bool, tokens: float, size: float, seconds: float, kind: str, events: int = 1
) -> None:
    if size < _MIN_BYTES or seconds <= 0:
        return
    (found.load_rates if is_load else found.store_rates).append(size / seconds)
    if is_load:
        found.load_bytes += size
        found.load_tokens += tokens
        found.events += events
        found.kinds.add(kind)


def _read_metrics(page: str, found: RestoreLog) -> None:
    sums = totals(page)
    found.gpu_hits += figure(sums, "gpu_hit_tokens")[0] or 0.0
    found.host_hits += figure(sums, "host_hit_tokens")[0] or 0.0
    for direction, rates in (("h2d", found.load_rates), ("d2h", found.store_rates)):
        histogram = _LOAD_HISTOGRAM if direction == "h2d" else _STORE_HISTOGRAM
        staged = totals("\n".join(_staging(page, direction)))
        moved = staged.get("lmcache_mp_transfer_phase_bytes_total", 0.0)
        seconds = staged.get("lmcache_mp_transfer_phase_elapsed_seconds_total", 0.0)
        count = sums.get(f"{histogram}_count", 0.0)
        if moved >= _MIN_BYTES and seconds > 0:  # bytes over time, where the server times its copies itself
            rates.append(moved / seconds)
        elif count > 0:  # else the mean of the rates of single requests
            rates.append(sums.get(f"{histogram}_sum", 0.0) / count * 1e9)
        else:
            continue
        if direction == "h2d":
            found.events += int(count) or 1
            found.kinds.add("server metrics")


def _staging(page: str, direction: str) -> Iterator[str]:
    for line in page.splitlines():
        if line.startswith("lmcache_mp_transfer_phase") and f'"{direction}"' in line and '"staging"' in line:
            yield line


def _use_server_lines(found: RestoreLog, bytes_per_token: float | None, notices: Notices) -> None:
    """Fall back on lines whose time is that of queueing the copies: an upper bound of the rate."""
    if not found.server_tokens or not found.server_seconds:
        return
    if bytes_per_token is None:
        raise UsageError(
            "the log counts restored tokens but not bytes", where="--from-logs",
            hint="add --model with --tp, or --kv-bytes-per-token",
        )  # fmt: skip
    found.load_rates.append(found.server_tokens * bytes_per_token / found.server_seconds)
    found.events, found.kinds = 1, {"server log without copy times"}
    notices.add(
        "queue-times",
        "the server's 'Retrieved … in … seconds' lines end when copies are queued: the true rate may be lower",
        "start lmcache server with --enable-extra-logging, or give its /metrics page",
    )


def _figure(rates: Sequence[float]) -> Figure:
    return Figure(median(rates), quantile(rates, BAND_TAIL), quantile(rates, 1 - BAND_TAIL), "logs")
