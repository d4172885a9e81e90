"""The text of ``probe prefill``: seconds over lengths and the two terms fitted through them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eactl.report.probe_numbers import duration, three_figures, unfinished
from eactl.report.table import table

Fields = Mapping[str, Any]

_METHODS = {
    "bound": "a lower bound: FLOP of the model over the matrix rate, all ranks at once",
    "layers": "one of each different block timed with random weights, times the layers that have it",
    "server": "the server's own time between scheduling and first token",
}


def prefill_text(document: Fields) -> str:
    """The table over lengths, the loaded one if there is one, and the cost in one sentence."""
    where = document["details"].get("server_model") or document["device_name"] or "given peak"
    parts = [f"Prefill, method {document['method']} ({_METHODS[document['method']]}), {where}"]
    parts.append(_lengths(document["points"]))
    if document["loaded"]:
        beside = document["details"]["concurrency"] - 1
        parts.append(f"Beside {beside} decoding request(s)\n" + _lengths(document["loaded"]["points"]))
    if document["matrix"]:
        matrix = document["matrix"]
        parts.append(
            f"Matrix rate {three_figures(matrix['tflops'])} TFLOP/s ({matrix['dtype']}, {matrix['side']} square)"
        )
    parts += [_sentence(document), unfinished(document["status"]) or ""]
    return "\n\n".join(part for part in parts if part)


def _lengths(points: list[Fields]) -> str:
    """A bound has no samples, so the columns that describe them are left out for it."""
    rows = []
    for point in points:
        row: list[object] = [f"{point['tokens']:,}", duration(point["median_s"]), three_figures(point["us_per_token"])]
        if "samples_s" in point:
            off = "" if point["residual"] is None else f"{point['residual'] * 100:+.0f} %"
            row += [duration(point["mad_s"]), off, len(point["samples_s"]), len(point["outliers"]) or ""]
        rows.append(row)
    headers = ["tokens", "median", "µs/token", "MAD", "off the fit", "samples", "outliers"]
    return table(rows, headers[: len(rows[0])], left=()) if rows else ""


def _sentence(document: Fields) -> str:
    if document["us_per_token"] is None:
        return "Nothing can be said about the cost of prefill: no length was measured to its end."
    text = f"Prefill costs {three_figures(document['us_per_token'])} µs per token"
    if document["quadratic_us_per_token2"]:
        text += f", and {three_figures(document['quadratic_us_per_token2'])} µs per token² for attention"
    if document["loaded"]:
        text += f"; under load {three_figures(document['loaded']['us_per_token'])} µs per token"
    return text + "."
