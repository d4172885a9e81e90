"""Two saved probe results side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eactl.errors import UsageError
from eactl.report.probe_numbers import three_figures
from eactl.report.table import table

Fields = Mapping[str, Any]

# figure -> (label, whether more is better; None: neither)
_FIGURES: dict[str, tuple[str, bool | None]] = {
    "bytes_per_token_rank": ("KV bytes per token and rank", False),
    "bandwidth_gib_s": ("host to device, GiB/s", True),
    "overhead_us": ("fixed cost of a restore, µs", False),
    "d2h_gib_s": ("device to host, GiB/s", True),
    "pageable_gib_s": ("from pageable memory, GiB/s", True),
    "concurrent_gib_s": ("all ranks at once, slowest, GiB/s", True),
    "restore_gib_s": ("a restore, GiB/s", True),
    "us_per_token": ("prefill, µs/token", False),
    "quadratic_us_per_token2": ("prefill attention, µs/token²", False),
    "limit_obr": ("OBR, long prefixes", True),
    "break_even_tokens": ("break-even, tokens", False),
    "flop_per_host_byte": ("FLOP per host byte", None),
    "available_to_tier_gib": ("memory available to a tier, GiB", True),
}
SCHEMAS = ("eactl.obr/1", "eactl.h2d/1", "eactl.prefill/1", "eactl.host/1")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both results; ``ratio`` is b over a."""

    name: str
    label: str
    a: float | None
    b: float | None
    ratio: float | None
    better: str | None


def compare_rows(a: Fields, b: Fields) -> list[Row]:
    """Every figure that at least one of two results of the same kind has. Raises UsageError for different kinds."""
    if a.get("schema") != b.get("schema"):
        raise UsageError(
            f"results of different kinds: {a.get('schema')} and {b.get('schema')}", where="probe compare",
            hint="compare two results of the same command",
        )  # fmt: skip
    rows = []
    for name, (label, more_is_better) in _FIGURES.items():
        one, other = _number(a.get(name)), _number(b.get(name))
        if one is None and other is None:
            continue
        ratio = other / one if one and other is not None else None
        rows.append(Row(name, label, one, other, ratio, _better(one, other, more_is_better)))
    rows.extend(_obr_rows(a, b))
    return rows


def _obr_rows(a: Fields, b: Fields) -> list[Row]:
    ones, others = ({p["tokens"]: p["obr"] for p in side.get("points", []) if "obr" in p} for side in (a, b))
    return [
        Row(f"obr_{n}", f"OBR at {n:,} tokens", ones[n], others[n], None, _better(ones[n], others[n], True))
        for n in sorted(ones.keys() & others.keys())
    ]


def _better(one: float | None, other: float | None, more_is_better: bool | None) -> str | None:
    """The side that is better by more than 2 %, which is less than two runs on one machine differ by."""
    if one is None or other is None or more_is_better is None:
        return None
    if abs(other - one) <= 0.02 * max(abs(one), abs(other)):
        return None
    return "b" if (other > one) == more_is_better else "a"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def compare_text(rows: list[Row], names: tuple[str, str], a: Fields, b: Fields) -> str:
    """The table, the two machines above it and the two verdicts below."""
    cells = [
        [row.label, _cell(row.a), _cell(row.b), "" if row.ratio is None else f"{row.ratio:.2f}",
         "" if row.better is None else names[0 if row.better == "a" else 1]]
        for row in rows
    ]  # fmt: skip
    head = "\n".join(f"{name}: {_machine(side)}" for name, side in zip(names, (a, b), strict=True))
    text = f"{head}\n\n" + table(cells, ["figure", names[0], names[1], "ratio", "better"], left=(0, 4))
    if a.get("verdict") and b.get("verdict"):
        text += f"\n\nAnswers: {names[0]} {a['verdict']}, {names[1]} {b['verdict']}."
    return text


def _machine(document: Fields) -> str:
    memory = document.get("memory")
    device = (
        document.get("device_name")
        or document.get("gpu")
        or (memory.get("cpu") if isinstance(memory, Mapping) else None)
    )
    parts = [
        str(device or "given figures"),
        document.get("model"),
        f"TP {document['tp']}" if document.get("tp") else None,
    ]
    status = document.get("status", "complete")
    return ", ".join([str(part) for part in parts if part] + ([status] if status != "complete" else []))


def _cell(value: float | None) -> str:
    return "not measured" if value is None else three_figures(value)
