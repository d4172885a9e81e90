"""Running a launch plan: start, wait until healthy, prefix logs, forward signals, end the children whatever happens."""

from __future__ import annotations

import ctypes
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from eactl.errors import CannotRunHereError
from eactl.serving.logs import reason
from eactl.serving.plan import Plan, Process
from eactl.telemetry.statefile import engine_files

_PR_SET_PDEATHSIG = 1
_KEPT_LINES = 2000
_HELPERS_S = 5.0
STOP_S = 20.0  # vLLM needs a few seconds to end its workers


class Child:
    """A running process whose output goes to ``write``, each line with the process's name before it."""

    def __init__(self, process: Process, write: Callable[[str], None]) -> None:
        self.process = process
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._popen = subprocess.Popen(  # noqa: S603 - the plan's command line, no shell
            process.argv,
            env=process.environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a group of its own: Ctrl-C reaches it once, through us
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        self._reader = threading.Thread(target=self._copy, args=(self._popen.stdout, write), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def status(self) -> int | None:
        """Exit status, None while it runs."""
        return self._popen.poll()

    def signal(self, number: int) -> None:
        if self.status is None:
            with suppress(ProcessLookupError):
                self._popen.send_signal(number)

    def end(self, patience_s: float) -> None:
        """Ask it to stop, then take down its whole group, workers that it left behind included."""
        self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(patience_s)
        if self.status is not None:  # its helpers still have shared memory to unlink
            deadline_s = time.monotonic() + _HELPERS_S
            while _group_lives(self._popen.pid) and time.monotonic() < deadline_s:
                time.sleep(0.05)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        self._reader.join(timeout=2)

    def _copy(self, stream: IO[bytes] | None, write: Callable[[str], None]) -> None:
        for raw in stream or ():
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            self.lines.append(line)
            with suppress(OSError, ValueError):  # nobody reads our output any more: the child must not block on it
                write(f"[{self.process.name}] {line}")


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def run_plan(plan: Plan, *, wait_s: float, write: Callable[[str], None], ready: Callable[[], None]) -> int:
    """Run the plan until it is told to stop; 0 after SIGTERM, 130 after SIGINT.

    Raises CannotRunHereError when a process fails or is not healthy within ``wait_s``, with the reason from its log.
    """
    children: list[Child] = []
    with _forwarded(children) as stop:
        try:
            for process in plan.processes:
                child = Child(process, write)
                children.append(child)
                _wait_until_ready(child, children, stop, wait_s)
            if not stop:
                ready()
            while not stop:
                _check(children)
                time.sleep(0.2)
        except KeyboardInterrupt:
            stop.append(signal.SIGINT)
        finally:
            for child in reversed(children):  # vLLM first: it still talks to the server
                child.end(STOP_S)
            if plan.shm_file:
                with suppress(OSError):
                    Path(plan.shm_file).unlink()
            if plan.state_file:  # vLLM kills its engines rather than wait for them
                for path in engine_files(plan.state_file):
                    path.unlink(missing_ok=True)
    return 130 if stop and stop[0] == signal.SIGINT else 0


def _wait_until_ready(child: Child, children: list[Child], stop: list[int], wait_s: float) -> None:
    deadline_s = time.monotonic() + wait_s
    while not stop and not _answers(child.process.ready_url):
        _check(children)
        if time.monotonic() > deadline_s:
            raise CannotRunHereError(
                f"{child.process.name} did not become healthy within {wait_s:g} s", where=child.process.ready_url,
                hint="see its log above, or wait longer with --wait",
            )  # fmt: skip
        time.sleep(0.2)


def _check(children: list[Child]) -> None:
    for child in children:
        if (status := child.status) is not None:
            time.sleep(0.3)  # its last lines may still be on their way
            why = reason(child.lines)
            ended = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            if status == -signal.SIGKILL and why is None:
                why = "probably the system ran out of memory: choose a smaller --host-gib"
            raise CannotRunHereError(
                f"{child.process.name} {ended}: {why or 'its log gives no reason'}", where=child.process.name,
                hint="its log is above",
            )  # fmt: skip


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - http:// from our own plan
            return bool(response.status == 200)
    except (OSError, ValueError, http.client.HTTPException):  # the last: what answers speaks no HTTP
        return False


@contextmanager
def _forwarded(children: list[Child]) -> Iterator[list[int]]:
    """Within the block SIGINT, SIGTERM and SIGHUP are noted in the list that is given, and others passed on."""
    stop: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        stop.append(number)

    def forward(number: int, _frame: FrameType | None) -> None:
        for child in children:
            child.signal(number)

    handlers = {signal.SIGINT: note, signal.SIGTERM: note, signal.SIGHUP: note,
                signal.SIGUSR1: forward, signal.SIGUSR2: forward}  # fmt: skip
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with_parent() -> None:
    """In the child: be told to stop when serve dies, even by SIGKILL (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
