"""The thread that reads the tier and writes the state file, once per interval, whatever the engine is doing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from eactl.telemetry.statefile import write_state
from eactl_plugins.gate import AdmissionGate

logger = logging.getLogger("vllm.eactl")


class Publisher:
    """Calls ``read_tier`` (if any) and writes ``gate.record()`` to ``path`` every ``interval_s`` seconds.

    A tier that cannot be read and a file that cannot be written are logged when they start and stop failing.
    """

    def __init__(
        self, gate: AdmissionGate, path: Path, interval_s: float, read_tier: Callable[[], None] | None = None
    ) -> None:
        self._gate = gate
        self._path = path
        self._interval_s = interval_s
        self._read_tier = read_tier
        self._stop = threading.Event()
        self._failing: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="eactl-publisher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and take the file away: a reader must not think that this engine still lives."""
        self._stop.set()
        self._thread.join(timeout=3)
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        while True:
            due_s = time.monotonic() + self._interval_s
            if self._read_tier is not None:
                self._attempt("reading the tier", self._read_tier)
            self._attempt(f"writing {self._path}", self._write)
            if self._stop.wait(max(0.0, due_s - time.monotonic())):
                return

    def _write(self) -> None:
        write_state(self._path, self._gate.record())

    def _attempt(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if what not in self._failing:
                logger.warning("eactl: %s fails (%s: %s); serving goes on", what, type(error).__name__, error)
            self._failing[what] = str(error)
        else:
            if self._failing.pop(what, None) is not None:
                logger.info("eactl: %s works again", what)
