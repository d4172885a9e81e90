"""``eactl trace profile`` for people: what was read, how it is spread, one sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eactl.report.table import table
from eactl.units import human_count, human_many

_MAX_SOURCES = 20
_PATH_WIDTH = 56
_PERCENTILES = ("min", "p50", "p90", "p99", "max")

Fields = Mapping[str, Any]


def profile_text(document: Fields, *, next_step: str) -> str:
    """The fields of the document ``eactl.trace-profile/1`` as text; ``next_step`` is the command to run next."""
    parts = [
        _sources(document["sources"]),
        workload_lines(document["workload"]),
        _facts(document),
        _spread(document),
        sentence(document, next_step),
    ]
    return "\n\n".join(part for part in parts if part)


def workload_lines(work: Fields) -> str:
    """Totals of a workload, two lines."""
    outputs = "unknown" if work["output_tokens"] is None else human_count(work["output_tokens"])
    shared = _share(work["previous_prompt_shared_tokens"], work["prompt_tokens"])
    return (
        f"Workload   {human_many(work['tasks'], 'task')}, {human_many(work['calls'], 'call')}, "
        f"{human_count(work['prompt_tokens'])} prompt tokens (mean {work['mean_prompt_tokens']:,.0f}, "
        f"longest {work['max_prompt_tokens']:,}), {outputs} output tokens\n"
        f"Stable     {stable_share(work)} of the prompt tokens repeat the previous turn and its output; "
        f"{shared} repeat its prompt alone"
    )


def stable_share(work: Fields) -> str:
    """``98.1 %``, or ``94.2 % to 97.0 %`` where only bounds are known."""
    if work["stable_tokens"] is not None:
        return _share(work["stable_tokens"], work["prompt_tokens"])
    low, high = (_share(work[f"stable_tokens_{bound}"], work["prompt_tokens"]) for bound in ("lower", "upper"))
    return low if low == high else f"{low} to {high}"


def sentence(document: Fields, next_step: str) -> str:
    """What it means: how much of the prefill is avoidable, and what to run next."""
    work = document["workload"]
    least = work["prompt_tokens"] - work["stable_tokens_upper"]
    most = work["prompt_tokens"] - work["stable_tokens_lower"]
    fresh = (
        human_count(least)
        if human_count(least) == human_count(most)
        else f"{human_count(least)} to {human_count(most)}"
    )
    text = (
        f"With every turn's KV kept until the next, {fresh} of {human_count(work['prompt_tokens'])} prompt tokens "
        f"would be left to compute"
    )
    condensed = document["condensations"]
    if condensed["calls"]:
        text += (
            f"; {human_many(condensed['calls'], 'call')} dropped more than half of the history, "
            f"{human_count(condensed['dropped_tokens'])} tokens in all"
        )
    return f"{text}. Next: {next_step}"


def _facts(document: Fields) -> str:
    lines = []
    groups = sorted(document["shared_prefixes"], key=lambda group: (1 - group["tasks"]) * group["tokens"])
    if groups:
        named = ", ".join(f"{group['tokens']:,} tokens by {group['tasks']:,} tasks" for group in groups[:3])
        more = f" and {len(groups) - 3} more groups" if len(groups) > 3 else ""
        lines.append(f"Shared     first prompts begin alike: {named}{more}")
    elif document["shared_prefix_tokens"] == 0:
        lines.append("Shared     no two tasks begin alike")
    active = document["active_tasks"]
    if active is not None:
        over = "" if active["over"] == "time" else ", counted over calls because there is no common clock"
        lines.append(f"Active     {active['mean']:.1f} tasks in progress on average, at most {active['max']:,}{over}")
    if document["duration_s"] is not None:
        lines.append(f"Time       {duration_text(document['duration_s'])} from the first call to the last response")
    condensed = document["condensations"]
    lines.append(
        f"Condensed  {human_many(condensed['calls'], 'call')} of {human_many(condensed['tasks'], 'task')} kept less "
        "than half of the previous prompt"
        if condensed["calls"]
        else "Condensed  no call kept less than half of the previous prompt"
    )
    return "\n".join(lines)


def _spread(document: Fields) -> str:
    rows = []
    for label, key, mean, value in (
        ("prompt tokens", "prompt_tokens", "{:,.0f}", "{:,.0f}"),
        ("output tokens", "output_tokens", "{:,.0f}", "{:,.0f}"),
        ("calls per task", "calls_per_task", "{:,.1f}", "{:,.0f}"),
        ("gap before a call, s", "gap_s", "{:,.2f}", "{:,.2f}"),
        ("service of a call, s", "service_s", "{:,.2f}", "{:,.2f}"),
    ):
        spread = document[key]
        if spread is not None:
            rows.append([label, mean.format(spread["mean"]), *(value.format(spread[at]) for at in _PERCENTILES)])
    return table(rows, ["", "mean", *_PERCENTILES]) if rows else ""


def _sources(sources: Sequence[Fields]) -> str:
    rows = []
    folder, names = short_paths([str(source["path"]) for source in sources[:_MAX_SOURCES]])
    for source, name in zip(sources, names, strict=False):
        notes = []
        if source["duplicate_of"]:
            notes.append(f"same as {source['duplicate_of']}")
        if source["skipped_lines"]:
            notes.append(f"{human_many(_length(source['skipped_lines']), 'line')} skipped")
        if not source["exact"]:
            counted = source["lower_tokens"] == source["upper_tokens"] == source["prompt_tokens"]
            notes.append("counts exact, ids approximate" if counted else "approximate")
        rows.append([
            name, source["format"], _count(source["tasks"]), _count(source["calls"]),
            _count(source["prompt_tokens"]), _count(source["output_tokens"]), ", ".join(notes),
        ])  # fmt: skip
    if not rows:
        return ""
    headers = [
        f"source in {_shorter(folder)}" if folder else "source",
        "format",
        "tasks",
        "calls",
        "prompt tokens",
        "output tokens",
        "",
    ]
    if not any(row[-1] for row in rows):
        rows, headers = [row[:-1] for row in rows], headers[:-1]
    text = table(rows, headers, left=(0, 1))
    if len(sources) > _MAX_SOURCES:
        rest = sources[_MAX_SOURCES:]
        copies = sum(1 for source in rest if source["duplicate_of"])
        text += f"\n... and {human_many(len(rest), 'more file')} ({copies} of them duplicates; --json lists all)"
    return text


def short_paths(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The folder that all of several paths lie in ("" for none worth naming) and names for a table, told apart."""
    folder = (
        os.path.commonpath(paths) if len(paths) > 1 and len({Path(path).is_absolute() for path in paths}) == 1 else ""
    )
    rest = [os.path.relpath(path, folder) for path in paths] if folder else list(paths)
    alike: dict[str, list[str]] = {}
    for path in rest:
        alike.setdefault(_shorter(path), []).append(path)
    short = []
    for path in rest:
        same = alike[_shorter(path)]  # of those, what comes after their common beginning
        begin = _common(same) if len(set(same)) > 1 else 0
        short.append(_shorter(f"...{path[begin:]}" if begin else path))
    return folder, short if len(set(short)) == len(set(rest)) else rest


def _common(paths: Sequence[str]) -> int:
    """Characters with which all of ``paths`` begin."""
    first, last = min(paths), max(paths)
    return next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))


def _shorter(path: str) -> str:
    """``path`` with its middle left out where it is long: mostly its end tells files apart."""
    return path if len(path) <= _PATH_WIDTH else f"{path[:20]}...{path[23 - _PATH_WIDTH :]}"


def _length(skipped: Any) -> int:
    return skipped if isinstance(skipped, int) else len(skipped)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


def duration_text(seconds: float) -> str:
    """``90.0 s``, ``3 minutes`` or ``2.5 hours``."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.1f} hours"
