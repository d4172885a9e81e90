"""What is in a trace: lengths, gaps, calls per task, condensations, tasks in progress, prefixes sessions share.

Everything comes from the columns and the prefix forest of a Workload, so nothing is kept per call besides those.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eactl.model.summary import WorkloadSummary, summarise
from eactl.model.workload import Workload
from eactl.trace.call import Call, Notice
from eactl.trace.notices import inference_notices, reading_notices
from eactl.trace.repeats import repeats_notices
from eactl.trace.stream import TraceStream
from eactl.trace.workload import load_workload

_STABLE_BOUNDED = Notice(
    "stable-bounded",
    "not all output ids are known, so stable tokens are given as two bounds",
    "stable_tokens_lower counts what the previous prompt alone shares, stable_tokens_upper all that its output could",
)
_ONE_TASK = Notice("one-task", "one task only, so there is no prefix that sessions could share", "add more sessions")

CONDENSED_BELOW = 0.5  # a call that keeps less of the previous prompt has been condensed, not edited


@dataclass(frozen=True)
class Distribution:
    """How a quantity is spread over ``count`` values; the percentiles are values that occur."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: npt.NDArray[Any]) -> Distribution | None:
        """The spread of ``values``, NaN left out; None where there are none."""
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        if not len(known):
            return None
        low, p50, p90, p99, high = np.percentile(known, (0, 50, 90, 99, 100), method="inverted_cdf").tolist()
        return cls(len(known), round(float(known.mean()), 3), low, p50, p90, p99, high)


@dataclass(frozen=True)
class SharedPrefix:
    """Tasks whose first prompts begin alike: how many there are, and with how many common tokens."""

    tasks: int
    tokens: int


@dataclass(frozen=True)
class Condensations:
    """Calls that keep less than half of their task's previous prompt, and the tokens they dropped from it."""

    calls: int
    tasks: int
    dropped_tokens: int


@dataclass(frozen=True)
class ActiveTasks:
    """Tasks in progress, from first to last call: mean and most, ``over`` time or, without times, over calls."""

    mean: float
    max: int
    over: str


