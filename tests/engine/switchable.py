"""The multi-process connector with a policy that a test can change while the engine runs.

Reads a JSON file named by ``eactl.control``: ``{"run": label, "policy": …, "settings": {…}, "kept": …,
"turns": …}``; a new label starts a fresh policy with these AdmissionSettings and fresh counters. ``kept`` names another
reading of what the tier keeps. With ``turns`` the windows are measured on a clock that the test sets, so that a slow
machine sees what a fast one does.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from eactl.policy import Admission, AdmissionSettings, Lineage, TierSize
from eactl_plugins.gate import Counters, TierState
from eactl_plugins.mp_connector import EactlMPConnector


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
            settings = AdmissionSettings(**wanted["settings"])
            with gate._lock:
                gate.admission = Admission(wanted["policy"], gate.admission.tier, settings)
                gate.lineage = Lineage(gate.lineage._block_tokens)
                gate.counters = Counters()
                gate.tier = TierState()
            gate.engine, gate.label = wanted["run"], None
            self._written_before = None
            gate.clock = partial(read_turns, self._control) if wanted.get("turns") else time.monotonic
        super()._read_tier()

    def _tier_size(self, per_token: int, host_bytes: int, watermark: float, ratio: float) -> TierSize:
        shares = {"configured": 1.0, "low": watermark * (1 - ratio)}
        size = super()._tier_size(per_token, host_bytes, watermark, ratio)
        return replace(size, kept_share=shares[self._run["kept"]]) if "kept" in self._run else size


def switch(control: Path, wanted: dict[str, Any]) -> None:
    """Have the connector start afresh with this policy."""
    _replace(control, json.dumps(wanted))


def write_turns(control: Path, turns: float) -> None:
    """Set the clock of a run that counts turns."""
    _replace(control.with_suffix(".turns"), repr(turns))


def read_turns(control: Path) -> float:
    return float(control.with_suffix(".turns").read_text())


def _replace(path: Path, text: str) -> None:
    part = path.with_suffix(path.suffix + "-part")
    part.write_text(text)
    part.replace(path)
