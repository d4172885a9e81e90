"""Telling tasks apart where a trace names none: a prompt that extends an earlier one continues its task."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from eactl.model.forest import ForestBuilder, Placement
from eactl.trace.call import Call


class TaskInference:
    """Names tasks by prefix extension, one call after the other; hears of every insertion into ``forest``.

    A call continues the task of the deepest earlier prompt that it extends, if no other call has continued it
    yet: a second continuation (a parallel branch, a repeated sample) starts a task of its own. A prompt that
    ends inside a prefix which others introduced (a shared system prompt) is nobody's history.
    """

    def __init__(self, forest: ForestBuilder) -> None:
        self._forest = forest
        self._open: dict[int, deque[int]] = {}  # node at which prompts ended -> tasks that can go on there
        self._tokens = array("q")  # per task: its latest prompt
        self._calls = array("q")  # per task: its calls so far
        self._ends = array("q")  # per inserted call: where its prompt ended

    def assign(self, placement: Placement, prompt_tokens: int) -> tuple[int, int]:
        """Task number and position within the task, for the call just inserted at ``placement``."""
        end = placement.prompt_node
        self._ends.append(end)
        task = self._continued(end, prompt_tokens)
        if task is None:
            task = len(self._tokens)
            self._tokens.append(0)
            self._calls.append(0)
        position = self._calls[task]
        self._calls[task] += 1
        self._tokens[task] = prompt_tokens
        self._open.setdefault(end, deque()).append(task)
        return task, position

    def pass_over(self, placement: Placement) -> None:
        """Note a call that names its own task: nobody is inferred to continue it."""
        self._ends.append(placement.prompt_node)

    def _continued(self, end: int, prompt_tokens: int) -> int | None:
        forest = self._forest
        node = end
        while forest.parent_of(node):
            tasks = self._open.get(node)
            if tasks and self._ends[forest.made_by(node)] == node:
                for task in tasks:
                    if self._tokens[task] < prompt_tokens:
                        tasks.remove(task)
                        if not tasks:
                            del self._open[node]
                        return task
            node = forest.parent_of(node)
        return None


def infer_tasks(calls: Iterable[Call]) -> Iterator[Call]:
    """The same calls, each with a task: its own where the trace has one, else one inferred by prefix extension.

    Prompts of calls with a task are not held, so where a trace mixes both kinds, a prefix that only they introduced
    is not known as shared, and a later call may continue what load_workload counts as a task of its own.
    """
    forest = ForestBuilder()
    inference = TaskInference(forest)
    for call in calls:
        if call.task is None:
            root = forest.root((call.scope, call.salt, call.model), call.unit_tokens)
            task, position = inference.assign(forest.insert(root, call.ids), call.prompt_tokens)
            call = replace(call, task=f"task-{task}", call=position)
        yield call
