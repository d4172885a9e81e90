"""What a planned workload amounts to, before a single id of it exists."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eactl.model.summary import WorkloadSummary
from eactl.trace.synth.plan import Plan
from eactl.trace.synth.schedule import schedule


@dataclass(frozen=True)
class SynthResult:
    """What ``eactl trace synth`` made, or with ``--dry-run`` would make (then ``output_bytes`` is None)."""

    profile: str | None
    settings: dict[str, Any]
    workload: WorkloadSummary
    duration_s: float
    output: str | None
    output_bytes: int | None
    warnings: tuple[dict[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """The fields of the document ``eactl.trace-synth/1``."""
        return asdict(self)


def summarise_plan(plan: Plan) -> WorkloadSummary:
    """The same totals that ``summarise`` finds in the trace made from ``plan``.

    A block trace holds whole blocks and no output ids, so its stable tokens are bounded, not exact.
    """
    shape, prompt, keep = plan.shape, plan.prompt_tokens, plan.keep_tokens
    before = plan.previous_prompt_tokens
    shared = np.minimum(keep, before)
    stable: int | None
    if plan.settings.block_tokens is None:
        stable = lower = upper = int(keep.sum())
        alone = int(shared.sum())
    else:
        unit = plan.settings.block_tokens
        shared = shared // unit * unit
        outputs = np.append(0, plan.output_tokens[:-1])
        # A prompt with all full blocks of the previous one may repeat its output too; another stops within a block.
        most = np.where(shared == before // unit * unit, before + outputs, shared + unit - 1)
        lower = alone = int(shared.sum())
        stable, upper = None, int(np.minimum(prompt, most)[~shape.first].sum())
    total = int(prompt.sum())
    return WorkloadSummary(
        tasks=len(shape.counts),
        calls=len(shape),
        prompt_tokens=total,
        output_tokens=int(plan.output_tokens.sum()),
        mean_prompt_tokens=round(total / len(shape), 1),
        max_prompt_tokens=int(prompt.max()),
        stable_tokens=stable,
        stable_share=None if stable is None else round(stable / total, 6),
        stable_tokens_lower=lower,
        stable_tokens_upper=upper,
        previous_prompt_shared_tokens=alone,
    )


def duration_s(plan: Plan) -> float:
    """Seconds from the first call to the last response."""
    issued = list(schedule(plan))
    first = issued[0].arrival_s
    return round(
        max(call.arrival_s + (call.service_s if plan.settings.service_times else 0.0) for call in issued) - first, 3
    )
