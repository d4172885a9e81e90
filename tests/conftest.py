"""What every test may rely on: a steady hypothesis profile, the checkout's root, real traces if any."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shell's background job ignores SIGINT, and children inherit that: tests of Ctrl-C must be able to send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent

# No deadline: a busy machine is not a bug. With CI set, the same examples every time, so that a red run is repeatable.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Bytes are named by their argument: theirs are no readable ids, and a compressed file's hold the time."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Public traces and logs beside the checkout; they are not ours to copy, so tests without them are skipped."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no ../shared/data beside this checkout")
    return folder
