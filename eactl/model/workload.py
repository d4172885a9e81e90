"""A workload as the reuse model sees it: columns of numbers and a prefix forest, no text and no ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eactl.model.forest import Forest, PathIndex

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """Calls in recorded order, one array entry per call.

    ``task`` numbers the tasks in order of first appearance. ``prompt_node`` is where the prompt's known blocks
    end in ``forest`` (whole units of ``unit_tokens`` tokens), ``path_node`` where prompt and output end (equal
    where output ids are unknown). ``output_tokens`` is -1 and times are NaN where nothing was recorded.
    """

    task_names: tuple[str, ...]
    task: npt.NDArray[np.int32]
    prompt_tokens: Int64s
    output_tokens: Int64s
    arrival_s: Floats
    gap_s: Floats
    service_s: Floats
    unit_tokens: npt.NDArray[np.int32]
    prompt_node: npt.NDArray[np.int32]
    path_node: npt.NDArray[np.int32]
    forest: Forest
    salts: int = 1  # how many different salts keep KV apart

    def __len__(self) -> int:
        return len(self.task)

    @cached_property
    def paths(self) -> PathIndex:
        """Common-ancestor index of the forest, built once."""
        return self.forest.paths()

    @cached_property
    def previous(self) -> npt.NDArray[np.int32]:
        """For each call the number of the same task's previous call, or -1."""
        last: dict[int, int] = {}
        previous = np.full(len(self), -1, dtype=np.int32)
        for call, task in enumerate(self.task.tolist()):
            previous[call] = last.get(task, -1)
            last[task] = call
        return previous

    @property
    def prompts_exact(self) -> bool:
        """Whether all token ids that a later call could repeat are known, so that stable tokens are exact."""
        continued = np.unique(self.previous[self.previous >= 0])
        processed = self.prompt_tokens[continued] + self.output_tokens[continued]
        known = self.forest.end_tokens[self.path_node[continued]] == processed
        return bool((self.unit_tokens == 1).all() and known.all())

    def shared_with_previous(self, *, with_output: bool) -> Int64s:
        """Per call, tokens shared with the task's previous prompt (followed by its output if ``with_output``).

        The longest common prefix, in whole blocks for block traces; 0 for a task's first call (METHOD.md,
        "Cache-stable prompt length"; Sec. 2 and App. B of the paper).
        """
        before = (self.path_node if with_output else self.prompt_node).tolist()
        nodes, meet, end = self.prompt_node.tolist(), self.paths.meet, self.paths.end
        shared = np.zeros(len(self), dtype=np.int64)
        for call, previous in enumerate(self.previous.tolist()):
            if previous >= 0:
                shared[call] = max(0, end[meet(nodes[call], before[previous])])
        return shared

    @cached_property
    def mean_prompt_tokens(self) -> float:
        """N̄: the mean prompt length of the trace."""
        return float(self.prompt_tokens.mean()) if len(self) else 0.0

    @cached_property
    def active_tasks(self) -> float:
        """Mean number of tasks in progress at a call, in recorded order (a task spans its first to last call)."""
        if not len(self):
            return 0.0
        tasks = len(self.task_names)
        first = np.full(tasks, len(self), dtype=np.int64)
        last = np.zeros(tasks, dtype=np.int64)
        at = np.arange(len(self))
        np.minimum.at(first, self.task, at)
        np.maximum.at(last, self.task, at)
        return float((last - first + 1).sum() / len(self))
