"""When each call of a synthetic workload is issued: slots, arrivals, sub-agents for which their parent waits."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from eactl.model.orders import ServiceRates
from eactl.trace.synth.plan import Floats, Plan


class Issued(NamedTuple):
    """One call at the time it is issued.

    ``gap_s`` counts from the task's previous response (None: it has none); ``service_s`` from here to its own
    response, waiting in line included.
    """

    call: int
    arrival_s: float
    gap_s: float | None
    service_s: float


def schedule(plan: Plan) -> Iterator[Issued]:
    """The calls in the order in which they are issued, which is the order in which they are served.

    With ``agents`` a task starts when one of that many slots is free; else at its arrival, or at once. A sub-agent
    starts with its parent's response and uses no slot; the parent's next call waits for it. A call takes its
    place in one line, holds the server for ``server_s`` alone, then runs beside the others at ServiceRates'
    assumed speeds.
    """
    return _Timeline(plan).run()


def _running_s(plan: Plan) -> Floats:
    fresh = (plan.prompt_tokens - plan.keep_tokens).astype(np.float64)
    return ServiceRates().service_s(fresh, plan.output_tokens.astype(np.float64))


class _Timeline:
    def __init__(self, plan: Plan) -> None:
        shape = plan.shape
        self._first = (np.cumsum(shape.counts) - shape.counts).tolist()
        self._task = shape.task.tolist()
        self._last = shape.last.tolist()
        self._gap = np.round(plan.gap_s, 3).tolist()
        self._running_s = np.round(_running_s(plan), 3).tolist()
        self._server_s = plan.settings.server_s
        self._server_free = 0.0
        self._parent = plan.parent_call.tolist()
        self._children: dict[int, list[int]] = {}
        for task, parent in enumerate(self._parent):
            if parent >= 0:
                self._children.setdefault(parent, []).append(task)
        self._running_children = {parent: len(tasks) for parent, tasks in self._children.items()}
        self._responded: dict[int, float] = {}  # parent call -> its own response, while sub-agents run
        self._waiting: deque[int] = deque()
        self._ready: list[tuple[float, int, float]] = []  # issue time, call, previous response
        tasks = range(plan.settings.tasks)
        if plan.settings.agents is not None:
            self._waiting = deque(tasks)
            for _ in range(min(plan.settings.agents, len(tasks))):
                self._start(self._waiting.popleft(), 0.0)
        else:
            arrivals = np.round(np.nan_to_num(plan.arrival_s), 3).tolist()
            for task in tasks:
                self._start(task, arrivals[task])

    def run(self) -> Iterator[Issued]:
        while self._ready:
            now, call, since = heapq.heappop(self._ready)
            first = call == self._first[self._task[call]]
            self._server_free = max(now, self._server_free) + self._server_s
            response = self._server_free if self._server_s else now
            response += self._running_s[call]
            yield Issued(call, round(now, 3), None if first else round(now - since, 3), round(response - now, 3))
            self._respond(call, response)

    def _start(self, task: int, at: float) -> None:
        heapq.heappush(self._ready, (at, self._first[task], at))

    def _respond(self, call: int, at: float) -> None:
        children = self._children.get(call)
        if children:
            self._responded[call] = at
            for child in children:
                self._start(child, at)
        elif self._last[call]:
            self._finish(self._task[call], at)
        else:
            heapq.heappush(self._ready, (at + self._gap[call + 1], call + 1, at))

    def _finish(self, task: int, at: float) -> None:
        parent = self._parent[task]
        if parent < 0:
            if self._waiting:
                self._start(self._waiting.popleft(), at)
            return
        self._running_children[parent] -= 1
        if not self._running_children[parent]:  # the slowest sub-agent is back
            since = self._responded.pop(parent)
            heapq.heappush(self._ready, (at + self._gap[parent + 1], parent + 1, since))
