"""No message, help page or document sends anyone to a command that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import click

from eactl.cli import cli

# Commands of the design that a user could be sent to; those that exist by now may be named.
DESIGNED = {"simulate", "replay", "compare"}


def commands() -> dict[str, set[str]]:
    """Command -> its subcommands."""
    context = click.Context(cli)
    found: dict[str, set[str]] = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        found[name] = set(command.list_commands(context)) if isinstance(command, click.Group) else set()
    return found


def text_files(root: Path) -> list[Path]:
    files = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "man").glob("*.1")]
    for package in ("eactl", "probes", "plugins"):
        files += (root / package).rglob("*.py")
    return files


def test_no_text_names_a_command_that_does_not_exist(root: Path) -> None:
    known = commands()
    groups = "|".join(name for name, inside in known.items() if inside)
    absent = "|".join(sorted(DESIGNED - known.keys())) or "(?!)"
    wrong = []
    for path in text_files(root):
        text = path.read_text(encoding="utf-8").replace("\\-", "-")
        wrong += [(path.name, match[0]) for match in re.finditer(rf"\beactl +({absent})\b", text)]
        # What follows `eactl probe` or `eactl trace` in running text or in an example is one of theirs.
        for match in re.finditer(rf"\beactl +({groups}) +([a-z][a-z0-9]*)", text):
            if match[2] not in known[match[1]]:
                wrong.append((path.name, match[0]))
    assert wrong == []
