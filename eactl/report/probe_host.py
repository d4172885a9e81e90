"""The text of ``probe host``: facts and what each means for a tier."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill, indent
from typing import Any

from eactl.units import human_bytes

_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def host_text(document: Mapping[str, Any]) -> str:
    """One paragraph per fact: its value, then what it means and what to do."""
    memory = document["memory"]
    head = f"{memory['cpu'] or 'unknown CPU'}, {memory['cpus_usable']} usable CPUs, "
    head += f"{human_bytes(memory['total_bytes'])} of memory"
    head += f", driver {document['driver']}" if document["driver"] else ""
    parts = [head, *(_check(check) for check in document["checks"])]
    failed = [check["name"] for check in document["checks"] if check["level"] == "fail"]
    parts.append(
        f"The tier does not fit here: {', '.join(failed)}."
        if failed
        else f"A tier can take up to {human_bytes(document['available_to_tier_bytes'])} here, all ranks together."
    )
    return "\n\n".join(parts)


def _check(check: Mapping[str, Any]) -> str:
    meaning = check["text"] + (f" ({check['hint']})" if check["hint"] and check["level"] != "ok" else "")
    body = fill(meaning, width=94, break_on_hyphens=False)
    return f"{_MARKS[check['level']]}  {check['name']}: {check['value']}\n" + indent(body, "      ")
