"""In which order the calls reach the server: as recorded, round-robin, or a closed loop with A task slots."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from eactl.model.workload import Floats, Workload


@dataclass(frozen=True)
class ServiceRates:
    """What a call costs where the trace does not say: fresh prompt tokens and output tokens at fixed rates."""

    prefill_us_per_token: float = 50.0
    decode_ms_per_token: float = 20.0

    def service_s(self, fresh_tokens: Floats, output_tokens: Floats) -> Floats:
        """Seconds from arrival to the response's end."""
        seconds: Floats = (
            fresh_tokens * self.prefill_us_per_token * 1e-6 + output_tokens * self.decode_ms_per_token * 1e-3
        )
        return seconds


def recorded(workload: Workload) -> list[int]:
    """The order of the trace."""
    return list(range(len(workload)))


def round_robin(workload: Workload, agents: int) -> list[int]:
    """Every one of ``agents`` active tasks issues one call per round; a finished task's slot takes the next task.

    The order in which an LRU tier suffers most: all other agents' contexts come between two turns of one.
    """
    waiting = deque(_calls_by_task(workload))
    slots = [deque(waiting.popleft()) for _ in range(min(agents, len(waiting)))]
    order: list[int] = []
    while slots:
        running = []
        for slot in slots:
            order.append(slot.popleft())
            if slot:
                running.append(slot)
            elif waiting:
                running.append(deque(waiting.popleft()))
        slots = running
    return order


@dataclass(frozen=True)
class Timing:
    """Seconds per call: ``gap_s`` before it (after the task's previous response) and ``service_s`` for it.

    ``assumed_service_calls`` and ``assumed_gap_calls`` say for how many calls the trace did not hold the value.
    """

    gap_s: Floats
    service_s: Floats
    assumed_service_calls: int
    assumed_gap_calls: int


def timing(workload: Workload, rates: ServiceRates) -> Timing:
    """Recorded gaps and service times; where they are missing, from arrivals, then from ``rates``.

    A trace with arrivals alone tells the time from call to call, response included: then the whole of it is the
    gap and service is 0, so that one turn takes as long as it did.
    """
    arrival, gap, service = workload.arrival_s, workload.gap_s.copy(), workload.service_s.copy()
    previous = workload.previous
    later = previous >= 0
    between = np.full(len(workload), np.nan)
    between[later] = arrival[later] - arrival[previous[later]]

    no_gap = np.isnan(gap) & later
    from_arrivals = no_gap & ~np.isnan(between)
    spent = np.zeros(len(workload))
    spent[later] = np.nan_to_num(service[previous[later]])
    gap[from_arrivals] = np.maximum(0.0, between[from_arrivals] - spent[from_arrivals])
    turn_includes_service = np.zeros(len(workload), dtype=bool)
    turn_includes_service[previous[from_arrivals]] = True

    unknown = np.isnan(service)
    service[unknown & turn_includes_service] = 0.0
    assumed = unknown & ~turn_includes_service
    if assumed.any():
        fresh = (workload.prompt_tokens - workload.shared_with_previous(with_output=True)).astype(np.float64)
        outputs = np.maximum(workload.output_tokens, 0).astype(np.float64)
        service[assumed] = rates.service_s(fresh, outputs)[assumed]
    still_no_gap = np.isnan(gap)
    gap[still_no_gap] = 0.0
    return Timing(gap, service, int(assumed.sum()), int((still_no_gap & later).sum()))


def closed_loop(workload: Workload, agents: int, times: Timing) -> list[int]:
    """``agents`` task slots; a task's next call follows its response and gap, a new task follows a finished one.

    Tasks enter in recorded order (App. B of the paper). Calls are ordered by the time at which they are issued;
    service does not depend on the load, so queueing is not modelled.
    """
    waiting = deque(_calls_by_task(workload))
    gap, service = times.gap_s.tolist(), times.service_s.tolist()
    ready = [(0.0, slot, deque(waiting.popleft())) for slot in range(min(agents, len(waiting)))]
    order: list[int] = []
    while ready:
        now, slot, calls = heapq.heappop(ready)
        call = calls.popleft()
        order.append(call)
        response = now + service[call]
        if calls:
            heapq.heappush(ready, (response + gap[calls[0]], slot, calls))
        elif waiting:
            heapq.heappush(ready, (response, slot, deque(waiting.popleft())))
    return order


def _calls_by_task(workload: Workload) -> list[list[int]]:
    calls: list[list[int]] = [[] for _ in workload.task_names]
    for call, task in enumerate(workload.task.tolist()):
        calls[task].append(call)
    return calls
