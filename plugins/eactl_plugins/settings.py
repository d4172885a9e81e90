"""The plugin's part of ``kv_connector_extra_config``: keys that start with ``eactl.``, checked once at start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eactl.policy import POLICIES, AdmissionSettings
from eactl.telemetry.statefile import engine_file, state_dir

# Table 7 gives κ as 8 chunks of 1,024 tokens; with other chunks the same amount of KV is meant.
KAPPA_TOKENS = 8 * 1024
LAZY = "lazy"  # LMCache's own eviction-aware offload decides; we only watch


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What ``eactl serve`` passes to the connector; every key may also be written by hand.

    ``host_bytes`` and ``bytes_per_token`` cover all ranks; None where the connector is to find them out itself.
    ``status_urls`` are the HTTP addresses of LMCache's multi-process servers. Raises ValueError, naming the key.
    """

    policy: str = "conditioned"
    kappa_chunks: int | None = None
    theta: float = 0.95
    window_s: float = 60.0
    fresh_s: float = 5.0
    report_every_s: float = 1.0
    host_bytes: int | None = None
    bytes_per_token: int | None = None
    kept_share: float | None = None
    status_urls: tuple[str, ...] = ()
    state_file: Path | None = None

    @classmethod
    def from_extra_config(cls, extra: Mapping[str, Any] | None) -> PluginSettings:
        values: dict[str, Any] = {}
        for key, value in (extra or {}).items():
            if not key.startswith("eactl."):
                continue
            name = key.removeprefix("eactl.")
            if name not in _READERS:
                raise ValueError(f"unknown key {key!r}, known are {', '.join(f'eactl.{known}' for known in _READERS)}")
            if value is None:
                continue
            try:
                values[name] = _READERS[name](value)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{key}: {error}") from None
        return cls(**values)

    def admission(self, chunk_tokens: int) -> AdmissionSettings:
        kappa = self.kappa_chunks if self.kappa_chunks is not None else max(1, KAPPA_TOKENS // chunk_tokens)
        return AdmissionSettings(kappa_chunks=kappa, theta=self.theta, window_s=self.window_s, fresh_s=self.fresh_s)

    def state_path(self, engine: str, dp_rank: int | None) -> Path:
        """Where ``engine`` publishes; data-parallel engines share these settings, so each adds its number."""
        if self.state_file is None:
            return state_dir() / f"tier-{engine}.json"
        return engine_file(self.state_file, dp_rank)


def _policy(value: object) -> str:
    known = (*POLICIES, LAZY)
    if value not in known:
        raise ValueError(f"unknown policy {value!r}, known are {', '.join(known)}")
    return str(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a whole number of at least 0")
    return value


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{value!r} is not a number above 0")
    return float(value)


def _share(value: object) -> float:
    number = _positive(value)
    if number > 1:
        raise ValueError(f"{value!r} is not a share between 0 and 1")
    return number


def _urls(value: object) -> tuple[str, ...]:
    urls = [value] if isinstance(value, str) else value
    if not isinstance(urls, list | tuple) or not all(isinstance(url, str) for url in urls):
        raise ValueError(f"{value!r} is not a list of addresses")
    for url in urls:
        if not url.startswith("http://"):
            raise ValueError(f"{url!r} is not an http:// address")
    return tuple(url.rstrip("/") for url in urls)


_READERS: dict[str, Callable[[object], object]] = {
    "policy": _policy, "kappa_chunks": _whole, "theta": _share, "window_s": _positive, "fresh_s": _positive,
    "report_every_s": _positive, "host_bytes": _whole, "bytes_per_token": _whole, "kept_share": _share,
    "status_urls": _urls, "state_file": lambda value: Path(str(value)),
}  # fmt: skip
