"""``eactl trace synth`` for people: what was made and what to do with it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from eactl.report.profile import duration_text, workload_lines
from eactl.units import human_bytes


def synth_text(document: Mapping[str, Any]) -> str:
    """The fields of the document ``eactl.trace-synth/1`` as text."""
    settings = document["settings"]
    load = "all tasks start at once"
    if settings["agents"] is not None:
        load = f"{settings['agents']:,} task slots"
    elif settings["arrival_rate_per_s"] is not None:
        load = f"{settings['arrival_rate_per_s']:g} tasks arrive per second"
    kind = "token ids" if settings["block_tokens"] is None else f"blocks of {settings['block_tokens']:,} tokens"
    lines = [
        workload_lines(document["workload"]),
        f"Load       {load}, {duration_text(document['duration_s'])} in all; seed {settings['seed']}, {kind}",
    ]
    if document["output"] is None:
        return "\n".join([*lines, "", "Nothing was written (--dry-run). Next: the same command with -o FILE"])
    path = shlex.quote(document["output"])
    if document["output_bytes"] is None:  # a pipe or a device
        return "\n".join([*lines, "", f"Wrote to {path}"])
    size = human_bytes(document["output_bytes"])
    return "\n".join([*lines, "", f"Wrote {path}, {size}. Next: eactl size --trace {path} --model MODEL"])
