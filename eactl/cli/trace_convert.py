"""``eactl trace convert``: traces of any known format as one native trace, or as Mooncake lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from eactl.cli.options import trace_options

if TYPE_CHECKING:
    from eactl.trace import TraceOptions

_EPILOG = """\b
Examples:
  eactl trace convert mooncake_trace.jsonl -o trace.jsonl.zst
  eactl trace convert sessions/ --drop-duplicates -o sessions.jsonl.gz
  eactl trace convert agents.jsonl.zst --to mooncake -o for_loadgen.jsonl
  zcat lookups.jsonl.gz | eactl trace convert - -o - | head

\b
Mooncake lines hold whole prompts, as Dynamo's replay reads them. AIPerf adds the turns of one session_id
up: write its input with --no-sessions.
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="IN...", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
              help="The trace to write: .jsonl, .jsonl.gz, .jsonl.zst, or - for standard output.")  # fmt: skip
@click.option("--to", type=click.Choice(["native", "mooncake"]), default="native", show_default=True,
              help="Format to write.")  # fmt: skip
@trace_options
@click.option("--no-sessions", is_flag=True, help="Mooncake: write no session_id and no delay.")
@click.option("--force", is_flag=True, help="Let --output replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document about what was written.")
def convert(
    paths: tuple[Path, ...],
    output: Path,
    to: Literal["native", "mooncake"],
    reading: TraceOptions,
    no_sessions: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Rewrite traces of any known format as one native trace.

    INs are files, directories or - for standard input. The output holds block ids or token ids, lengths and times.
    Calls without a task get one: a prompt that extends an earlier one continues its task.

    Keep the result of a text log as private as the log: token ids can be turned back into text, and the ids that
    stand for them without a tokenizer are short unsalted hashes whose text can be guessed.
    """
    from eactl.cli.conversion import run_convert
    from eactl.cli.progress import show_warnings
    from eactl.report.convert import convert_sentence
    from eactl.report.document import emit
    from eactl.trace.convert import ConvertSettings

    settings = ConvertSettings(to=to, block_tokens=reading.block_tokens, sessions=not no_sessions)
    document = run_convert(paths, reading, settings, output, force=force, as_json=as_json)
    show_warnings(document["warnings"])
    click.echo(convert_sentence(document), err=True)
    if as_json:
        emit("convert", document, as_json=True, output=None, text="")
