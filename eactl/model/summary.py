"""What a workload amounts to: the numbers every command reports about its input."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eactl.model.workload import Int64s, Workload


@dataclass(frozen=True)
class WorkloadSummary:
    """Totals over all calls; a field is None where the trace does not hold what it needs.

    ``stable_tokens`` (Sec. 2, App. B: the longest common prefix with the task's previous prompt followed by its
    output) is exact only where output ids are known. Otherwise it is None and lies between
    ``stable_tokens_lower`` and ``stable_tokens_upper``.
    """

    tasks: int
    calls: int
    prompt_tokens: int
    output_tokens: int | None
    mean_prompt_tokens: float
    max_prompt_tokens: int
    stable_tokens: int | None
    stable_share: float | None
    stable_tokens_lower: int
    stable_tokens_upper: int
    previous_prompt_shared_tokens: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(workload: Workload) -> WorkloadSummary:
    """The totals of ``workload``."""
    prompt = int(workload.prompt_tokens.sum())
    outputs = workload.output_tokens
    shared = workload.shared_with_previous(with_output=False)
    lower = int(shared.sum())
    exact = workload.prompts_exact
    if exact:
        stable = upper = int(workload.shared_with_previous(with_output=True).sum())
    else:
        stable, upper = None, int(_most_stable(workload, shared).sum())
    return WorkloadSummary(
        tasks=len(workload.task_names),
        calls=len(workload),
        prompt_tokens=prompt,
        output_tokens=None if (outputs < 0).any() else int(outputs.sum()),
        mean_prompt_tokens=round(workload.mean_prompt_tokens, 1),
        max_prompt_tokens=int(workload.prompt_tokens.max(initial=0)),
        stable_tokens=stable,
        stable_share=None if stable is None or not prompt else round(stable / prompt, 6),
        stable_tokens_lower=lower if stable is None else stable,
        stable_tokens_upper=upper,
        previous_prompt_shared_tokens=lower,
    )


def _most_stable(workload: Workload, shared: Int64s) -> Int64s:
    """The most that can be stable per call, given whole blocks shared with the previous prompt.

    A prompt that holds all blocks of the previous one may repeat its output too; one that leaves it earlier does
    so within the next block.
    """
    prompt, outputs, unit = workload.prompt_tokens, workload.output_tokens, workload.unit_tokens.astype(np.int64)
    previous = workload.previous.astype(np.int64)
    end = workload.forest.end_tokens[workload.prompt_node]
    extends = shared == end[previous]
    whole = np.where(outputs[previous] < 0, prompt, prompt[previous] + outputs[previous])
    most: Int64s = np.where(previous < 0, 0, np.minimum(prompt, np.where(extends, whole, shared + unit - 1)))
    return most
