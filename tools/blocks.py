"""Generated blocks of Markdown files: the help of a command, or a command with what it prints.

A block stands between ``<!-- help: eactl size -->``, ``<!-- help: all -->`` or ``<!-- run: eactl size ... -->`` and
``<!-- end -->``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.commands import Entry

_BLOCK = re.compile(r"(<!-- (help|run): (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill(text: str, commands: Sequence[Entry], *, root: Path) -> str:
    """The Markdown with every block made anew. Raises ValueError for a command that is not there or that fails."""
    helps = {entry.name: f"```text\n{entry.help_text()}\n```" for entry in commands}
    helps["all"] = "\n".join(
        f"<details><summary><code>{name}</code></summary>\n\n{text}\n\n</details>" for name, text in helps.items()
    )

    def block(match: re.Match[str]) -> str:
        opening, kind, line, _, closing = match.groups()
        if kind == "run":
            body = f"```console\n$ {line}\n{_output(line, root)}\n```"
        elif line in helps:
            body = helps[line]
        else:
            raise ValueError(f"a help block for an unknown command: {line}")
        return f"{opening}{body}\n{closing}"

    return _BLOCK.sub(block, text)


def _output(line: str, root: Path) -> str:
    program, *arguments = shlex.split(line)
    if program != "eactl":
        raise ValueError(f"only eactl is run for a block, not: {line}")
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-m", "eactl", *arguments],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise ValueError(f"exit status {done.returncode} from: {line}\n{done.stderr.rstrip()}")
    return "\n".join(row.rstrip() for row in done.stdout.rstrip("\n").splitlines())
