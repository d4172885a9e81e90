"""The multi-process connector with a policy that a test can change while the engine runs.

Reads a JSON file named by ``eactl.control``: ``{"run": label, "policy": …, "kappa_chunks": …, "window_s": …,
"full": …, "kept": …, "fault": …}``; a new label starts a fresh policy with fresh counters. With ``fault`` every
decision raises.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eactl_plugins.gate import Counters, TierState
from eactl_plugins.mp_connector import EactlMPConnector

from eactl.policy import Admission, AdmissionSettings, Lineage, TierSize


class SwitchableConnector(EactlMPConnector):
    """EactlMPConnector under a test's control."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._control = Path(extra.pop("eactl.control", None) or extra["control"])
        extra["control"] = str(self._control)  # the workers read the same configuration
        self._run: dict[str, Any] = {}
        super().__init__(vllm_config, role, kv_cache_config)

    def _read_tier(self) -> None:
        gate = self._gate
        assert gate is not None
        wanted = json.loads(self._control.read_text())
        if wanted != self._run:
            self._run = wanted
            settings = AdmissionSettings(kappa_chunks=wanted["kappa_chunks"], window_s=wanted["window_s"])
            with gate._lock:
                gate.admission = Admission(wanted["policy"], gate.admission.tier, settings)
                gate.lineage = Lineage(gate.lineage._block_tokens)
                gate.counters = Counters()
                gate.tier = TierState()
            gate.engine, gate.label = wanted["run"], None
            self._written_before = None
            if wanted.get("fault"):
                gate.admission.decide = _fail  # type: ignore[method-assign]
        super()._read_tier()

    def _tier_size(self, per_token: int, host_bytes: int, watermark: float, ratio: float) -> TierSize:
        size = super()._tier_size(per_token, host_bytes, watermark, ratio)
        shares = {"configured": 1.0, "watermark": watermark, "middle": watermark * (1 - ratio / 2),
                  "low": watermark * (1 - ratio)}  # fmt: skip
        full, kept = self._run.get("full", "low"), self._run.get("kept", "middle")
        return TierSize(size.chunk_tokens, per_token, host_bytes, full_share=shares[full], kept_share=shares[kept])


def _fail(*_: object) -> None:
    raise RuntimeError("a fault on purpose")
