"""From a stream of calls to the columns and the prefix forest that the reuse model works on."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from eactl.model.forest import ForestBuilder
from eactl.model.workload import Workload
from eactl.trace.call import Call
from eactl.trace.tasks import TaskInference

_NAN = float("nan")


def load_workload(calls: Iterable[Call], *, merge_salts: bool = False) -> Workload:
    """Read all calls; what is kept is a few numbers per call and the shape of the prefix forest.

    Calls without a task get one by prefix extension (eactl.trace.tasks). ``merge_salts`` treats all salts as one,
    to tell what isolation costs.
    """
    forest = ForestBuilder()
    inference = TaskInference(forest)
    numbers: dict[str | int, int] = {}
    key: str | int
    names: list[str] = []
    latest: dict[str, int] = {}  # task -> number of its latest call
    task_of, unit_tokens, prompt_node, path_node = array("i"), array("i"), array("i"), array("i")
    prompt_tokens, output_tokens = array("q"), array("q")
    arrival_s, gap_s, service_s = array("d"), array("d"), array("d")

    salts: set[str | None] = set()

    for call in calls:
        salts.add(call.salt)
        root = forest.root((call.scope, None if merge_salts else call.salt, call.model), call.unit_tokens)
        like = (-1, 0)
        if call.task is not None:
            like = (latest.get(call.task, -1), call.keep)
            latest[call.task] = len(task_of)
        if call.output_ids is not None and len(call.output_ids):
            place = forest.insert(root, np.concatenate((call.ids, call.output_ids)), len(call.ids), like)
        else:
            place = forest.insert(root, call.ids, None, like)
        if call.task is None:
            inferred, _ = inference.assign(place, call.prompt_tokens)
            key, name = inferred, f"task-{inferred}"
        else:
            inference.pass_over(place)
            key = name = call.task
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(names)
            names.append(name)
        task_of.append(number)
        unit_tokens.append(call.unit_tokens)
        prompt_node.append(place.prompt_node)
        path_node.append(place.path_node)
        prompt_tokens.append(call.prompt_tokens)
        output_tokens.append(-1 if call.output_tokens is None else call.output_tokens)
        arrival_s.append(_NAN if call.arrival_s is None else call.arrival_s)
        gap_s.append(_NAN if call.gap_s is None else call.gap_s)
        service_s.append(_NAN if call.service_s is None else call.service_s)

    return Workload(
        task_names=tuple(names),
        salts=len(salts),
        task=np.array(task_of, dtype=np.int32),
        prompt_tokens=np.array(prompt_tokens, dtype=np.int64),
        output_tokens=np.array(output_tokens, dtype=np.int64),
        arrival_s=np.array(arrival_s, dtype=np.float64),
        gap_s=np.array(gap_s, dtype=np.float64),
        service_s=np.array(service_s, dtype=np.float64),
        unit_tokens=np.array(unit_tokens, dtype=np.int32),
        prompt_node=np.array(prompt_node, dtype=np.int32),
        path_node=np.array(path_node, dtype=np.int32),
        forest=forest.freeze(),
    )
