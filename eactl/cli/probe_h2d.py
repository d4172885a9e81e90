"""``eactl probe h2d``: how fast KV comes back from host memory."""

from __future__ import annotations

from typing import Any

import click

from eactl.cli.options import output_options
from eactl.cli.probing import model_options

_EPILOG = """\b
Examples:
  eactl probe h2d
  eactl probe h2d --model Qwen3-Coder-30B-A3B --tp 8 --chunk-tokens 1024
  eactl probe h2d --numa all --json -o h2d.json
  eactl probe h2d --sizes 1MiB,16MiB,256MiB --quick
"""


@click.command(epilog=_EPILOG)
@click.option("--device", default="auto", show_default=True, help="auto, cuda or cpu (memory to memory).")
@click.option("--sizes", metavar="SIZE,SIZE...", help="Sizes of a copy (default: 64 KiB to 1 GiB).")
@model_options
@click.option("--chunk-tokens", type=click.IntRange(1, 1 << 20), default=256, show_default=True,
              help="Tokens per chunk of the tier; with a KV size, copies are also timed in this pattern.")  # fmt: skip
@click.option("--numa", type=click.Choice(["local", "all", "off"]), default="local", show_default=True,
              help="Host memory on the GPU's node, on every node in turn, or unplaced.")  # fmt: skip
@click.option(
    "--ranks", type=click.IntRange(1, 64), metavar="N", help="CPU device: ranks to copy at once (default: 2)."
)
@click.option("--quick", is_flag=True, help="Within 15 seconds, with smaller sizes and fewer samples.")
@output_options
def h2d(**options: Any) -> None:
    """Host-to-device and device-to-host rates, pinned and pageable, per GPU and all at once.

    Rate and fixed cost come from a robust line through the median times; copies are verified. Without a GPU it
    measures memory to memory and says so.
    """
    from eactl.cli.probing import carry_out, weigh
    from eactl.model.decoder import read_decoder
    from eactl.report.probe_h2d import h2d_text
    from eactl_probes.figures import parse_sizes
    from eactl_probes.h2d import QUICK_SIZES, SIZES, H2dFindings, H2dSettings, TierShape, measure_h2d
    from eactl_probes.h2d_document import h2d_fields

    _, config, weight = weigh(options["model"], options["tp"], options["kv_dtype"], options["kv_bytes_per_token"])
    tier = None
    if weight is not None:
        layers = read_decoder(config).layers if config is not None else None
        tier = TierShape(options["chunk_tokens"] * weight, layers)
    quick = options["quick"]
    settings = H2dSettings(
        device=options["device"],
        sizes=parse_sizes(options["sizes"]) if options["sizes"] else QUICK_SIZES if quick else SIZES,
        tier=tier,
        numa=options["numa"],
        ranks=options["ranks"],
        budget_s=5.0 if quick else 40.0,
        least_samples=3 if quick else 5,
    )
    findings = H2dFindings()
    carry_out(
        "h2d", lambda progress: measure_h2d(settings, findings, progress), lambda status: h2d_fields(findings, status),
        h2d_text, is_empty=lambda: findings.empty,
        as_json=options["as_json"], output=options["output"], force=options["force"],
    )  # fmt: skip
