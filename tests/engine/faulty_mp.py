"""The multi-process connector, whose gate fails on demand."""

from __future__ import annotations

import tests.engine.faults  # noqa: F401 - makes the gate fail on demand
from eactl_plugins.mp_connector import EactlMPConnector


class FaultyMPConnector(EactlMPConnector):
    """EactlMPConnector under its own name, so that vLLM loads it from here."""
