"""Write admission for LMCache's in-process mode: ``LMCacheConnectorV1``, vLLM 0.32/0.33 with LMCache 0.5.6.

Also written for vLLM 0.13.0 with LMCache 0.3.12, the published stack. Use it with ``--kv-transfer-config`` as
``kv_connector`` EactlInProcessConnector from module eactl_plugins.inprocess_connector. The scheduler decides; each
worker counts its tier and sends the counts along with vLLM's connector statistics.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import LMCacheConnectorV1
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

from eactl.policy import Admission, Lineage, TierReport, TierSize
from eactl_plugins.gate import AdmissionGate, TierState, logger
from eactl_plugins.hooks import GateHooks
from eactl_plugins.inprocess_tier import RankTier
from eactl_plugins.metrics import KEY, Metrics, StatsFeed, merge
from eactl_plugins.publisher import Publisher
from eactl_plugins.settings import LAZY, PluginSettings
from eactl_plugins.vllm_request import lookup_of, mark_skip_save
from eactl_plugins.vllm_steps import bytes_per_token, dp_rank, engine_name, gpu_kv_tokens

TIER = "tier"


class EactlInProcessConnector(GateHooks, LMCacheConnectorV1):  # type: ignore[misc]
    """LMCache's connector, whose requests store only what the policy admits."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None) -> None:
        settings = PluginSettings.from_extra_config(vllm_config.kv_transfer_config.kv_connector_extra_config)
        if settings.policy == LAZY:
            raise ValueError("eactl.policy: lazy offload exists in multi-process mode only")
        if kv_cache_config is None:  # vLLM 0.13 passes two arguments
            super().__init__(vllm_config, role)
        else:
            super().__init__(vllm_config, role, kv_cache_config)
        self._settings = settings
        self._gate: AdmissionGate | None = None
        self._tier: RankTier | None = None
        self._tier_failed = False
        self._sent_at_s = 0.0
        if role == KVConnectorRole.SCHEDULER:
            self._start_gate(vllm_config, kv_cache_config)

    def _start_gate(self, vllm_config: Any, kv_cache_config: Any) -> None:
        settings, config = self._settings, self._lmcache_engine.config
        chunk_tokens = int(config.chunk_size)
        per_token = settings.bytes_per_token or bytes_per_token(kv_cache_config)
        host_bytes = settings.host_bytes or int(float(config.max_local_cpu_size) * (1 << 30))
        if not per_token:
            raise ValueError("eactl.bytes_per_token: this vLLM does not tell it, so it has to be given")
        # No watermark here: LMCache evicts when an allocation finds no room, so full means full.
        tier = TierSize(chunk_tokens, per_token, host_bytes, kept_share=settings.kept_share or 1.0)
        block_tokens = getattr(kv_cache_config, "hash_block_size", None) or vllm_config.cache_config.block_size
        self._gate = AdmissionGate(
            Admission(settings.policy, tier, settings.admission(chunk_tokens)),
            Lineage(block_tokens),
            engine=engine_name(vllm_config),
            gpu_kv_tokens=gpu_kv_tokens(kv_cache_config),
        )
        self._feed = StatsFeed()
        path = settings.state_path(self._gate.engine, dp_rank(vllm_config))
        self._publisher = Publisher(self._gate, path, settings.report_every_s)
        logger.info("eactl: policy %s, %d-token chunks of %d bytes, state in %s",
                    settings.policy, chunk_tokens, per_token * chunk_tokens, path)  # fmt: skip

    # The scheduler's hooks. Each first does what LMCache does; what we add must never raise.

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        matched: tuple[int | None, bool] = super().get_num_new_matched_tokens(request, num_computed_tokens)
        gate = self._gate
        if gate is None or matched[0] is None:  # None: the lookup is still under way
            return matched
        try:
            if gate.known(request.request_id):
                gate.resolved_again(request.request_id, request.num_tokens, getattr(request, "num_preemptions", 0))
            else:
                spec = self._lmcache_engine.load_specs.get(request.request_id)
                lookup = lookup_of(request, spec.lmcache_cached_tokens if spec is not None else 0)
                if not gate.resolved(lookup):
                    mark_skip_save(request)  # LMCache reads it when the request starts, and keeps it from then on
        except Exception:
            gate.fault("the lookup")
        return matched

    def update_connector_output(self, connector_output: Any) -> None:
        super().update_connector_output(connector_output)
        if self._gate is None:
            return
        try:
            stats = getattr(connector_output, "kv_connector_stats", None)
            if stats is not None and (reading := stats.data.get(TIER)):
                self._gate.reported(
                    TierReport(reading["registered_chunks"], reading["evicted_chunks"]),
                    TierState(
                        registered_chunks=reading["registered_chunks"],
                        evicted_chunks=reading["evicted_chunks"],
                        stored_chunks=reading["stored_chunks"],
                    ),
                )
        except Exception:
            self._gate.fault("a worker's report")

    # Both sides send statistics: workers their tier's counts to the scheduler, the scheduler ours to /metrics.

    def get_kv_connector_stats(self) -> Any:
        now_s = time.monotonic()
        if now_s - self._sent_at_s < self._settings.report_every_s:
            return None
        self._sent_at_s = now_s
        if self._gate is not None:
            try:
                return EactlStats(data={KEY: self._feed.take(self._gate.record())})
            except Exception:
                self._gate.fault("the metrics")
                return None
        return EactlStats(data={TIER: self._tier.reading()}) if self._watch_tier() and self._tier else None

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._watch_tier()  # before the first store
        super().start_load_kv(forward_context, **kwargs)

    def _watch_tier(self) -> bool:
        """Attach to LMCache's engine as soon as there is one; a fault of ours leaves it as it was."""
        if self._tier is None and not self._tier_failed:
            engine = getattr(self._lmcache_engine, "lmcache_engine", None)
            if engine is None or getattr(engine, "storage_manager", None) is None:
                return False
            try:
                self._tier = RankTier(engine, deduplicate=self._settings.policy != "none")
            except Exception:
                self._tier_failed = True
                logger.exception("eactl: this LMCache's tier cannot be watched; the policy goes by its estimate alone")
        return self._tier is not None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Any:
        return EactlStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine: Any) -> Any:
        return EactlPromMetrics(vllm_config, metric_types, labelnames, per_engine)


