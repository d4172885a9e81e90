"""``eactl trace profile``: what is in these traces?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eactl.cli.options import output_options, trace_options

if TYPE_CHECKING:
    from eactl.trace import TraceOptions

_EPILOG = """\b
Examples:
  eactl trace profile sessions.jsonl.zst
  eactl trace profile traces/ --json | jq .workload.stable_share
  eactl trace profile a.jsonl b.jsonl --skip-bad-lines -o profile.json
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@trace_options
@output_options
def profile(
    paths: tuple[Path, ...],
    reading: TraceOptions,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """What is in these traces: calls, tokens, stable prefixes.

    PATHs are trace files or directories, read as one workload. Tokens are stable when they repeat the task's
    previous prompt and its output, so that their KV can be reused; where a trace does not hold output ids, they
    are given as two bounds. With several sessions, the prefix that their first prompts share is measured too.
    """
    from eactl.cli.progress import byte_progress, show_warnings
    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite
    from eactl.report.profile import profile_text
    from eactl.trace import open_trace
    from eactl.trace.statistics import profile_trace

    if output is not None:
        refuse_overwrite(output, force=force)
    with byte_progress("reading") as progress:
        stream = open_trace(paths, reading, on_bytes=progress)
        progress.total(stream.total_bytes)
        document = profile_trace(stream).as_dict()
    plain = {"stable-bounded", "one-task", "not-recorded"}  # the table itself says so
    show_warnings([warning for warning in document["warnings"] if as_json or warning["code"] not in plain])
    shown = " ".join(shlex.quote(str(path)) for path in paths[:2]) + (" ..." if len(paths) > 2 else "")
    next_step = f"eactl size --trace {shown} --model MODEL"
    text = "" if as_json else profile_text(document, next_step=next_step)
    emit("trace-profile", document, as_json=as_json, output=output, text=text)
