"""The admission rule (Eq. 6 and 10 of arXiv 2609.33762): may this request write its new KV to the host tier?"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from eactl.policy.tier import TierReport, TierSize
from eactl.policy.windows import RecentIncrease, RecentKeys, RecentMean, SteadyClock


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The parameters of Table 7. ``max_tasks`` bounds memory, far above any real pool."""

    kappa_chunks: int = 8
    theta: float = 0.95
    window_s: float = 60.0
    mean_requests: int = 256
    fresh_s: float = 5.0
    max_tasks: int = 1 << 17

    def __post_init__(self) -> None:
        if self.kappa_chunks < 0 or not 0 < self.theta <= 1 or self.window_s <= 0 or self.fresh_s <= 0:
            raise ValueError("kappa_chunks is at least 0, theta in (0, 1], window_s and fresh_s above 0")
        if self.mean_requests < 1 or self.max_tasks < 1:
            raise ValueError("mean_requests and max_tasks are at least 1")


class Decision(NamedTuple):
    """Whether to store the request's new KV, its new full chunks u, and the pressure p that was seen."""

    save: bool
    new_chunks: int
    pressure: bool


class Pool(NamedTuple):
    """What the rule sees at one moment. ``occupancy`` and ``evicted_window`` are None without a fresh report."""

    agents: int
    mean_prompt_tokens: float
    working_set_bytes: float
    over_capacity: bool
    occupancy: float | None
    evicted_window: int | None
    full_and_evicting: bool | None
    pressure: bool


def _never(over_capacity: bool, full_and_evicting: bool | None) -> bool:
    return False


def _always(over_capacity: bool, full_and_evicting: bool | None) -> bool:
    return True


def _conditioned(over_capacity: bool, full_and_evicting: bool | None) -> bool:
    return over_capacity and full_and_evicting is not False  # without a fresh report the estimate alone decides


# name -> p_t, from the two factors of Eq. 10
POLICIES: dict[str, Callable[[bool, bool | None], bool]] = {
    "none": _never,
    "fixed": _always,
    "conditioned": _conditioned,
}


class Admission:
    """One policy with what it has observed: ``observe_*`` mutate, ``decide`` and ``pool`` answer.

    Times are seconds on one clock of the caller's. Every call takes constant time (expiry is amortised) and
    memory is bounded. Not thread-safe: one owner calls it. Raises ValueError for an unknown policy name.
    """

    def __init__(self, policy: str, tier: TierSize, settings: AdmissionSettings | None = None) -> None:
        if policy not in POLICIES:
            raise ValueError(f"unknown policy {policy!r}, known are {', '.join(POLICIES)}")
        self.policy = policy
        self.tier = tier
        self.settings = settings = settings or AdmissionSettings()
        self.deduplicates = policy != "none"
        self._pressure = POLICIES[policy]
        self._clock = SteadyClock()
        self._tasks = RecentKeys(settings.window_s, settings.max_tasks)
        self._prompts = RecentMean(settings.mean_requests)
        self._evictions = RecentIncrease(settings.window_s)
        self._report: TierReport | None = None
        self._report_at_s = float("-inf")

    def observe_lookup(self, task: Hashable, prompt_tokens: int, now_s: float) -> None:
        """A request's first resolved lookup. Call it before ``decide``: the request counts as part of its pool."""
        self._tasks.add(task, self._clock(now_s))
        self._prompts.add(prompt_tokens)

    def observe_report(self, report: TierReport, now_s: float, *, age_s: float = 0.0) -> None:
        """A reading of the tier, ``age_s`` old when it was received."""
        now_s = self._clock(now_s)
        self._evictions.observe(report.evicted_chunks_total, now_s)
        self._report = report
        self._report_at_s = now_s - max(0.0, age_s)

    def resize(self, tier: TierSize) -> None:
        """The tier turned out to be another size, as after its server was restarted with other options."""
        self.tier = tier

    def decide(self, prompt_tokens: int, hit_tokens: int, now_s: float) -> Decision:
        """save = not (p and u > κ), u = floor(n/b) − floor(h/b); to be kept for the request's whole life."""
        chunk_tokens = self.tier.chunk_tokens
        new_chunks = max(0, prompt_tokens // chunk_tokens - hit_tokens // chunk_tokens)
        now_s = self._clock(now_s)
        pressure = self._pressure(
            self._over_capacity(self._tasks.count(now_s)), self._full_and_evicting(now_s, self._fresh(now_s))
        )
        return Decision(not (pressure and new_chunks > self.settings.kappa_chunks), new_chunks, pressure)

    def pool(self, now_s: float) -> Pool:
        """What the rule sees now, for people to look at."""
        now_s = self._clock(now_s)
        agents = self._tasks.count(now_s)
        report = self._fresh(now_s)
        over_capacity = self._over_capacity(agents)
        full_and_evicting = self._full_and_evicting(now_s, report)
        return Pool(
            agents=agents,
            mean_prompt_tokens=self._prompts.mean,
            working_set_bytes=max(0, agents - 1) * self._prompts.mean * self.tier.bytes_per_token,
            over_capacity=over_capacity,
            occupancy=None if report is None else self.tier.occupancy(report.registered_chunks),
            evicted_window=None if report is None else self._evictions.value(now_s),
            full_and_evicting=full_and_evicting,
            pressure=self._pressure(over_capacity, full_and_evicting),
        )

    def _over_capacity(self, agents: int) -> bool:
        """[(A − 1)·N̄·β > C_H], the first factor of Eq. 10."""
        if agents < 2:
            return False
        prompts = self._prompts
        return not self.tier.holds((agents - 1) * prompts.total * self.tier.bytes_per_token / prompts.count)

    def _fresh(self, now_s: float) -> TierReport | None:
        return self._report if now_s - self._report_at_s <= self.settings.fresh_s else None

    def _full_and_evicting(self, now_s: float, report: TierReport | None) -> bool | None:
        """[o ≥ θ and e > 0], the second factor of Eq. 10; None when nobody can say."""
        if report is None:
            return None
        if self.tier.occupancy(report.registered_chunks) < self.settings.theta:
            return False
        return self._evictions.value(now_s) > 0
