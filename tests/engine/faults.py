"""Faults of ours on demand: while the file that FAULT_FILE names holds the name of a hook, the gate's hook raises.

Imported by the modules of the connectors that tests start engines with.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eactl_plugins.gate import AdmissionGate
from tests.engine.on_demand import FAULT_FILE, HOOKS


def _failing(hook: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        path = os.environ.get(FAULT_FILE)
        if path and Path(path).exists() and Path(path).read_text() == hook:
            raise RuntimeError(f"a fault in {hook}, made by a test")
        return original(*args, **kwargs)

    return wrapped


for _hook in HOOKS:
    setattr(AdmissionGate, _hook, _failing(_hook, getattr(AdmissionGate, _hook)))
