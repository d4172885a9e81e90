"""``eactl probe host``: what this machine allows a host tier."""

from __future__ import annotations

from pathlib import Path

import click

from eactl.cli.options import output_options

_EPILOG = """\b
Examples:
  eactl probe host
  eactl probe host --tier-gib 40 --ranks 8
  eactl probe host --json | jq .available_to_tier_gib
"""


@click.command(epilog=_EPILOG)
@click.option("--tier-gib", metavar="SIZE", help="Size of the tier per rank to check for (5, 40GiB).")
@click.option(
    "--ranks", type=click.IntRange(1, 4096), default=1, show_default=True, help="Ranks on this host, each with a tier."
)
@output_options
def host(tier_gib: str | None, ranks: int, as_json: bool, output: Path | None, force: bool) -> None:
    """Memory, cgroup limit, locked memory, huge pages, /dev/shm, NUMA nodes, GPUs and driver, for a host tier.

    With --tier-gib the exit status is 1 if such tiers do not fit here.
    """
    from eactl.cli.progress import show_warnings
    from eactl.errors import CheckFailedError
    from eactl.report.document import emit
    from eactl.report.files import refuse_overwrite
    from eactl.report.probe_host import host_text
    from eactl.units import parse_size_bytes
    from eactl_probes.host import host_fields, look

    if output is not None:
        refuse_overwrite(output, force=force)
    tier = parse_size_bytes(tier_gib, where="--tier-gib") if tier_gib else None
    findings = look(tier, ranks)
    fields = host_fields(findings)
    show_warnings(fields["warnings"])
    emit("host", fields, as_json=as_json, output=output, text=host_text(fields))
    failed = [check for check in findings.checks if check.level == "fail"]
    if tier is not None and failed:
        raise CheckFailedError(
            "; ".join(f"{check.name}: {check.text}" for check in failed), where="--tier-gib", hint=failed[0].hint
        )