@dataclass(frozen=True)
class TraceProfile:
    """The statistics of one or several traces; None means that the traces do not tell."""

    workload: WorkloadSummary
    sources: tuple[Mapping[str, Any], ...]
    shared_prefix_tokens: int | None
    shared_prefixes: tuple[SharedPrefix, ...]
    prompt_tokens: Distribution | None
    output_tokens: Distribution | None
    calls_per_task: Distribution | None
    gap_s: Distribution | None
    service_s: Distribution | None
    condensations: Condensations
    active_tasks: ActiveTasks | None
    duration_s: float | None
    warnings: tuple[Mapping[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields of the document ``eactl.trace-profile/1``."""
        return asdict(self)


def profile_trace(stream: TraceStream) -> TraceProfile:
    """Read ``stream`` to its end and describe it. Raises TraceError where it cannot be read."""
    scopes: set[str] = set()
    workload = load_workload(_noting_scopes(stream, scopes))
    sources = stream.sources
    notices = [*reading_notices(stream.warnings, sources), *inference_notices(sources), *repeats_notices(workload)]
    entries = [source.as_dict() for source in sources]
    for entry in entries:
        if entry["calls"] and not entry["tasks"]:  # the format names none
            entry["tasks"] = len(workload.task_names) if len(sources) == 1 else None
    one_clock = len(sources) == 1 or all(source.common_clock and source.has_times for source in sources)
    return profile_workload(
        workload,
        entries,
        [notice.as_dict() for notice in notices],
        one_clock=one_clock,
        one_scope=len(scopes) < 2,
    )


def _noting_scopes(calls: TraceStream, scopes: set[str]) -> Iterator[Call]:
    for call in calls:
        scopes.add(call.scope)
        yield call


def profile_workload(
    workload: Workload,
    sources: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[Mapping[str, str]] = (),
    *,
    one_clock: bool = True,
    one_scope: bool = True,
) -> TraceProfile:
    """The statistics of ``workload``.

    ``one_clock`` False: its arrivals come from clocks that do not agree. ``one_scope`` False: its ids come from
    files in which they mean different things (TraceStream warns of it).
    """
    summary = summarise(workload)
    groups = shared_prefixes(workload)
    several = len(workload.task_names) > 1
    notices = []
    if summary.stable_tokens is None:
        notices.append(_STABLE_BOUNDED)
    if not several:
        notices.append(_ONE_TASK)
    comparable = several and (one_scope or bool(groups))
    measured = {
        "output_tokens": Distribution.of(workload.output_tokens[workload.output_tokens >= 0]),
        "gap_s": Distribution.of(workload.gap_s),
        "service_s": Distribution.of(workload.service_s),
    }
    duration = _duration_s(workload) if one_clock else None
    missing = [name for name, spread in measured.items() if spread is None]
    missing += ["duration_s"] if duration is None else []
    if missing:
        notices.append(Notice("not-recorded", f"the trace does not tell {', '.join(missing)}"))
    return TraceProfile(
        workload=summary,
        sources=tuple(sources),
        shared_prefix_tokens=(groups[0].tokens if groups else 0) if comparable else None,
        shared_prefixes=groups,
        prompt_tokens=Distribution.of(workload.prompt_tokens),
        calls_per_task=Distribution.of(np.bincount(workload.task, minlength=len(workload.task_names))),
        condensations=condensations(workload),
        active_tasks=_active_tasks(workload, one_clock=one_clock),
        duration_s=duration,
        warnings=(*warnings, *(notice.as_dict() for notice in notices)),
        **measured,
    )


def shared_prefixes(workload: Workload) -> tuple[SharedPrefix, ...]:
    """Groups of tasks whose first prompts begin alike, and what each group has in common; most tasks first.

    Where a part of a group has so much more in common that one copy for the part saves more tokens than one for all,
    the part is a group as well. In whole blocks for block traces. Prompts that can never share KV (another model or
    salt, or block ids of another file) are never in one group.
    """
    paths = workload.paths
    first_prompts = workload.prompt_node[workload.previous < 0].tolist()
    common: dict[int, int] = {}
    tasks: dict[int, int] = {}
    for node in first_prompts:
        if paths.end[node] <= 0:
            continue
        top = paths.first_below_root[node]
        common[top] = paths.meet(common[top], node) if top in common else node
        tasks[top] = tasks.get(top, 0) + 1
    groups = [SharedPrefix(count, paths.end[common[top]]) for top, count in tasks.items() if count > 1]
    groups += _parts(workload, first_prompts, common, tasks)
    return tuple(sorted(groups, key=lambda group: (-group.tasks, -group.tokens)))


def _parts(
    workload: Workload, first_prompts: list[int], common: dict[int, int], tasks: dict[int, int]
) -> Iterator[SharedPrefix]:
    """Of each group the part that saves most, if that is not the whole group."""
    paths = workload.paths
    below: dict[int, int] = {}  # first prompts that end at a node or run through it
    for node in first_prompts:
        below[node] = below.get(node, 0) + 1
    waiting = [(-paths.end[node], node) for node in below]
    heapq.heapify(waiting)  # deepest first, so that a node's count is whole when it is handed on
    best: dict[int, tuple[int, int]] = {}
    while waiting:
        end, node = heapq.heappop(waiting)
        if end >= 0:
            continue
        top, count = paths.first_below_root[node], below[node]
        if count > 1:
            best[top] = max(best.get(top, (0, 0)), ((count - 1) * -end, node))
        above = paths.parent[node]
        if above not in below:
            below[above] = 0
            heapq.heappush(waiting, (-paths.end[above], above))
        below[above] += count
    for top, (saved, node) in best.items():
        if saved > (tasks[top] - 1) * paths.end[common[top]]:
            yield SharedPrefix(below[node], paths.end[node])


def condensations(workload: Workload) -> Condensations:
    """Calls that keep less than CONDENSED_BELOW of the blocks (or tokens) of their task's previous prompt."""
    previous = workload.previous
    later = np.flatnonzero(previous >= 0)
    before = workload.forest.end_tokens[workload.prompt_node[previous[later]]]
    kept = workload.shared_with_previous(with_output=False)[later]
    condensed = kept < CONDENSED_BELOW * before
    return Condensations(
        calls=int(condensed.sum()),
        tasks=len(np.unique(workload.task[later[condensed]])),
        dropped_tokens=int((before - kept)[condensed].sum()),
    )


def _duration_s(workload: Workload) -> float | None:
    ends = workload.arrival_s + np.nan_to_num(workload.service_s)
    if not len(ends) or np.isnan(ends).any():
        return None
    return round(float(ends.max() - workload.arrival_s.min()), 3)


def _active_tasks(workload: Workload, *, one_clock: bool) -> ActiveTasks | None:
    """Tasks between the start of their first and the end of their last call."""
    if not len(workload):
        return None
    starts, ends = workload.arrival_s, workload.arrival_s + np.nan_to_num(workload.service_s)
    over = "time"
    if not one_clock or np.isnan(starts).any() or float(ends.max() - starts.min()) <= 0:
        starts = np.arange(len(workload), dtype=np.float64)
        ends, over = starts + 1, "calls"
    tasks = len(workload.task_names)
    first, last = np.full(tasks, np.inf), np.full(tasks, -np.inf)
    np.minimum.at(first, workload.task, starts)
    np.maximum.at(last, workload.task, ends)
    # At one instant (clocks are rounded) those that end go before those that start.
    moments = np.round(np.concatenate((first, last)), 2)
    steps = np.concatenate((np.ones(tasks, dtype=np.int64), np.full(tasks, -1, dtype=np.int64)))
    order = np.lexsort((steps, moments))
    most = int(np.cumsum(steps[order]).max())
    return ActiveTasks(round(float((last - first).sum() / (last.max() - first.min())), 2), max(most, 1), over)
