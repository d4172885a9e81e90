"""``eactl serve``: vLLM with a host KV tier and write admission, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eactl.cli.options import output_options

_EPILOG = """\b
Examples:
  eactl serve --model Qwen/Qwen3-Coder-30B-A3B-Instruct --tp 8 --host-gib 10
  eactl serve --model ./model --host-gib auto --size size.json -- --max-model-len 131072
  eactl serve --model ./model --tp 4 --policy none --host-gib 40 --dry-run --json
  eactl serve --model ./tiny --device cpu --host-gib 1 -- --max-model-len 4096

\b
A key for the API goes into VLLM_API_KEY, not onto the command line. Watch the tier with: eactl tail
"""


@click.command(epilog=_EPILOG, context_settings={"ignore_unknown_options": False})
@click.option("--model", required=True, metavar="M", help="Model directory or name, as vLLM takes it.")
@click.option("--policy", default="conditioned", show_default=True, metavar="NAME",
              help="none (plain LMCache), fixed, conditioned, or lazy (LMCache's eviction-aware offload).")  # fmt: skip
@click.option("--host-gib", default="auto", show_default=True, metavar="X|auto",
              help="Host memory per rank: 10, 10GiB, or auto (from --size, else from free memory).")  # fmt: skip
@click.option("--size", "size_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Result of 'eactl size --json', for --host-gib auto.")  # fmt: skip
@click.option("--mode", default="multi-process", show_default=True, metavar="NAME",
              help="multi-process (LMCache server beside vLLM) or in-process.")  # fmt: skip
@click.option("--device", type=click.Choice(["auto", "cuda", "cpu"]), default="auto", show_default=True,
              help="Where vLLM runs.")  # fmt: skip
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--pp", type=click.IntRange(min=1), default=1, show_default=True, help="Pipeline-parallel stages.")
@click.option("--dp", type=click.IntRange(min=1), default=1, show_default=True, help="Data-parallel engines.")
@click.option("--kv-dtype", default="auto", show_default=True, help="Data type of the KV cache.")
@click.option("--chunk-tokens", type=click.IntRange(min=1),
              help="Tokens per chunk of the tier (default: 256, or the next whole number of blocks).")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on which vLLM listens.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True, help="Port of the API.")
@click.option("--lmcache-port", type=click.IntRange(1, 65535), help="Port of the LMCache server (default: a free one).")
@click.option("--lmcache-http-port", type=click.IntRange(1, 65535), help="Its HTTP port (default: a free one).")
@click.option("--lmcache-server", "servers", multiple=True, metavar="HOST:PORT:HTTP_PORT",
              help="Use a running LMCache server instead, one per node (Ray); may be repeated.")  # fmt: skip
@click.option("--kappa-chunks", type=click.IntRange(min=0),
              help="Largest refill admitted under pressure (default: 8,192 tokens).")  # fmt: skip
@click.option("--theta", type=float, default=0.95, show_default=True, help="Level from which the tier is full.")
@click.option("--window-s", type=float, default=60.0, show_default=True, help="Window for agents and evictions.")
@click.option("--eviction-watermark", "watermark", type=float, default=0.8, show_default=True,
              help="Level at which the LMCache server evicts.")  # fmt: skip
@click.option("--eviction-ratio", type=float, default=0.2, show_default=True, help="Share that it then evicts.")
@click.option("--state-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where the engine publishes its state (default: where 'eactl tail' looks).")  # fmt: skip
@click.option("--wait", "wait_s", type=click.FloatRange(min=1), default=1800.0, show_default=True, metavar="S",
              help="Longest wait for the servers to become healthy.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the plan and the checks, start nothing.")
@click.argument("vllm_args", nargs=-1, metavar="[-- VLLM OPTIONS]")
@output_options
def serve(dry_run: bool, as_json: bool, output: Path | None, force: bool, wait_s: float, **options: Any) -> int:
    """Start vLLM with a host KV tier that stores only what will be restored.

    Computes what a token takes on every rank, sizes the tier, starts the LMCache server and vLLM, waits until both
    are healthy and ends both together. Everything after -- goes to vLLM as it is.
    """
    from eactl.errors import UsageError
    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite
    from eactl.report.serve import plan_document, plan_text
    from eactl.serving.prepare import prepare
    from eactl.serving.run import run_plan

    if not dry_run and (as_json or output):
        raise UsageError("a running server has no document", where="--json, --output", hint="add --dry-run")
    if output is not None:
        refuse_overwrite(output, force=force)
    launch = prepare(**options)
    if dry_run:
        emit("serve", plan_document(launch), as_json=as_json, output=output, text=plan_text(launch))
        return 1 if launch.refusals else 0
    launch.refuse_if_needed()
    click.echo(plan_text(launch), err=True)
    return run_plan(
        launch.plan, wait_s=wait_s, write=click.echo,
        ready=lambda: click.echo(f"[eactl] serving on {launch.address}; watch it with: eactl tail", err=True),
    )  # fmt: skip