@dataclass
class EactlStats(KVConnectorStats):  # type: ignore[misc]
    """A worker's reading of its tier under ``tier``, the scheduler's counters and gauges under ``eactl``."""

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: Any) -> Any:
        self.data[KEY] = merge(self.data.get(KEY), other.data.get(KEY))
        ours, theirs = self.data.get(TIER), other.data.get(TIER)
        # Ranks hold the same chunks; a lookup needs all of them, so the emptiest counts, and any eviction.
        self.data[TIER] = theirs if not ours else ours if not theirs else {
            "registered_chunks": min(ours["registered_chunks"], theirs["registered_chunks"]),
            "evicted_chunks": max(ours["evicted_chunks"], theirs["evicted_chunks"]),
            "stored_chunks": max(ours["stored_chunks"], theirs["stored_chunks"]),
            "copies_avoided": max(ours["copies_avoided"], theirs["copies_avoided"]),
        }  # fmt: skip
        return self

    def reduce(self) -> dict[str, int | float]:
        tier = self.data.get(TIER) or {}
        return {f"tier {name.replace('_', ' ')}": value for name, value in tier.items()}

    def is_empty(self) -> bool:
        return not self.data.get(KEY) and not self.data.get(TIER)


class EactlPromMetrics(KVConnectorPromMetrics):  # type: ignore[misc]
    """Our metrics in the API server."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine)
        self._eactl = Metrics(self._gauge_cls, self._counter_cls, labelnames, per_engine)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        self._eactl.observe(transfer_stats_data.get(KEY), engine_idx)
