"""The answer of ``probe obr`` for someone who has not read the paper."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from eactl.report.probe_numbers import duration, three_figures, unfinished
from eactl.report.table import table
from eactl.units import human_bytes, human_count

Fields = Mapping[str, Any]

_ANSWERS = {
    "restore": "RESTORE: bringing a prefix back from host memory is faster than computing it again.",
    "recompute": "RECOMPUTE: computing a prefix again is faster than bringing it back from host memory.",
    "unclear": "UNCLEAR: the figures allow both answers.",
}
_FIGURES = (
    ("bandwidth_gib_s", "host to device", "GiB/s"),
    ("overhead_us", "fixed cost of a restore", "µs"),
    ("us_per_token", "prefill", "µs/token"),
    ("quadratic_us_per_token2", "prefill, attention", "µs/token²"),
    ("d2h_gib_s", "device to host", "GiB/s"),
)


def obr_text(document: Fields) -> str:
    """Figures with their sources, the table over lengths, what would change it, and what to do."""
    parts = [_title(document), _figures(document)]
    if document["points"]:
        parts += [_lengths(document["points"], "Restore or compute a prefix"), _reading(document)]
        if document["loaded"]:
            parts.append(_lengths(document["loaded"]["points"], "The same under load"))
        parts += [_changes(document), _sentence(document), unfinished(document["status"]) or ""]
    else:
        parts.append(f"No answer: the measurement is {document['status']}. What was measured is in the JSON (--json).")
    return "\n\n".join(part for part in parts if part)


def _title(document: Fields) -> str:
    weight = document["bytes_per_token_rank"]
    model = document["model"] or "KV size given"
    kv = f"{human_bytes(weight)} of KV per token and rank" if weight else "KV size not known"
    where = f", by the datasheet of {document['gpu']}" if document["gpu"] else ""
    where += f", measured on {document['device_name']}" if document["device_name"] else ""
    if document["device"] == "cpu":
        where += " without a GPU: an answer about this processor and its memory, not about a serving machine"
    return f"{model}, TP {document['tp']}: {kv}{where}"


def _figures(document: Fields) -> str:
    rows = []
    for name, label, unit in _FIGURES:
        value = document.get(name)
        if value is None or (name == "quadratic_us_per_token2" and value == 0):
            continue
        source = document["sources"].get(name, "")
        low, high = document["bands"].get(name, [value, value])
        band = f"{three_figures(low)} to {three_figures(high)}" if low != high else ""
        if name == "bandwidth_gib_s" and document["bandwidth_limited_by"]:
            source += f" ({document['bandwidth_limited_by']})"
        rows.append([label, f"{three_figures(value)} {unit}", source, band])
    headers = ["figure", "value", "source", "8 of 10 samples"]
    if not any(row[3] for row in rows):
        rows, headers = [row[:3] for row in rows], headers[:3]
    return table(rows, headers, left=(0, 2))


def _lengths(points: list[Fields], title: str) -> str:
    has_bands = any(point["obr_low"] != point["obr_high"] for point in points)
    rows = []
    for point in points:
        row = [f"{point['tokens']:,}", duration(point["load_s"]), duration(point["recompute_s"]), _share(point["obr"])]
        if has_bands:
            row.append(f"{_share(point['obr_low'])} to {_share(point['obr_high'])}")
        rows.append([*row, point["verdict"]])
    headers = ["prefix tokens", "restore", "compute", "saved (OBR)", *(["band"] if has_bands else []), "answer"]
    return f"{title}\n" + table(rows, headers, left=(len(headers) - 1,))


def _reading(document: Fields) -> str:
    lines = [f"Long prefixes approach {_share(document['limit_obr'])} saved."]
    even = document["break_even_tokens"]
    if even is None:
        lines.append("There is no length at which a restore is faster.")
    elif even >= 1:
        lines.append(f"A restore is faster from {even:,.0f} tokens on.")
    else:
        lines.append("A restore is faster at every length.")
    repay = document["restores_per_store"]
    if repay is not None:
        first = "Its first restore repays copying a token to the host; it" if repay <= 1 else "A token on the host"
        lines.append(f"{first} must come back {three_figures(repay)} times on average for that.")
    ratio = document["flop_per_host_byte"]
    if ratio is not None:
        kind = document["regime_text"] or "not classed"
        basis = document["flop_per_host_byte_basis"]
        lines.append(f"{human_count(ratio)} FLOP per host-link byte ({basis}): {kind}.")
    gammas = [
        f"{symbol} {document[name]:.2f}"
        for symbol, name in (("γG", "gamma_g"), ("γH", "gamma_h"))
        if document[name] is not None
    ]
    if gammas:
        lines.append(f"Load: {', '.join(gammas)} (pool over GPU cache, working set over tier).")
    return "\n".join(lines)


def _changes(document: Fields) -> str:
    flips = document["flips"]
    rows = [
        [flip["name"], _share(flip["obr"]), "changes the answer to " + flip["verdict"] if flip["flips"] else ""]
        for flip in flips
    ]
    headers = ["if", "saved (OBR)", ""]
    none = not any(flip["flips"] for flip in flips)
    if none:
        rows, headers = [row[:2] for row in rows], headers[:2]
    turning = document["turning_points"]
    limits = []
    if turning["bandwidth_gib_s"] is not None:
        limits.append(f"a link of {three_figures(turning['bandwidth_gib_s'])} GiB/s")
    if turning["us_per_token"] is not None:
        limits.append(f"a prefill of {three_figures(turning['us_per_token'])} µs/token")
    if turning["bytes_per_token_rank"] is not None:
        limits.append(f"{human_bytes(turning['bytes_per_token_rank'])} of KV per token")
    reference = f"{document['reference_tokens']:,}"
    tail = f"\nBoth take the same time at {', at '.join(limits)}." if limits else ""
    head = f"What would change it, at {reference} tokens\n" + table(rows, headers)
    return head + ("\nNone of these changes the answer." if none else "") + tail


def _sentence(document: Fields) -> str:
    at = document["reference"]
    load, compute = duration(at["load_s"]), duration(at["recompute_s"])
    times = f"Restoring {at['tokens']:,} tokens takes {load}, computing them {compute}"
    verdict = f"{_ANSWERS[document['verdict']]} {times}: {document['verdict_reason']}."
    return "\n".join(fill(text, width=100) for text in (verdict, document["advice"]))


def _share(value: float) -> str:
    """−15 %, 84 %, 99.8 %, over 99.9 %; a loss beyond tenfold is only called that."""
    if value <= -10:
        return "below −1000 %"
    if 0.9995 <= value < 1:
        return "over 99.9 %"
    return f"{value * 100:.1f} %" if 0.99 <= value < 1 else f"{value * 100:.0f} %"
