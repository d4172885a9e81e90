"""``eactl condenser-check``: which edit breaks the prefix, what it costs, what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eactl.cli.options import output_options

_EPILOG = """\b
Examples:
  eactl condenser-check requests.jsonl
  eactl condenser-check ~/.claude/projects --chunk-tokens 1024 --html report.html
  eactl condenser-check log.jsonl --tokenizer ./my-model --obr obr.json
  eactl condenser-check log.jsonl --condense summary:max=80,tokens=800 --condense stepwise-cut:budget=100K
  eactl condenser-check with.jsonl --against without.jsonl
  eactl condenser-check log.jsonl --fail-under 0.9 --annotate github

\b
Condensers for --condense (sizes in tokens, 50K is 50000; all but those named have defaults):
  recent-events:max=100,keep-first=1          the first and the most recent messages
  observation-masking:window=100              tool results older than the last messages masked
  summary:max=100,keep-first=1,keep-last=N,tokens=500   or at=TOKENS,keep-last-tokens=N; text=... comes last
  stepwise-cut:budget=N,high=1.2,low=0.7      oldest messages dropped in steps (budget is needed)
  sliding-window:budget=N                     oldest messages dropped at every turn (budget is needed)
  microcompact:at=100K,keep=3,min-saved=20K   all old tool results cleared at once

\b
Exit status: 0 done, 1 below --fail-under, 2 bad usage or input.
"""


@click.command("condenser-check", epilog=_EPILOG)
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), metavar="LOG",
              help="Another log of the same tasks, with or without the condenser, to compare with.")  # fmt: skip
@click.option("--condense", "condensers", multiple=True, metavar="NAME:k=v,...",
              help="Model a condenser on this log's messages; may be given several times.")  # fmt: skip
@click.option("--fail-under", type=click.FloatRange(0, 1), metavar="SHARE",
              help="Exit with 1 when the stable share of the prompt tokens is below SHARE.")  # fmt: skip
@click.option("--annotate", type=click.Choice(["github"]), help="Print one annotation per break for the CI service.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write a self-contained page with a chart per session.")  # fmt: skip
@click.option("--quotes/--no-quotes", default=True, show_default=True,
              help="Quote a few characters around each difference.")  # fmt: skip
@click.option("--tokenizer", metavar="PATH", help="tokenizer.json or model directory (default: an approximation).")
@click.option("--chat-template", metavar="FILE",
              help="Template to render prompts with (default: the one beside --tokenizer).")  # fmt: skip
@click.option("--head", type=click.Choice(["tools-first", "system-first"]), default="tools-first", show_default=True,
              help="What the server renders first where no template says so.")  # fmt: skip
@click.option("--chunk-tokens", type=click.IntRange(min=1), default=256, show_default=True,
              help="Tokens per chunk of the host tier.")  # fmt: skip
@click.option("--obr", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Saved 'eactl probe obr' result: seconds and the price of a restored token.")  # fmt: skip
@click.option("--prefill-us-per-token", type=click.FloatRange(min=0, min_open=True), metavar="US",
              help="Seconds from a given prefill rate, instead of --obr.")  # fmt: skip
@click.option("--reused-cost", type=click.FloatRange(0, 1), metavar="R",
              help="What a reused prompt token costs against a fresh one (default: 0.1, or from --obr).")  # fmt: skip
@click.option("--kv-bytes-per-token", type=click.IntRange(min=1), metavar="N",
              help="KV bytes per token and rank: isolation is then shown in GiB.")  # fmt: skip
@click.option("--format", "format_name", metavar="NAME", help="Log format (default: detected).")
@click.option("--skip-bad-lines", is_flag=True,
              help="Leave out lines that cannot be read; they are counted and named in the result.")  # fmt: skip
@output_options
def condenser_check(logs: tuple[Path, ...], **options: Any) -> int:
    """Which edit breaks the prefix, what does it cost, what should change?

    LOGs are text logs of requests: request logs, transcripts and trajectories of agents, files or directories. Every
    request is compared with the one that it continues; each break of the prefix is named with its place, the tokens
    it loses and the remedy. Usage numbers alone are enough to see that a prefix breaks, not why.
    """
    from eactl.cli.condensing import run_check

    return run_check(logs, options)
