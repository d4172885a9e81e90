"""``eactl probe``: what decides, on this machine, whether a host tier pays."""

from __future__ import annotations

import click

from eactl.cli.lazy import LazyGroup

PROBES = {
    "obr": ("eactl.cli.probe_obr:obr", "Does restoring KV from host memory beat recomputing it here?"),
    "h2d": ("eactl.cli.probe_h2d:h2d", "How fast KV moves between host and device, per GPU and all at once."),
    "prefill": ("eactl.cli.probe_prefill:prefill", "What computing a prompt costs: bound, layers or a server."),
    "host": ("eactl.cli.probe_host:host", "Memory, limits, NUMA and GPUs: what this machine allows a tier."),
    "footprint": ("eactl.cli.probe_footprint:footprint", "KV bytes per token and rank of a model (β_rank)."),
    "compare": ("eactl.cli.probe_compare:compare", "Two saved probe results side by side."),
}


_EPILOG = """\b
Examples:
  eactl probe obr --model Qwen3-Coder-30B-A3B --tp 8
  eactl probe footprint --model ./my-model --tp 4
  eactl probe host
"""


@click.group(cls=LazyGroup, table=PROBES, epilog=_EPILOG)
def probe() -> None:
    """Measure what decides whether a host tier pays here."""
