"""The text of ``probe h2d``: rates, the fit behind them, and what holds a restore back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eactl.report.probe_numbers import duration, three_figures, unfinished
from eactl.report.table import table
from eactl.units import human_bytes

Fields = Mapping[str, Any]
_GIB = 1 << 30


def h2d_text(document: Fields) -> str:
    """Every series over its sizes, then the rates at a glance."""
    path = "from memory to memory" if document["device"] == "cpu" else "over the host link"
    parts = [f"Copies {path}, {document['device_name']}"]
    parts += [_series(series) for series in document["series"] if series["points"]]
    parts += [_rates(document), *_notes(document), _sentence(document), unfinished(document["status"]) or ""]
    return "\n\n".join(part for part in parts if part)


def _series(series: Fields) -> str:
    where = "CPU" if series["gpu"] is None else f"GPU {series['gpu']}"
    arrow = "host to device" if series["direction"] == "h2d" else "device to host"
    node = "" if series["numa_node"] is None else f", memory on NUMA node {series['numa_node']}"
    rows = [
        [
            human_bytes(point["bytes"]),
            duration(point["median_s"]),
            duration(point["mad_s"]),
            f"{point['bytes'] / point['median_s'] / _GIB:.1f}",
            "" if point["residual"] is None else f"{point['residual'] * 100:+.0f} %",
            len(point["samples_s"]),
            len(point["outliers"]) or "",
        ]
        for point in series["points"]
    ]
    headers = ["size", "median", "MAD", "GiB/s", "off the fit", "samples", "outliers"]
    return f"{where}, {arrow}, {series['memory']}{node}\n" + table(rows, headers, left=())


def _rates(document: Fields) -> str:
    rows = [
        ["host to device, fitted", _gib_s(document["bandwidth_gib_s"]), _band(document["bandwidth_band_gib_s"])],
        ["fixed cost of a copy", _us(document["overhead_us"]), f"timer itself {_us(document['timer_overhead_us'])}"],
        ["device to host, fitted", _gib_s(document["d2h_gib_s"]), ""],
    ]
    if document["pageable_gib_s"] is not None:
        rows.append(["from pageable memory", _gib_s(document["pageable_gib_s"]), "what an unpinned tier would get"])
    if document["concurrent_gib_s"] is not None:
        ranks = ", ".join(f"{rank:.1f}" for rank in document["concurrent_ranks_gib_s"])
        rows.append(["all ranks at once, slowest", _gib_s(document["concurrent_gib_s"]), f"each: {ranks}"])
    for pattern in document["patterns"]:
        what = f"{pattern['pieces']} x {human_bytes(pattern['piece_bytes'])}"
        rows.append([f"in the tier's {pattern['name']}", _gib_s(pattern["gib_s"]), what])
    return table(rows, ["rate", "value", ""])


def _notes(document: Fields) -> Sequence[str]:
    lines = list(document["numa"]["verdicts"]) if document["numa"] else []
    lines += [f"GPU {gpu['index']} link: {gpu['link_text']}" for gpu in document["gpus"]]
    if document["verified"] is False:
        lines.append("THE COPIED BYTES DIFFER FROM THE SOURCE: see the warnings.")
    return ["\n".join(lines)] if lines else []


def _sentence(document: Fields) -> str:
    if document["restore_gib_s"] is None:
        return "Nothing can be said about the rate of a restore: too little was measured."
    by = document["restore_limited_by"]
    return f"A restore moves {document['restore_gib_s']:.1f} GiB/s here; the limit is {by}."


def _gib_s(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f} GiB/s"


def _us(value: float | None) -> str:
    return "not measured" if value is None else f"{three_figures(value)} µs"


def _band(band: Sequence[float] | None) -> str:
    return "" if band is None else f"8 of 10 samples: {band[0]:.1f} to {band[1]:.1f}"
