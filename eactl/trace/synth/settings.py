"""What a synthetic workload is to look like: one frozen value with every default and cross-check."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eactl.errors import UsageError

_MOST_CALLS, _MOST_TOKENS, _MOST_SECONDS = 20_000_000, 10_000_000, 1e6  # what fits in memory and makes sense
MIN_RESULT_TOKENS = 8  # a tool result or user message never comes without its role markers


@dataclass(frozen=True)
class Published:
    """Statistics that a recorded workload has and that the synthetic one must reproduce to the token.

    Calls per task lie in ``min_calls``..``max_calls`` with the given median. Shares are of all prompt tokens:
    ``stable_share`` with the previous prompt followed by its output, ``previous_prompt_share`` with the
    previous prompt alone.
    """

    median_calls: int
    min_calls: int
    max_calls: int
    max_prompt_tokens: int
    stable_share: float
    previous_prompt_share: float


@dataclass(frozen=True)
class SynthSettings:
    """A synthetic agent workload; see ``eactl trace synth --help`` for the meaning in words.

    ``calls_per_task``, ``task_tokens``, ``output_tokens``, ``result_tokens``, ``gap_s`` and ``subagents`` are
    means. ``mean_prompt_tokens`` replaces ``result_tokens``: tool results are then as long as that mean needs.
    ``agents`` None means that all tasks start at once, or arrive at ``arrival_rate_per_s``. ``server_s`` is how
    long each call has the server for itself, so that calls queue.
    """

    tasks: int = 16
    calls_per_task: float = 40.0
    system_tokens: int = 6_000
    task_tokens: float = 1_000.0
    output_tokens: float = 400.0
    result_tokens: float = 600.0
    mean_prompt_tokens: float | None = None
    retokenised_share: float = 0.05
    condense_every: int = 0
    summary_tokens: int = 1_500
    subagents: float = 0.0
    subagent_calls: float = 10.0
    gap_s: float = 3.2
    server_s: float = 0.0
    agents: int | None = None
    arrival_rate_per_s: float | None = None
    service_times: bool = True
    block_tokens: int | None = None
    vocabulary: int = 32_000
    seed: int = 0
    published: Published | None = None

    def __post_init__(self) -> None:
        _within(1, self.tasks, _MOST_CALLS, "--tasks")
        _within(1, self.calls_per_task, _MOST_CALLS, "--calls-per-task")
        _within(0, self.system_tokens, _MOST_TOKENS, "--system-tokens")
        _within(MIN_RESULT_TOKENS, self.task_tokens, _MOST_TOKENS, "--task-tokens")
        _within(1, self.output_tokens, _MOST_TOKENS, "--output-tokens")
        _within(MIN_RESULT_TOKENS, self.result_tokens, _MOST_TOKENS, "--result-tokens")
        _within(0, self.condense_every, _MOST_CALLS, "--condense-every")
        _within(1, self.summary_tokens, _MOST_TOKENS, "--summary-tokens")
        _within(0, self.subagents, _MOST_CALLS, "--subagents")
        _within(1, self.subagent_calls, _MOST_CALLS, "--subagent-calls")
        _within(0, self.gap_s, _MOST_SECONDS, "--gap-s")
        _within(0, self.server_s, _MOST_SECONDS, "--server-s")
        _within(0, self.seed, 2**32 - 1, "--seed")
        _within(16, self.vocabulary, 2**31, "--vocabulary")
        calls = self.tasks * (self.calls_per_task + self.subagents * self.subagent_calls)
        if calls > _MOST_CALLS:
            raise UsageError(
                f"{calls:,.0f} calls are more than can be planned at once",
                where="--tasks, --calls-per-task and --subagents",
                hint=f"ask for at most {_MOST_CALLS:,}",
            )
        if not 0 <= self.retokenised_share <= 1:
            raise UsageError(
                f"{self.retokenised_share:g} is not a share", where="--retokenised-share", hint="give 0 to 1"
            )
        if self.condense_every == 1:
            raise UsageError(
                "condensing before every call leaves no history",
                where="--condense-every",
                hint="give 2 or more, or 0 for never",
            )
        if self.block_tokens is not None:
            _within(2, self.block_tokens, _MOST_TOKENS, "--block-tokens")
        if self.mean_prompt_tokens is not None:
            _within(1, self.mean_prompt_tokens, _MOST_TOKENS, "--mean-prompt-tokens")
        if self.agents is not None:
            _within(1, self.agents, _MOST_CALLS, "--agents")
        if self.arrival_rate_per_s is not None:
            if not (self.arrival_rate_per_s > 0 and math.isfinite(self.arrival_rate_per_s)):
                raise UsageError(
                    f"{self.arrival_rate_per_s:g} tasks per second",
                    where="--arrival-rate",
                    hint="give a number above 0",
                )
            if self.agents is not None:
                raise UsageError(
                    "tasks either fill a fixed number of slots or arrive at a rate",
                    where="--agents and --arrival-rate",
                    hint="give one of them",
                )


def _within(least: float, value: float, most: float, option: str) -> None:
    if not least <= value <= most:  # NaN is nowhere
        raise UsageError(f"{value:g} is out of range", where=option, hint=f"give {least:g} to {most:g}")
