"""Reading LMCache's multi-process servers over HTTP: occupancy from ``/status``, counters from ``/metrics``."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from eactl.telemetry.prometheus import ALIASES, totals

_TIMEOUT_S = 2.0
_MAX_BYTES = 8 << 20
_COUNTERS = ("evicted_chunks", "written_chunks", "failed_allocation_chunks")


@dataclass(frozen=True, slots=True)
class ServerReading:
    """One or several servers' L1 taken together. Objects are chunks of one rank each."""

    objects: int
    used_bytes: int
    total_bytes: int
    watermark: float
    eviction_ratio: float
    evicted_objects: int
    written_objects: int | None
    failed_objects: int | None

    def bytes_per_token(self, pieces: int, chunk_tokens: int) -> int | None:
        """What one token takes here, by what is stored; None while nothing is. A chunk is ``pieces`` objects.

        The engine's own figure can be another: its cache may be compressed where the tier's copy is not.
        """
        return self.used_bytes * pieces // (self.objects * chunk_tokens) if self.objects else None


class ServerReader:
    """Reads all of ``urls`` (http://host:port) at once; keeps the connections. Raises OSError or ValueError."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._connections = []
        for url in urls:
            parts = urlsplit(url)
            self._connections.append(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S))

    def read(self) -> ServerReading:
        readings = [_read_one(connection) for connection in self._connections]
        return ServerReading(
            objects=sum(reading.objects for reading in readings),
            used_bytes=sum(reading.used_bytes for reading in readings),
            total_bytes=sum(reading.total_bytes for reading in readings),
            watermark=min(reading.watermark for reading in readings),
            eviction_ratio=max(reading.eviction_ratio for reading in readings),
            evicted_objects=sum(reading.evicted_objects for reading in readings),
            written_objects=_sum_known([reading.written_objects for reading in readings]),
            failed_objects=_sum_known([reading.failed_objects for reading in readings]),
        )


def _read_one(connection: http.client.HTTPConnection) -> ServerReading:
    status = json.loads(_get(connection, "/status"))
    try:
        storage = status["storage_manager"]
        level, eviction = storage["l1_manager"], storage["l1_eviction_controller"]
        objects = _count(level["total_object_count"])
        used_bytes = _count(level["memory_used_bytes"])
        total_bytes = _count(level["memory_total_bytes"])
        watermark = float(eviction["trigger_watermark"])
        ratio = float(eviction["eviction_ratio"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"the server's /status has another form than LMCache 0.5.6's: {error!r}") from None
    names = {figure: ALIASES[figure][0] for figure in _COUNTERS}
    sums = totals(_get(connection, "/metrics").decode("utf-8", "replace"), set(names.values()))
    # LMCache exports a counter from its first increment on, so an absent one on a live server is 0.
    counters = {figure: int(sums.get(name, 0)) for figure, name in names.items()}
    return ServerReading(
        objects=objects, used_bytes=used_bytes, total_bytes=total_bytes,
        watermark=watermark, eviction_ratio=ratio,
        evicted_objects=counters["evicted_chunks"], written_objects=counters["written_chunks"],
        failed_objects=counters["failed_allocation_chunks"],
    )  # fmt: skip


def _get(connection: http.client.HTTPConnection, path: str) -> bytes:
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(_MAX_BYTES + 1)
        if response.status != 200 or len(body) > _MAX_BYTES:
            raise ValueError(f"GET {path} answered {response.status} with {len(body)} bytes")
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()  # the next reading opens it again
        if isinstance(error, http.client.HTTPException):
            raise OSError(str(error) or type(error).__name__) from error
        raise
    return body


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"not a count: {value!r}")
    return int(value)


def _sum_known(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
