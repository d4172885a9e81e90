"""The lengths of a synthetic workload: how long every prompt and output is, before any token exists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from eactl.trace.call import Notice
from eactl.trace.synth.settings import SynthSettings

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Shape:
    """Which calls there are: one entry per call, tasks one after the other, sub-agents after all tasks.

    ``first_of`` is the number of the task's first call, ``head_of`` that of the first call since the last
    condensation (itself for a first call and for a condensed one).
    """

    counts: Ints  # calls per task
    task: Ints
    index: Ints  # position within the task
    first: Flags
    last: Flags
    condensed: Flags
    head_of: Ints

    @classmethod
    def of(cls, counts: Ints, condense_every: int) -> Shape:
        """The shape of tasks with these numbers of calls, condensed before every ``condense_every``-th call."""
        starts = np.cumsum(counts) - counts
        task = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(int(counts.sum())) - starts[task]
        first = index == 0
        condensed = (index > 0) & (index % condense_every == 0) if condense_every else np.zeros_like(first)
        at = np.arange(len(index))
        head_of = np.maximum.accumulate(np.where(first | condensed, at, 0))
        return cls(counts, task, index, first, index == counts[task] - 1, condensed, head_of)

    def __len__(self) -> int:
        return len(self.task)

    @cached_property
    def appends(self) -> Flags:
        """Calls whose prompt extends the previous one."""
        return ~(self.first | self.condensed)

    @cached_property
    def calls_from_here(self) -> Ints:
        """How many prompts a token appended at this call stays in: until the task ends or is condensed."""
        segment_end = np.append(np.flatnonzero(self.first | self.condensed)[1:], len(self))
        segment = np.cumsum(self.first | self.condensed) - 1
        return np.asarray(segment_end[segment] - np.arange(len(self)), dtype=np.int64)

    def prompts(self, grown: Ints) -> Ints:
        """Prompt lengths, where ``grown`` is what each call adds (a head: its whole prompt)."""
        total = np.cumsum(grown)
        return np.asarray(total - (total - grown)[self.head_of], dtype=np.int64)


@dataclass(frozen=True)
class Plan:
    """The lengths of a workload: per call what its prompt keeps and appends, what it puts out, and its gap.

    ``kept_output_tokens`` is how much of this call's output the next prompt repeats unchanged (0 on the last
    call and before a condensation); ``parent_call`` says, per task, which call launched it (-1: none did).
    """

    settings: SynthSettings
    shape: Shape
    first_tokens: Ints  # per task: length of its first prompt
    append_tokens: Ints  # 0 on a task's first call
    output_tokens: Ints
    kept_output_tokens: Ints
    gap_s: Floats
    parent_call: Ints
    arrival_s: Floats  # per task; NaN where a slot or a parent decides
    notices: tuple[Notice, ...] = ()

    @cached_property
    def prompt_tokens(self) -> Ints:
        """Length of every prompt."""
        shape = self.shape
        grown = self.append_tokens + from_previous(self.kept_output_tokens, shape.appends)
        heads = shape.first | shape.condensed
        grown[heads] += self.first_tokens[shape.task[heads]]
        return shape.prompts(grown)

    @cached_property
    def keep_tokens(self) -> Ints:
        """Leading tokens of every prompt that are equal to (previous prompt, its output)."""
        kept = self.prompt_tokens - self.append_tokens
        kept[self.shape.first] = 0
        return kept

    @cached_property
    def previous_prompt_tokens(self) -> Ints:
        """Length of the task's previous prompt; 0 on a first call."""
        return from_previous(self.prompt_tokens, ~self.shape.first)


def from_previous(values: Ints, where: Flags) -> Ints:
    """For every call in ``where`` the value of the call before it, else 0."""
    shifted = np.zeros_like(values)
    shifted[1:] = values[:-1]
    shifted[~where] = 0
    return shifted
