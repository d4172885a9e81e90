"""Findings as lines that a continuous-integration service shows beside a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eactl.condense.result import CheckResult, Turn

_MOST = 50  # GitHub shows ten per step; the rest is only in the log


def github(result: CheckResult) -> Iterator[str]:
    """GitHub workflow commands, one per break, the dearest first; the last one says the verdict."""
    broken = sorted(
        (turn for session in result.sessions for turn in session.turns if turn.is_break),
        key=lambda turn: -turn.lost_tokens,
    )
    for turn in broken[:_MOST]:
        yield _command("warning", _message(turn), title=f"prefix broken: {turn.cause}", line=turn.line)
    yield _command("notice", result.summary.verdict, title="eactl condenser-check", line="")


STYLES: Mapping[str, Callable[[CheckResult], Iterator[str]]] = {"github": github}


def _message(turn: Turn) -> str:
    where = "" if turn.where is None or turn.where.message is None else f", message {turn.where.message}"
    what = f"{turn.kind or turn.cause}, {turn.lost_tokens:,} tokens lost"
    return f"session {turn.session}, turn {turn.turn}{where}: {what}. {turn.remedy}"


def _command(kind: str, message: str, *, title: str, line: str) -> str:
    properties = {"title": title}
    found = re.fullmatch(r"(?P<file>.+?):(?P<line>\d+)", line)
    if found:
        properties = {"file": _below_here(found["file"]), "line": found["line"], **properties}
    shown = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    return f"::{kind} {shown}::{_escaped(message)}"


def _below_here(file: str) -> str:
    """The file as seen from the working directory, where it lies in it: the service knows paths of the checkout."""
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return file


def _escaped(text: str, more: str = "") -> str:
    """GitHub's own escapes: without them a quote from a log could end the command and start another."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}") if character != "%" else text.replace("%", "%25")
    return text
