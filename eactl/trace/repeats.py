"""Calls that look recorded twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eactl.model.workload import Workload
from eactl.trace.call import Notice


def repeated_calls(workload: Workload) -> int:
    """How many calls agree with an earlier one in arrival, prompt, output length and service time.

    Only calls whose arrival and output were recorded count: without them equal prompts are an ordinary thing.
    """
    arrival = workload.arrival_s
    order = np.argsort(arrival, kind="stable")  # NaN last; nearly sorted already, so this is quick
    tied = arrival[order][1:] == arrival[order][:-1]  # NaN is equal to nothing
    if not tied.any():
        return 0
    calls = order[np.append(tied, False) | np.append(False, tied)]
    calls = calls[workload.output_tokens[calls] >= 0]
    facts: list[npt.NDArray[Any]] = [
        arrival[calls],
        workload.prompt_node[calls],
        workload.prompt_tokens[calls],
        workload.output_tokens[calls],
        np.nan_to_num(workload.service_s[calls], nan=-1.0),
    ]
    by_facts = np.lexsort(facts)
    equal = np.ones(max(0, len(calls) - 1), dtype=bool)
    for fact in facts:
        equal &= fact[by_facts][1:] == fact[by_facts][:-1]
    return int(equal.sum())


def repeats_notices(workload: Workload) -> list[Notice]:
    """A warning if calls look recorded twice: each copy counts as perfect reuse and would flatter a tier."""
    repeats = repeated_calls(workload)
    if not repeats:
        return []
    what = "1 call repeats" if repeats == 1 else f"{repeats:,} calls repeat"
    return [
        Notice(
            "repeated-calls",
            f"{what} an earlier one: same time, same prompt, same length of output; a copy counts as reuse",
            "leave the copies out if the recording was joined or written twice",
        )
    ]
