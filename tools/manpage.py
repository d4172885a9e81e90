"""One man page per command, made from the command itself, so that it says what ``--help`` says."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

import click

import eactl
from tools.commands import Entry
from tools.manual import BY_OPTION, ENVIRONMENT, EVERYWHERE, EXIT_STATUS, FILES


def page(entry: Entry, everything: Sequence[Entry]) -> str:
    """The page in man(7) macros and ASCII, without a date: it changes when the command does and not otherwise."""
    ctx, command = entry.ctx, entry.ctx.command
    title = roff(entry.page_name.upper())
    lines = [
        '.\\" Made from the command by "make docs"; edit the command instead.',
        f'.TH {title} 1 "" "eactl {eactl.__version__}" "eactl manual"',
        ".SH NAME",
        *_fill(f"{entry.page_name} - {entry.summary.rstrip('.')}"),
        ".SH SYNOPSIS",
        f".B {roff(entry.name)}",
        roff(" ".join(" ".join(command.collect_usage_pieces(ctx)).split())),
        *_section("DESCRIPTION", _prose(command.help or "")),
        *_section("OPTIONS", _definitions(_option_rows(ctx))),
        *_section("COMMANDS", _definitions(entry.children)),
        *_epilog(command.epilog or ""),
        *_section("EXIT STATUS", _definitions(EXIT_STATUS.items())),
        *_section("ENVIRONMENT", _definitions(_environment(entry))),
        *_section("FILES", _definitions(FILES.get(entry.name, {}).items())),
        *_section("SEE ALSO", [",\n".join(f".BR {roff(name)} (1)" for name in _related(entry, everything))]),
    ]
    return "\n".join(lines) + "\n"


def roff(text: str) -> str:
    """Text that troff prints as it stands: no request, no escape, every character named that is not ASCII."""
    text = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    )
    text = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match.group()):04X}]", text)
    return "\\&" + text if text.startswith((".", "'")) else text


def _section(title: str, body: Sequence[str]) -> list[str]:
    return [f".SH {title}", *body] if any(body) else []


def _fill(text: str) -> list[str]:
    """Running text in source lines of a readable length; troff fills them again."""
    return [roff(row) for row in textwrap.wrap(" ".join(text.split()), 72, break_on_hyphens=False)]


def _prose(text: str) -> list[str]:
    """Click's paragraphs: a blank line separates them, one that begins with ``\\b`` keeps its lines."""
    lines: list[str] = []
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.split("\f")[0].strip("\n"))):
        rows = paragraph.splitlines()
        if number:
            lines.append(".PP")
        lines += [".nf", *map(roff, rows[1:]), ".fi"] if rows[:1] == ["\b"] else _fill(paragraph)
    return lines


def _option_rows(ctx: click.Context) -> Iterable[tuple[str, str]]:
    for parameter in ctx.command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None and record[0]:
            yield record


def _definitions(rows: Iterable[tuple[str, str]]) -> list[str]:
    lines: list[str] = []
    for term, text in rows:
        lines += [".TP", " ".join(map(_term, term.split())), *_fill(text)]
    return lines


def _term(word: str) -> str:
    """A word of an option or a name in bold; a placeholder (FILE, N, INTEGER RANGE) in italics."""
    bare = word.rstrip(",")
    placeholder = (bare.isalpha() and bare.isupper()) or bare.startswith(("[", "<"))
    return f"\\f{'I' if placeholder else 'B'}{roff(bare)}\\fR{word[len(bare) :]}"


def _epilog(text: str) -> list[str]:
    """What stands below the options in ``--help``: a line that ends with a colon heads the indented lines after it."""
    sections: dict[str, list[str]] = {}
    notes: list[str] = []
    for paragraph in re.split(r"\n(?:\s*\n|\x08\n)+", text.strip("\b\n")):
        body = notes
        for row in paragraph.replace("\b\n", "").splitlines():
            if row.rstrip().endswith(":") and not row.startswith(" "):
                body = sections.setdefault(row.strip().rstrip(":"), [])
            else:
                body.append(row)
    lines: list[str] = []
    for title, rows in sections.items():
        name, _, aside = title.partition(" (")
        verbatim = all(row.startswith(" ") for row in rows)
        body = [".EX", *map(roff, rows), ".EE"] if verbatim else _fill(" ".join(rows))
        lines += _section(roff(name.upper()), [*_fill(f"({aside}" if aside else ""), *body])
    return lines + _section("NOTES", _fill(" ".join(notes)))


def _environment(entry: Entry) -> Iterable[tuple[str, str]]:
    options = [each for each in entry.ctx.command.params if isinstance(each, click.Option)]
    for option in options:
        names = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or [])
        yield from ((name, f"The value of {option.opts[-1]} where the option is not given.") for name in names)
        for name in option.opts:
            yield from BY_OPTION.get(name, {}).items()
    yield from ENVIRONMENT.get(entry.name, {}).items()
    yield from EVERYWHERE.items()


def _related(entry: Entry, everything: Sequence[Entry]) -> list[str]:
    below = [other for other in everything if other.parent_name == entry.name]
    beside = [other for other in everything if other.parent_name == entry.parent_name and other is not entry]
    above = [other for other in everything if other.name == entry.parent_name]
    return [other.page_name for other in (*above, *below, *beside)]
