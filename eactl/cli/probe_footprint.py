"""``eactl probe footprint``: what one token's KV weighs, per rank and in total."""

from __future__ import annotations

from pathlib import Path

import click

from eactl.cli.options import output_options
from eactl.errors import UsageError

_EPILOG = """\b
Examples:
  eactl probe footprint --model Qwen3-Coder-30B-A3B --tp 8
  eactl probe footprint --model ./my-model --tp 1,2,4,8
  eactl probe footprint --model deepseek-ai/DeepSeek-V3.2 --tp 8 --kv-dtype fp8 --json
  eactl probe footprint --list
"""


@click.command(epilog=_EPILOG)
@click.option("--model", "spec", metavar="M",
              help="Model directory, config.json, cached Hugging Face model or bundled name.")  # fmt: skip
@click.option("--tp", "ranks", default="1", show_default=True, metavar="N[,N...]",
              help="Tensor-parallel ranks; several values make a table.")  # fmt: skip
@click.option("--kv-dtype", default="auto", show_default=True, metavar="NAME",
              help="Data type of the KV cache, as in vLLM's --kv-cache-dtype; an unknown name lists them.")  # fmt: skip
@click.option("--chunk-tokens", type=click.IntRange(1, 1 << 24), default=1024, show_default=True, metavar="N",
              help="Tokens per chunk of the host tier.")  # fmt: skip
@click.option("--list", "list_names", is_flag=True, help="Print the bundled names and stop.")
@output_options
def footprint(
    spec: str | None,
    ranks: str,
    kv_dtype: str,
    chunk_tokens: int,
    list_names: bool,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """KV bytes per token and rank of a model (β_rank), from its configuration alone.

    Counts every layer that keeps KV per token, the part that grows without a window, copies on several ranks, and
    what a chunk takes in a host tier. Nothing is downloaded.
    """
    from eactl.configs import bundled_shapes, resolve_model
    from eactl.model.attention import read_shape
    from eactl.model.footprint import weigh, why_not
    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite
    from eactl.report.footprint import footprint_fields, footprint_text, shapes_text

    if output is not None:
        refuse_overwrite(output, force=force)
    if list_names:
        shapes = bundled_shapes()
        emit("footprint-list", {"models": shapes}, as_json=as_json, output=output, text=shapes_text(shapes))
        return
    if spec is None:
        raise UsageError("no model", where="--model", hint="name one, or see the bundled names with --list")
    wanted = _parse_ranks(ranks)
    resolved = resolve_model(spec)
    shape = read_shape(resolved.config, model=resolved.name)
    refused = {tp: reason for tp in wanted if (reason := why_not(shape, tp))}
    possible = [tp for tp in wanted if tp not in refused] or wanted[:1]  # all refused: the first one says why
    results = [weigh(shape, tp=tp, kv_dtype=kv_dtype, model=resolved.name) for tp in possible]
    notes = [*results[0].notes, *resolved.notes]
    fields = footprint_fields(results, refused, chunk_tokens=chunk_tokens, origin=resolved.origin, notes=notes)
    text = footprint_text(results, refused, chunk_tokens=chunk_tokens, origin=resolved.described, notes=notes)
    emit("footprint", fields, as_json=as_json, output=output, text=text)


def _parse_ranks(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 and int(part) for part in parts):
        raise UsageError(f"not a number of ranks: {text!r}", where="--tp", hint="write it as 8, or 1,2,4,8 for a table")
    return list(dict.fromkeys(int(part) for part in parts))
