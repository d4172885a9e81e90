"""Every public log beside the checkout through the commands that take logs: read, or refused with its reason.

What the readers count is compared with independent counts in tests/trace/test_text_shared_data.py.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eactl.cli import run

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
EMPTY = "ea09a0dc475dbe00b56101ef665b8c03.jsonl"
NO_TEXT = r"holds? no text, .*, eactl size and eactl trace profile read it"
COUNTS = r"holds token counts only, no prefix identity"
NO_LOG = r"holds no JSON and no request lines"
PATHS = sorted(path for path in DATA.rglob("*") if path.is_file() or path.is_dir()) if DATA.is_dir() else []
BLOCKS = [path for path in PATHS if path.is_file() and path.parent.name in ("kv-cache-tester", "mooncake")]
pytestmark = pytest.mark.skipif(not PATHS, reason="no ../shared/data beside this checkout")


def refusal(path: Path, command: str) -> str | None:
    """Why ``command`` must refuse ``path``, as a pattern; None where it must read it."""
    part = path.relative_to(DATA).parts[0] if path != DATA else ""
    if path.suffix == ".md":
        return NO_LOG
    if path.name == EMPTY:
        return "the file is empty"
    if part == "azure-llm-2023":
        return COUNTS
    if part in ("kv-cache-tester", "mooncake") and command == "condenser-check":
        return NO_TEXT
    return None


def answer(command: str, path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    options = {
        "condenser-check": ["condenser-check", str(path), "--json"],
        "profile": ["trace", "profile", str(path), "--json"],
        "size": ["size", "--trace", str(path), "--kv-bytes-per-token", "24576", "--capacity", "1,4", "--no-bound",
                 "--json"],
    }[command]  # fmt: skip
    status = run(options)
    captured = capsys.readouterr()
    return status, json.loads(captured.out) if captured.out else {}, captured.err


def outcome(command: str, path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any] | None:
    """The document, looked over; None where ``path`` was refused as it must be."""
    reason = refusal(path, command)
    status, document, errors = answer(command, path, capsys)
    assert "Traceback" not in errors
    if reason is not None:
        assert status == 2, path
        [error] = [line for line in errors.splitlines() if line.startswith("eactl: error: ")]
        assert re.search(reason, error), error
        assert path.name in error and error.count(", ") >= 2, error  # what, where, what to try
        return None
    assert status == 0, (path, errors)
    if command == "condenser-check":
        look_over_turns(path, document)
    elif command == "profile":
        work = document["workload"]
        assert 0 <= work["previous_prompt_shared_tokens"] <= work["stable_tokens_upper"] <= work["prompt_tokens"]
    else:
        for order in document["orders"]:
            assert order["curve"][0]["host_gib"] == 0 < order["curve"][0]["computed_tokens"]
    return document


def look_over_turns(path: Path, document: dict[str, Any]) -> None:
    turns = [turn for session in document["sessions"] for turn in session["turns"]]
    assert sum(turn["prompt_tokens"] for turn in turns) == document["summary"]["prompt_tokens"] > 0
    for turn in turns:
        assert 0 <= turn["stable_tokens_lower"] <= turn["stable_tokens"] <= turn["prompt_tokens"]
        broken = turn["cause"] not in ("append", "first-call")
        assert (turn["remedy"] is not None) == (turn["where"] is not None) == broken, (path, turn)


def test_every_file_is_read_or_refused_with_a_reason_and_counted_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """Requests agree everywhere, prompt tokens where every request of a file was measured."""
    read = refused = 0
    for path in filter(Path.is_file, PATHS):
        checked, profiled = (outcome(command, path, capsys) for command in ("condenser-check", "profile"))
        refused += profiled is None
        read += checked is not None
        if checked is None or profiled is None:
            continue
        summary, work = checked["summary"], profiled["workload"]
        assert summary["requests"] == work["calls"], path
        [source] = profiled["sources"]
        if checked["tokens"]["counted_requests"] == summary["requests"]:
            assert source["lower_tokens"] == source["upper_tokens"] == source["prompt_tokens"]
            assert summary["prompt_tokens"] == work["prompt_tokens"], path
    # FORMATS.md, SOURCES.md, counts without prefixes, an empty file
    assert (refused, read) == (4, len(list(filter(Path.is_file, PATHS))) - 4 - len(BLOCKS))


def test_every_folder_is_sized_or_refused_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    for path in (path for path in PATHS if path.is_dir() and path.parent == DATA):
        outcome("size", path, capsys)


def test_the_folder_of_everything_is_checked_and_says_what_it_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    status, document, errors = answer("condenser-check", DATA, capsys)
    assert status == 0
    look_over_turns(DATA, document)
    codes = Counter(warning["code"] for warning in document["warnings"])
    assert codes["passed-over-files"] == codes["no-text"] == codes["rebuilt-prompts"] == 1, codes
    assert "4 files in" in errors and "kv-cache-tester and mooncake traces without text" in errors
    assert max(map(len, errors.splitlines())) < 700  # many files, and yet no wall of text
