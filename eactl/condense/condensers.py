"""Models of known condensers: what each would send, given the messages of an append-only session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eactl.condense.params import Params
from eactl.condense.turns import Event

PLACEHOLDER_TOKENS = 12
_HEAD_ROLES = ("tools", "system", "developer")


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A request that the condenser itself makes: it shares no prefix with the agent's."""

    prompt_tokens: int
    output_tokens: int


class Condenser(Protocol):
    """One session's condenser. ``view`` is called once per turn with all messages so far."""

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        """What is sent instead of ``history``, and the call that making it took."""
        ...


class Everything:
    """No condenser: the history as it is."""

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        return list(history), None


class RecentEvents:
    """Keeps the first ``keep-first`` and the most recent messages, ``max`` together (OpenHands' recent events)."""

    def __init__(self, params: Params) -> None:
        self._first = params.integer("keep-first", 1)
        self._max = params.integer("max", 100, least=1)

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        head, body = split_head(history)
        if len(body) <= self._max:
            return list(history), None
        first = min(self._first, self._max)
        return [*head, *body[:first], *body[len(body) - (self._max - first) :]], None


class ObservationMasking:
    """Replaces tool results older than the last ``window`` messages by a placeholder, one more at every turn."""

    def __init__(self, params: Params) -> None:
        self._window = params.integer("window", 100, least=0)
        self._tokens = params.integer("placeholder", PLACEHOLDER_TOKENS, least=1)

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        edge = len(history) - self._window
        return [mask(event, self._tokens) if n < edge else event for n, event in enumerate(history)], None


class Summary:
    """Beyond ``max`` messages or ``at`` tokens, folds all but the first and the last into a summary.

    Keeps ``keep-first`` messages and ``keep-last`` (default: half of ``max``) or, by tokens, the head's first
    ``keep-first-tokens`` and the last ``keep-last-tokens``. The summary has ``tokens`` tokens, or those of ``text``.
    """

    def __init__(self, params: Params) -> None:
        self._at = params.optional("at")
        self._max = params.integer("max", 100, least=2) if self._at is None else params.optional("max")
        self._first = params.integer("keep-first", 1)
        half = 10 if self._max is None else max(1, self._max // 2 - self._first - 1)
        self._last = params.integer("keep-last", half)
        self._last_tokens = params.optional("keep-last-tokens")
        text = params.text("text")
        self._tokens = params.integer("tokens", 500 if text is None else params.count(text), least=1)
        self._instruction = params.integer("instruction", 200)
        self._folded = 0  # messages of the body, after the first, that the summary stands for
        self._made = 0

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        head, body = split_head(history)
        view = self._apply(head, body)
        events = len(view) - len(head)
        full = self._max is not None and events > self._max
        if not full and not (self._at is not None and sum(event.tokens for event in view) > self._at):
            return view, None
        end = len(body) - self._kept(body)
        if end <= self._first + self._folded:
            return view, None
        read = sum(event.tokens for event in body[self._first + self._folded : end])
        read += self._instruction + (self._tokens if self._made else 0)
        self._folded = end - self._first
        self._made += 1
        return self._apply(head, body), OwnCall(read, self._tokens)

    def _kept(self, body: Sequence[Event]) -> int:
        if self._last_tokens is None:
            return min(self._last, len(body) - self._first)
        count = kept = 0
        for event in reversed(body[self._first :]):
            if kept + event.tokens > self._last_tokens:
                break
            kept += event.tokens
            count += 1
        return count

    def _apply(self, head: Sequence[Event], body: Sequence[Event]) -> list[Event]:
        if not self._made:
            return [*head, *body]
        stands_for = Event("user", self._tokens, hash(("summary", self._made)))
        return [*head, *body[: self._first], stands_for, *body[self._first + self._folded :]]


class StepwiseCut:
    """Grows to ``high`` times the ``budget`` in tokens, then drops the oldest messages down to ``low`` times it."""

    def __init__(self, params: Params) -> None:
        self._budget = params.integer("budget", None, least=1)
        self._high = params.number("high", 1.2)
        self._low = params.number("low", 0.7)
        params.check(0 < self._low < self._high, f"low {self._low:g} is not below high {self._high:g}")
        self._first = params.integer("keep-first", 0)
        self._dropped = 0

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        head, body = split_head(history)
        first, rest = body[: self._first], body[self._first :]
        fixed = sum(event.tokens for event in [*head, *first])
        size = fixed + sum(event.tokens for event in rest[self._dropped :])
        if size > self._high * self._budget:
            while self._dropped < len(rest) - 1 and size > self._low * self._budget:
                size -= rest[self._dropped].tokens
                self._dropped += 1
        return [*head, *first, *rest[self._dropped :]], None


class SlidingWindow(StepwiseCut):
    """Drops the oldest messages at every turn so that the prompt stays within ``budget`` tokens."""

    def __init__(self, params: Params) -> None:
        self._budget = params.integer("budget", None, least=1)
        self._first = params.integer("keep-first", 0)
        self._high = self._low = 1.0
        self._dropped = 0


class Microcompact:
    """When the prompt exceeds ``at`` tokens, clears all tool results but the last ``keep`` at once, where they stand.

    Only if at least ``min-saved`` tokens are gained (Claude Code's clearing of old tool results).
    """

    def __init__(self, params: Params) -> None:
        self._at = params.integer("at", 100_000, least=1)
        self._keep = params.integer("keep", 3)
        self._least = params.integer("min-saved", 20_000)
        self._tokens = params.integer("placeholder", PLACEHOLDER_TOKENS, least=1)
        self._cleared = 0  # messages before this one have their results cleared

    def view(self, history: Sequence[Event]) -> tuple[list[Event], OwnCall | None]:
        size = sum(
            (mask(event, self._tokens) if n < self._cleared else event).tokens for n, event in enumerate(history)
        )
        if size > self._at:
            results = [n for n, event in enumerate(history) if event.role == "tool"]
            edge = results[-self._keep] if 0 < self._keep <= len(results) else len(history) if not self._keep else 0
            gain = sum(event.tokens - mask(event, self._tokens).tokens for event in history[self._cleared : edge])
            if edge > self._cleared and gain >= self._least:
                self._cleared = edge
        return [mask(event, self._tokens) if n < self._cleared else event for n, event in enumerate(history)], None


# name -> what makes one session's condenser. The order is that of the messages about unknown names.
CONDENSERS: Mapping[str, Callable[[Params], Condenser]] = {
    "recent-events": RecentEvents,
    "observation-masking": ObservationMasking,
    "summary": Summary,
    "stepwise-cut": StepwiseCut,
    "sliding-window": SlidingWindow,
    "microcompact": Microcompact,
}


def split_head(history: Sequence[Event]) -> tuple[list[Event], list[Event]]:
    """Tools and system text, which condensers leave alone, and the conversation behind them."""
    end = next((n for n, event in enumerate(history) if event.role not in _HEAD_ROLES), len(history))
    return list(history[:end]), list(history[end:])


def mask(event: Event, tokens: int) -> Event:
    """A tool result as a placeholder; other messages, and results that are shorter already, as they are."""
    if event.role != "tool" or event.tokens <= tokens:
        return event
    return Event(event.role, tokens, hash(("masked", event.key)))
