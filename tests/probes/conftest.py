"""Public fault reports beside the checkout: their numbers go in through the command line or the pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).resolve().parents[2].parent / "shared" / "cases" / "inputs"


@pytest.fixture(scope="session")
def case() -> Callable[[str], Any]:
    """Read one report's input by name; the test is skipped where the reports are not beside the checkout."""

    def read(name: str) -> Any:
        if not CASES.is_dir():
            pytest.skip("no ../shared/cases beside this checkout")
        return json.loads((CASES / name).read_text())

    return read
