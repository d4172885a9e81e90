"""The command tree as the generated pages see it."""

from __future__ import annotations

from dataclasses import dataclass

import click

from eactl.cli import cli

_HELP_COLUMNS = 88


@dataclass(frozen=True)
class Entry:
    """One command: its context, its line in its group's list, and the (name, line) pairs it lists itself."""

    ctx: click.Context
    summary: str
    children: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """``eactl trace convert``."""
        return self.ctx.command_path

    @property
    def page_name(self) -> str:
        """``eactl-trace-convert``, the name of its man page."""
        return self.name.replace(" ", "-")

    @property
    def parent_name(self) -> str | None:
        """``eactl trace``, or None for ``eactl`` itself."""
        return self.ctx.parent.command_path if self.ctx.parent else None

    def help_text(self) -> str:
        """What ``--help`` prints, at one width whatever the terminal."""
        lines = self.ctx.command.get_help(self.ctx).splitlines()
        return "\n".join(line.rstrip() for line in lines)


def all_commands() -> list[Entry]:
    """Every command of ``eactl``, parents first, in the order in which ``--help`` lists them."""
    return _walk(cli, "eactl", cli.get_short_help_str(200), None)


def _walk(command: click.Command, name: str, summary: str, parent: click.Context | None) -> list[Entry]:
    settings = {**command.context_settings, "terminal_width": _HELP_COLUMNS, "max_content_width": _HELP_COLUMNS}
    ctx = click.Context(command, info_name=name, parent=parent, **settings)
    children: list[tuple[str, str]] = []
    below: list[Entry] = []
    if isinstance(command, click.Group):
        table = getattr(command, "table", {})
        for child_name in command.list_commands(ctx):
            child = command.get_command(ctx, child_name)
            if child is None:
                raise LookupError(f"{ctx.command_path} lists {child_name!r} but has no such command")
            line = table[child_name][1] if child_name in table else child.get_short_help_str(200)
            children.append((child_name, line))
            below += _walk(child, child_name, line, ctx)
    return [Entry(ctx, summary, tuple(children)), *below]
