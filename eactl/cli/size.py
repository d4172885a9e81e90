"""``eactl size``: how many GiB per rank do my agents need, and where does more stop paying?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eactl.cli.options import output_options, trace_options

_EPILOG = """\b
Examples:
  eactl size --trace sessions.jsonl --model Qwen3-Coder-30B-A3B --tp 8
  eactl size --trace traces/ --model ./my-model --agents 16 --gpu-kv-tokens 343408
  eactl size --trace mooncake.jsonl.gz --kv-bytes-per-token 24576 --capacity 5,10,20 --plot curve.html
  eactl size --trace a.jsonl b.jsonl --model Llama-3.1-8B --json | jq .recommendation.host_gib_rank
"""


@click.command(epilog=_EPILOG)
@click.option("--trace", "traces", type=click.Path(path_type=Path), required=True, multiple=True, metavar="PATH...",
              help="Trace files or directories, as many as you like.")  # fmt: skip
@click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="")
@click.option("--model", metavar="M", help="Model directory, config.json, cached or bundled model name.")
@click.option("--kv-bytes-per-token", type=click.IntRange(min=1), metavar="N",
              help="KV bytes per token and rank, instead of --model.")  # fmt: skip
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--dp", type=click.IntRange(min=1), default=1, show_default=True,
              help="Data-parallel engines, each with tiers of its own.")  # fmt: skip
@click.option("--kv-dtype", default="auto", show_default=True, help="Data type of the KV cache.")
@click.option("--chunk-tokens", type=click.IntRange(min=1), default=256, show_default=True,
              help="Tokens per chunk of the host tier.")  # fmt: skip
@click.option("--gpu-kv-tokens", type=click.IntRange(min=0), metavar="K_G",
              help="Tokens of the GPU's KV cache; what it serves is not the tier's (default: none).")  # fmt: skip
@click.option("--capacity", metavar="GIB,GIB...",
              help="Tier sizes per rank to evaluate (default: a grid around the working set).")  # fmt: skip
@click.option("--agents", type=click.IntRange(min=1), metavar="A",
              help="Closed loop with A task slots (default: the recorded order).")  # fmt: skip
@click.option("--order", metavar="NAME,...", help="recorded, closed-loop, round-robin; the first one decides.")
@click.option("--target", type=float, default=0.95, show_default=True,
              help="Share of the best recovery that the recommendation must reach.")  # fmt: skip
@click.option("--host-memory", metavar="SIZE", help="Memory for all tiers together (default: free on this machine).")
@click.option("--obr", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Saved 'eactl probe obr' result: seconds then appear.")  # fmt: skip
@click.option("--prefill-us-per-token", type=click.FloatRange(min=0), metavar="US",
              help="Closed loop: fresh prompt tokens, where the trace has no service times (default: 50).")  # fmt: skip
@click.option("--decode-ms-per-token", type=click.FloatRange(min=0), metavar="MS",
              help="Closed loop: output tokens, likewise (default: 20).")  # fmt: skip
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Draw the curve to FILE: .png, .svg or .html (one self-contained page).")  # fmt: skip
@click.option("--bound/--no-bound", default=True, show_default=True,
              help="Compute what the best possible policy could cover (Belady).")  # fmt: skip
@trace_options
@output_options
def size(traces: tuple[Path, ...], more: tuple[Path, ...], **options: Any) -> None:
    """How many GiB of host KV tier per rank do my agents need, and where does more stop paying?

    Replays the trace's prefixes through the reference LRU model at every capacity at once and recommends the
    smallest tier that reaches --target of what an endless tier would recover.
    """
    from eactl.cli.sizing import run_size

    run_size([*traces, *more], options)
