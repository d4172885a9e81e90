"""``eactl probe footprint``: what one token's KV weighs, per rank and in total."""

from __future__ import annotations

from pathlib import Path

import click

from eactl.cli.options import output_options


@click.command()
@click.option("--model", "spec", required=True, metavar="MODEL", help="Directory, config.json or a known name.")
@click.option("--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel ranks.")
@click.option("--kv-dtype", default="auto", show_default=True, help="Data type of the KV cache.")
@output_options
def footprint(spec: str, tp: int, kv_dtype: str, as_json: bool, output: Path | None, force: bool) -> None:
    """KV bytes per token and rank of a model (β_rank)."""
    from eactl.configs import resolve_model
    from eactl.model.footprint import footprint as price
    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite

    if output is not None:
        refuse_overwrite(output, force=force)
    resolved = resolve_model(spec)
    result = price(resolved.config, tp=tp, kv_dtype=kv_dtype, model=resolved.name)
    document = {
        "model": result.model, "tp": tp, "bytes_per_token_rank": result.bytes_per_token_rank,
        "bytes_per_token_total": result.bytes_per_token_total, "unique_bytes_per_token": result.unique_bytes_per_token,
    }  # fmt: skip
    emit("footprint", document, as_json=as_json, output=output, text=f"{result.bytes_per_token_rank} B per token and rank")
