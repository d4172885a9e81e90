"""Named workloads: what each is for, and the settings that make it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from eactl.errors import UsageError
from eactl.trace.call import Notice
from eactl.trace.synth.settings import Published, SynthSettings


@dataclass(frozen=True)
class Profile:
    """A named workload and one line on what it is for."""

    about: str
    settings: SynthSettings


# The SWE-bench Verified trajectories of EfficientAgent, arXiv 2609.33762, App. B ("Workload construction" and
# "Repeated-prefix profile"). Agents take 0.64 s between calls at the median (Sec. 1: 9.0 s is 14 times that), and
# the run without a host tier took 212 minutes for its 4,427 calls (Table 3): 2.8 s of the server each.
_SWEBENCH_CALLS = 4_427
_SWEBENCH_PROMPT_TOKENS = 147_124_984
_SWEBENCH = SynthSettings(
    tasks=79,
    calls_per_task=_SWEBENCH_CALLS / 79,
    system_tokens=5_800,
    task_tokens=1_400,
    output_tokens=1_835_698 / _SWEBENCH_CALLS,
    mean_prompt_tokens=_SWEBENCH_PROMPT_TOKENS / _SWEBENCH_CALLS,
    gap_s=3.2,
    server_s=2.8,
    agents=16,
    published=Published(
        median_calls=51,
        min_calls=32,
        max_calls=100,
        max_prompt_tokens=238_105,
        stable_share=144_289_835 / _SWEBENCH_PROMPT_TOKENS,
        previous_prompt_share=142_541_707 / _SWEBENCH_PROMPT_TOKENS,
    ),
)

PROFILES = {
    "swebench-openhands": Profile(
        "79 SWE-bench tasks, 4,427 calls, 147.1M prompt tokens, 16 at a time: the workload of the EfficientAgent paper",
        _SWEBENCH,
    ),
    "demo": Profile(
        "20 coding agents, 10 at a time, 400 calls, block ids: a small file with a clear knee",
        SynthSettings(
            tasks=20, calls_per_task=20, system_tokens=5_600, task_tokens=1_200, output_tokens=350,
            mean_prompt_tokens=26_000, agents=10, server_s=2, block_tokens=16, seed=1,
        ),
    ),
    "chat": Profile(
        "500 people chatting: short turns, long pauses, 300 tokens of shared system prompt",
        SynthSettings(
            tasks=500, calls_per_task=6, system_tokens=300, task_tokens=120, output_tokens=350,
            result_tokens=80, retokenised_share=0.15, gap_s=60, arrival_rate_per_s=0.5,
        ),
    ),
    "delegating": Profile(
        "12 coding agents that call sub-agents and condense their history every 25 calls",
        SynthSettings(tasks=12, calls_per_task=60, subagents=3, condense_every=25, agents=12),
    ),
    "stress": Profile(
        "a million requests of 20,000 tasks with 512-token block ids, to see how tools cope",
        SynthSettings(
            tasks=20_000, calls_per_task=50, system_tokens=4_096, output_tokens=200, result_tokens=300,
            agents=256, block_tokens=512,
        ),
    ),
}  # fmt: skip

# What may be changed without leaving the published statistics behind.
_FREE = {
    "tasks", "gap_s", "server_s", "agents", "arrival_rate_per_s", "service_times", "block_tokens", "vocabulary",
    "seed",
}  # fmt: skip


def profile_named(name: str) -> Profile:
    """The profile called ``name``; raises UsageError, which lists them, for any other name."""
    if name in PROFILES:
        return PROFILES[name]
    near = get_close_matches(name, PROFILES, n=1)
    known = f"the profiles are {', '.join(PROFILES)}"
    raise UsageError(
        f"no profile {name!r}", where="--profile", hint=f"did you mean {near[0]!r}? {known}" if near else known
    )


def customised(settings: SynthSettings, **changes: Any) -> tuple[SynthSettings, list[Notice]]:
    """``settings`` with every change that is not None, and what that costs.

    A change to calls or lengths drops published statistics, ``result_tokens`` drops a mean prompt, and each of
    ``agents`` and ``arrival_rate_per_s`` replaces the other.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if "result_tokens" in given and "mean_prompt_tokens" in given:
        raise UsageError(
            "the mean prompt decides how long results are",
            where="--result-tokens and --mean-prompt-tokens",
            hint="give one of them",
        )
    notices = []
    changed = sorted(set(given) - _FREE)
    base = settings
    if settings.published is not None and changed:
        base = replace(base, published=None)
        options = ", ".join("--" + name.replace("_", "-") for name in changed)
        notices.append(
            Notice(
                "not-the-published-workload",
                f"{options} changed the profile's published statistics",
                "leave them out to match it",
            )
        )
    if "result_tokens" in given:
        base = replace(base, mean_prompt_tokens=None)
    if "arrival_rate_per_s" in given and "agents" not in given:
        base = replace(base, agents=None)
    if "agents" in given and "arrival_rate_per_s" not in given:
        base = replace(base, arrival_rate_per_s=None)
    return replace(base, **given), notices
