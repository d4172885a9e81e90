"""Write admission for LMCache's multi-process mode: ``LMCacheMPConnector`` of LMCache 0.5.6, vLLM 0.32 and 0.33.

Use it with ``--kv-transfer-config`` as ``kv_connector`` EactlMPConnector from module eactl_plugins.mp_connector.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from lmcache.integration.vllm.lmcache_mp_connector import LMCacheMPConnector
from lmcache.integration.vllm.lmcache_mp_metrics import LMCacheMPConnectorStats, LMCacheMPPromMetrics
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from eactl.policy import Admission, Lineage, TierReport, TierSize
from eactl_plugins.gate import AdmissionGate, TierState, logger
from eactl_plugins.hooks import GateHooks
from eactl_plugins.metrics import KEY, Metrics, StatsFeed, merge
from eactl_plugins.mp_server import ServerReader
from eactl_plugins.publisher import Publisher
from eactl_plugins.settings import LAZY, PluginSettings
from eactl_plugins.vllm_request import lookup_of
from eactl_plugins.vllm_steps import bytes_per_token, dp_rank, engine_name, gpu_kv_tokens
from eactl_plugins.worker_guard import guard_worker


class EactlMPConnector(GateHooks, LMCacheMPConnector):  # type: ignore[misc]
    """LMCache's connector, whose requests store only what the policy admits."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        settings = PluginSettings.from_extra_config(extra)  # a wrong key stops the engine here, with its name
        super().__init__(vllm_config, role, kv_cache_config)
        self._gate: AdmissionGate | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._start_gate(settings, vllm_config, kv_cache_config)
        else:
            guard_worker(self.worker_adapter)

    def _start_gate(self, settings: PluginSettings, vllm_config: Any, kv_cache_config: Any) -> None:
        strategy = self.scheduler_adapter.parallel_strategy
        self._pieces = strategy.kv_world_size * strategy.n_servers  # objects of one chunk, over all servers
        per_rank = bytes_per_token(kv_cache_config)
        per_token = settings.bytes_per_token or per_rank * self._pieces
        if not per_token:
            raise ValueError("eactl.bytes_per_token: this vLLM does not tell it, so it has to be given")
        self._settings = settings
        self._chunk_tokens = self.scheduler_adapter.lmcache_tokens_per_chunk
        self._single_group = kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) == 1
        tier = self._tier_size(per_token, settings.host_bytes or 0, watermark=1.0, ratio=0.0)
        block_tokens = getattr(kv_cache_config, "hash_block_size", None) or vllm_config.cache_config.block_size
        self._gate = AdmissionGate(
            Admission(
                "none" if settings.policy == LAZY else settings.policy, tier, settings.admission(self._chunk_tokens)
            ),
            Lineage(block_tokens),
            label=settings.policy,
            engine=engine_name(vllm_config),
            gpu_kv_tokens=gpu_kv_tokens(kv_cache_config),
        )
        self._feed = StatsFeed()
        self._fed_at_s = 0.0
        self._reader = ServerReader(settings.status_urls) if settings.status_urls else None
        self._written_before: int | None = None
        path = settings.state_path(self._gate.engine, dp_rank(vllm_config))
        self._publisher = Publisher(
            self._gate, path, settings.report_every_s, self._read_tier if self._reader else None
        )
        logger.info(
            "eactl: policy %s, %d-token chunks of %d bytes, kappa %d chunks, state in %s",
            settings.policy, self._chunk_tokens, per_token * self._chunk_tokens,
            self._gate.admission.settings.kappa_chunks, path,
        )  # fmt: skip
        if self._reader is None and settings.policy == "conditioned":
            logger.warning("eactl: no eactl.status_urls: the policy goes by the working-set estimate alone")

    # The scheduler's hooks. Each first does what LMCache does; what we add must never raise.

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        matched: tuple[int | None, bool] = super().get_num_new_matched_tokens(request, num_computed_tokens)
        gate = self._gate
        if gate is None:
            return matched
        try:
            tracker = self.request_trackers[request.request_id]
            if matched[0] is not None:  # None: the lookup is still under way
                if not gate.known(request.request_id):
                    gate.resolved(lookup_of(request, tracker.num_lmcache_hit_tokens))
                else:
                    gate.resolved_again(request.request_id, request.num_tokens, request.num_preemptions)
            if not gate.saves(request.request_id):
                tracker.max_offload_tokens = 0  # on every call: a preemption makes a new tracker
        except Exception:
            gate.fault("the lookup")
        return matched

    # Telemetry

    def _read_tier(self) -> None:
        if self._gate is None or self._reader is None:
            return
        reading = self._reader.read()
        size = self._gate.admission.tier
        per_token = size.bytes_per_token
        measured = reading.bytes_per_token(self._pieces, self._chunk_tokens) if self._single_group else None
        if measured and abs(measured - per_token) > 0.02 * per_token:
            logger.warning("eactl: the tier takes %d bytes for a token, not %d", measured, per_token)
            per_token = measured
        tier = self._tier_size(per_token, reading.total_bytes, reading.watermark, reading.eviction_ratio)
        if tier != size:
            self._gate.admission.resize(tier)
        chunk_bytes = per_token * self._chunk_tokens
        evicted = reading.evicted_objects // self._pieces
        if self._written_before is None:
            self._written_before = reading.written_objects or 0
        written = (reading.written_objects or 0) - self._written_before
        if written < 0:  # the server was restarted
            written, self._written_before = reading.written_objects or 0, 0
        registered = reading.used_bytes // chunk_bytes
        self._gate.reported(
            TierReport(registered, evicted),
            TierState(
                registered_chunks=registered,
                evicted_chunks=evicted,
                failed_allocation_chunks=(reading.failed_objects or 0) // self._pieces,
                stored_chunks=written // self._pieces,
            ),
        )

    def _tier_size(self, per_token: int, host_bytes: int, watermark: float, ratio: float) -> TierSize:
        size = TierSize.with_watermark(self._chunk_tokens, per_token, host_bytes, watermark=watermark, ratio=ratio)
        return replace(size, kept_share=self._settings.kept_share or size.kept_share)

    def get_kv_connector_stats(self) -> Any:
        stats = super().get_kv_connector_stats()
        gate = self._gate
        now_s = time.monotonic()
        if gate is None or now_s - self._fed_at_s < self._settings.report_every_s:
            return stats
        self._fed_at_s = now_s
        try:
            data = self._feed.take(gate.record())
        except Exception:
            gate.fault("the metrics")
            return stats
        return EactlMPConnectorStats(data={**(stats.data if stats else {}), KEY: data})

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        return EactlMPConnectorStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine: Any) -> Any:
        return EactlMPPromMetrics(vllm_config, metric_types, labelnames, per_engine)


class EactlMPConnectorStats(LMCacheMPConnectorStats):  # type: ignore[misc]
    """LMCache's statistics with ours under one key."""

    def aggregate(self, other: Any) -> Any:
        super().aggregate(other)
        self.data[KEY] = merge(self.data.get(KEY), other.data.get(KEY))
        return self

    def is_empty(self) -> bool:
        return bool(super().is_empty()) and not self.data.get(KEY)


class EactlMPPromMetrics(LMCacheMPPromMetrics):  # type: ignore[misc]
    """LMCache's metrics and ours."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine)
        self._eactl = Metrics(self._gauge_cls, self._counter_cls, labelnames, per_engine)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        super().observe(transfer_stats_data, engine_idx)
        self._eactl.observe(transfer_stats_data.get(KEY), engine_idx)
