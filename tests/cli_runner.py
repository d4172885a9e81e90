"""Running ``eactl`` as a user does: another process, its exit status, its two streams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "eactl"]


def environment(**extra: str) -> dict[str, str]:
    """This process's environment with the checkout importable from any directory, and 100 columns."""
    paths = [ROOT, ROOT / "probes", ROOT / "plugins"]
    python_path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**os.environ, "PYTHONPATH": python_path, "COLUMNS": "100", "EACTL_DEBUG": "", **extra}


def eactl(*arguments: object, env: dict[str, str] | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run one command line to its end, without a terminal."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(**(env or {})),
        stdin=subprocess.DEVNULL,
        stdout=how.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        check=False,
        **how,
    )
