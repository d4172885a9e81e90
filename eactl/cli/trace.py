"""``eactl trace``: traces in and out."""

from __future__ import annotations

import click

from eactl.cli.lazy import LazyGroup

TRACES = {
    "convert": ("eactl.cli.trace_convert:convert", "Rewrite traces of any known format as one native trace."),
    "profile": ("eactl.cli.trace_profile:profile", "What is in these traces: calls, tokens, stable prefixes."),
    "synth": ("eactl.cli.trace_synth:synth", "Make a seeded agent workload."),
}


_EPILOG = """\b
Examples:
  eactl trace profile sessions.jsonl.zst
  eactl trace convert logs/ -o trace.jsonl.zst
  eactl trace synth --profile swebench-openhands -o agents.jsonl.zst
"""


@click.group(cls=LazyGroup, table=TRACES, epilog=_EPILOG)
def trace() -> None:
    """Convert, profile and synthesise agent traces."""
