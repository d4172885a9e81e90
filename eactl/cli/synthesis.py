"""From the options of ``eactl trace synth`` to the trace on disk."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from eactl.cli.trace_target import check_target, open_target, written_bytes
from eactl.errors import UsageError
from eactl.trace.call import Call, Notice
from eactl.trace.native import NativeWriter
from eactl.trace.synth import (
    Plan,
    SynthResult,
    SynthSettings,
    customised,
    duration_s,
    make_plan,
    profile_named,
    summarise_plan,
    synthesise,
)


def run_synth(options: Mapping[str, Any], *, output: Path | None, dry_run: bool, force: bool) -> SynthResult:
    """Check everything that can be checked, then plan and, unless ``dry_run``, write the trace."""
    settings, notices = _settings(options)
    if not dry_run:
        if output is None:
            hint = "name one, or add --dry-run to see what it would be"
            raise UsageError("no file to write", where="--output", hint=hint)
        check_target(output, force=force)
    plan = make_plan(settings)
    written = None
    if not dry_run and output is not None:
        written = _write(plan, output, source=command_line(options))
    return SynthResult(
        profile=options["profile"],
        settings=asdict(settings),
        workload=summarise_plan(plan),
        duration_s=duration_s(plan),
        output=None if output is None or dry_run else str(output),
        output_bytes=written,
        warnings=tuple(notice.as_dict() for notice in (*notices, *plan.notices)),
    )


def _settings(options: Mapping[str, Any]) -> tuple[SynthSettings, list[Notice]]:
    changes = dict(options)
    name = changes.pop("profile")
    changes["arrival_rate_per_s"] = changes.pop("arrival_rate")
    changes["service_times"] = False if changes.pop("no_service_times") else None
    return customised(profile_named(name).settings if name else SynthSettings(), **changes)


def command_line(options: Mapping[str, Any]) -> str:
    """The command that makes the same trace again: what a trace's header names as its source."""
    words = ["eactl", "trace", "synth"]
    for name, value in sorted(options.items(), key=lambda option: option[0] != "profile"):
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(int(value) if isinstance(value, float) and value.is_integer() else value))
    return shlex.join(words)


def _write(plan: Plan, output: Path, *, source: str) -> int | None:
    blocks = plan.settings.block_tokens
    with open_target(output) as stream:
        writer = NativeWriter(
            stream, "blocks" if blocks else "tokens", block_tokens=blocks, source=source, keeps_known=True,
            warnings=plan.notices,
        )  # fmt: skip
        for call in _watched(synthesise(plan), len(plan.shape)):
            writer.write(call)
    return written_bytes(output)


def _watched(calls: Iterator[Call], total: int) -> Iterator[Call]:
    """The same calls, with a bar where a person watches."""
    if not sys.stderr.isatty():
        yield from calls
        return
    with click.progressbar(calls, length=total, label="writing", file=sys.stderr, update_min_steps=1000) as bar:
        yield from bar
