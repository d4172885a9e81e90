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
  openssl rand -hex 32 > salt && eactl trace convert logs/ --salt-file salt -o logs.jsonl.zst

\b
Choose .zst for text logs: gzip does not look back as far as the previous prompt's ids.

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
@click.option("--salt-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Text logs: the salt of the hashes, 16 bytes or more, or in EACTL_TRACE_SALT (default: a random one "
                   "that is not kept).")  # fmt: skip
@click.option("--token-ids", is_flag=True,
              help="Text logs: write token ids, which can be turned back into the text.")  # fmt: skip
@click.option("--no-sessions", is_flag=True, help="Mooncake: write no session_id and no delay.")
@click.option("--force", is_flag=True, help="Let --output replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document about what was written.")
def convert(
    paths: tuple[Path, ...],
    output: Path,
    to: Literal["native", "mooncake"],
    reading: TraceOptions,
    salt_file: Path | None,
    token_ids: bool,
    no_sessions: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Rewrite traces of any known format as one native trace.

    INs are files, directories or - for standard input. The output holds block ids or token ids, lengths and times.
    Calls without a task get one: a prompt that extends an earlier one continues its task.

    A text log's text does not come into the output, nor anything that leads back to it without the salt. Prompts
    become blocks of --block-tokens tokens (16) whose ids are keyed hashes, each chained to the one before; session
    names and cache salts are hashed too. Mooncake lines number blocks (of 512) from 0. Lengths, times and model names
    stay. Traces of one salt can be read together, other ones share no id.

    What is shared is then known in whole blocks: size says the same for chunks of whole blocks, trace profile counts
    up to a block less per call, and condenser-check needs the log itself. Block traces keep their ids and names.
    """
    from eactl.cli.conversion import read_salt, run_convert
    from eactl.cli.progress import show_warnings
    from eactl.report.convert import convert_sentence
    from eactl.report.document import emit
    from eactl.trace.convert_plan import ConvertSettings

    settings = ConvertSettings(to, reading.block_tokens, not no_sessions, token_ids, read_salt(salt_file))
    document = run_convert(paths, reading, settings, output, force=force, as_json=as_json)
    show_warnings(document["warnings"])
    click.echo(convert_sentence(document), err=True)
    if as_json:
        emit("convert", document, as_json=True, output=None, text="")
