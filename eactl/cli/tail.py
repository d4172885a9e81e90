"""``eactl tail``: what is the host tier doing, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_EPILOG = """\b
Examples:
  eactl tail                                    every engine of yours on this machine
  eactl tail --url http://127.0.0.1:8000        one engine, by its /metrics
  eactl tail --url gpu1:8000 --url gpu2:8000 --json
  eactl tail --once --json | jq .pressure
  eactl tail --dashboard grafana > eactl-tier.json
"""


@click.command(epilog=_EPILOG)
@click.option("--url", "urls", multiple=True, metavar="URL|FILE",
              help="Address of a vLLM or LMCache server, a state file, saved metrics or LMCache's log; may be "
                   "repeated. "
                   "Default: the state files of your own engines on this machine.")  # fmt: skip
@click.option("--interval", "interval_s", type=click.FloatRange(min=0.1), default=2.0, show_default=True, metavar="S",
              help="Seconds between two lines.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print one reading and leave; status 1 if a source could not be read.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line and interval.")
@click.option("--dashboard", type=click.Choice(["grafana", "alerts"]),
              help="Print the Grafana dashboard or the Prometheus alert rules, and leave.")  # fmt: skip
def tail(urls: tuple[str, ...], interval_s: float, once: bool, as_json: bool, dashboard: str | None) -> Any:
    """Follow the host KV tier of one or several engines: who serves the hits, what is declined and why.

    Each line has the agents at work, the tier's level, where prompt tokens came from (GPU, host tier, computed), and
    the state in words. A figure that a server does not export is null in JSON and left out here, never 0.
    """
    if dashboard:
        from eactl.telemetry.dashboards import dashboard_text

        click.echo(dashboard_text(dashboard), nl=False)
        return 0
    from eactl.errors import CannotRunHereError
    from eactl.report.tier import sample_json, sample_text, warning_lines
    from eactl.telemetry.follow import follow
    from eactl.telemetry.sources import local_sources, open_source
    from eactl.telemetry.statefile import state_dir

    sources = [open_source(url) for url in urls] or local_sources()
    if not sources:
        raise CannotRunHereError(
            "no engine of yours publishes here", where=str(Path(state_dir())), hint="start 'eactl serve', or give --url"
        )
    status = 0
    told: set[tuple[str, str]] = set()
    for sample in follow(sources, interval_s, once=once):
        status = 1 if sample.reading is None else status
        if as_json:
            click.echo(sample_json(sample))
            continue
        for line in sample_text(sample, name_source=len(sources) > 1):
            click.echo(line)
        for code, line in warning_lines(sample).items():
            if (sample.source, code) not in told:
                told.add((sample.source, code))
                click.echo(line)
    return status
