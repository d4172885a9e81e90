"""``eactl trace synth``: a seeded agent workload as a native trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from eactl.errors import UsageError

_EPILOG = """\b
Examples:
  eactl trace synth --profile swebench-openhands -o agents.jsonl.zst
  eactl trace synth --tasks 32 --agents 8 --mean-prompt-tokens 30000 -o agents.jsonl.gz
  eactl trace synth --profile delegating --block-tokens 16 --seed 7 -o blocks.jsonl.gz
  eactl trace synth --condense-every 20 --dry-run

\b
Profiles:
  swebench-openhands  79 SWE-bench tasks, 4,427 calls, 147.1M prompt tokens, 16 at a time
  demo                20 coding agents, 10 at a time, 400 calls; small, with a clear knee
  chat                500 people chatting: short turns, long pauses
  delegating          12 coding agents that call sub-agents and condense their history
  stress              a million requests with 512-token block ids

\b
The defaults above hold without --profile. Lengths and gaps are heavy-tailed; the means that you ask for
hold exactly, whatever the seed.
"""

_COUNT, _MEAN, _SECONDS = click.IntRange(min=1), click.FloatRange(min=1), click.FloatRange(min=0)
_MESSAGE = click.FloatRange(min=8)  # role markers alone take as much

# Option, what it takes, its name in the help, its default without a profile, what it means.
_WORKLOAD: tuple[tuple[str, click.ParamType[Any], str, str, str], ...] = (
    ("--tasks", _COUNT, "N", "16", "Tasks, sub-agents not counted."),
    ("--calls-per-task", _MEAN, "N", "40", "Mean calls of a task."),
    ("--system-tokens", click.IntRange(min=0), "N", "6000", "System prompt and tools, shared by all tasks."),
    ("--task-tokens", _MESSAGE, "N", "1000", "Mean length of a task's own first message."),
    ("--output-tokens", _MEAN, "N", "400", "Mean output of a call."),
    ("--result-tokens", _MESSAGE, "N", "600", "Mean length of a tool result or user message."),
    ("--mean-prompt-tokens", _MEAN, "N", "", "Mean prompt; results become as long as that takes."),
    ("--retokenised-share", click.FloatRange(0, 1), "X", "0.05",
     "Share of turns whose output comes back with other token ids from somewhere inside."),
    ("--condense-every", click.IntRange(min=0), "N", "never",
     "Replace the history by a summary before every N-th call."),
    ("--summary-tokens", _COUNT, "N", "1500", "Length of that summary."),
    ("--subagents", _SECONDS, "N", "0",
     "Mean sub-agents per task, with a system prompt of their own; the parent waits for them."),
    ("--subagent-calls", _MEAN, "N", "10", "Mean calls of a sub-agent."),
    ("--gap-s", _SECONDS, "S", "3.2", "Mean seconds between a response and the next call."),
    ("--server-s", _SECONDS, "S", "0", "Seconds for which a call has the server alone, so that calls queue."),
    ("--agents", _COUNT, "A", "all tasks", "Task slots; a task starts when one is free."),
    ("--arrival-rate", click.FloatRange(min=0, min_open=True), "R", "",
     "Tasks per second (Poisson), instead of --agents."),
    ("--block-tokens", click.IntRange(min=2), "B", "", "Write block ids of B tokens instead of token ids."),
    ("--vocabulary", click.IntRange(min=16), "V", "32000", "Token ids stay below V."),
    ("--seed", click.IntRange(0, 2**32 - 1), "N", "0", "Same seed and options, same trace, on any machine."),
)  # fmt: skip


def _workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, kind, metavar, default, text in reversed(_WORKLOAD):
        shown = f"{text}  [default: {default}]" if default else text
        command = click.option(name, type=kind, metavar=metavar, help=shown)(command)
    return command


@click.command(epilog=_EPILOG)
@click.option("--profile", metavar="NAME", help="Start from a named workload (below); other options change it.")
@_workload_options
@click.option("--no-service-times", is_flag=True, help="Do not record how long each response took.")
@click.option("--dry-run", is_flag=True, help="Show what would be made, write nothing.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The trace to write: .jsonl, .jsonl.gz, .jsonl.zst, or - for standard output.")  # fmt: skip
@click.option("--force", is_flag=True, help="Let --output replace an existing file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def synth(dry_run: bool, output: Path | None, force: bool, as_json: bool, **workload: Any) -> None:
    """Make a seeded agent workload.

    Tasks share a system prompt, and each turn appends the previous output and a tool result. The result is a
    native trace that every other command reads.
    """
    from eactl.cli.progress import show_warnings
    from eactl.cli.synthesis import run_synth
    from eactl.report.document import emit
    from eactl.report.synth import synth_text

    if as_json and str(output) == "-" and not dry_run:
        raise UsageError("the document and the trace cannot share standard output", where="--json, --output -",
                         hint="give the trace a file")  # fmt: skip
    document = run_synth(workload, output=output, dry_run=dry_run, force=force).as_dict()
    show_warnings(document["warnings"])
    if document["output"] != "-":  # else standard output is the trace
        emit("trace-synth", document, as_json=as_json, output=None, text="" if as_json else synth_text(document))
