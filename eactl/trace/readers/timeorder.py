"""Requests of a log in the order of their times, though its lines are not: within a window of the file.

Logs are written when a request ends, by several writers, or exported newest first. A log that fits the window is
sorted as a whole; in a longer one a line may be about a window late and still comes in its place.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from eactl.trace.chat import ChatRequest

WINDOW_BYTES = 16 << 20


@dataclass(order=True, slots=True)
class _Held:
    at_s: float
    number: int
    request: ChatRequest = field(compare=False)
    turn: int | None = field(compare=False)  # the turn that the line itself names
    size: int = field(compare=False)


class TimeOrder:
    """Takes requests in file order and gives them in the order of ``arrival_s``; equal times keep the file's order.

    A request without a time stays behind the one before it. Where the turns that a session's lines name contradict
    the times, the turns decide. ``moved`` counts the lines earlier than the one before, ``late`` those that came too
    late for their place, ``turned`` the sessions whose turns were put in order.
    """

    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        self.moved = self.late = self.turned = 0
        self._window_bytes = window_bytes
        self._held: list[_Held] = []
        self._held_bytes = 0
        self._count = self._forward = 0
        self._latest_s = float("-inf")
        self._given_s = float("-inf")  # time of the last one given
        self._turns: dict[str, int] = {}

    def take(self, request: ChatRequest, turn: int | None, size_bytes: int) -> Iterator[ChatRequest]:
        """Hold ``request``; gives those that had to make room."""
        at_s = self._latest_s if request.arrival_s is None else request.arrival_s
        if self._count and at_s != self._latest_s:
            self._forward += at_s > self._latest_s
            self.moved += at_s < self._latest_s
        self._latest_s = at_s
        heapq.heappush(self._held, _Held(at_s, self._count, request, turn, size_bytes))
        self._count += 1
        self._held_bytes += size_bytes
        while self._held_bytes > self._window_bytes and len(self._held) > 1:
            yield self._next()

    def rest(self) -> Iterator[ChatRequest]:
        """All that are still held."""
        if len(self._held) == self._count:  # the whole log
            held = sorted(self._held)
            if self.moved > self._forward:  # newest first: so are those of the same second
                held.sort(key=lambda each: (each.at_s, -each.number))
            self._held.clear()
            yield from map(self._numbered, self._by_turns(held))
        while self._held:
            yield self._next()

    def _next(self) -> ChatRequest:
        first = heapq.heappop(self._held)
        self._held_bytes -= first.size
        self.late += first.at_s < self._given_s
        self._given_s = max(self._given_s, first.at_s)
        return self._numbered(first)

    def _numbered(self, held: _Held) -> ChatRequest:
        """The request with its turn: its line's own, else one more than the session's last."""
        request = held.request
        session = request.session
        request.turn = held.turn if held.turn is not None else self._turns.get(session, 0) if session is not None else 0
        if session is not None:
            self._turns[session] = request.turn + 1
        return request

    def _by_turns(self, held: list[_Held]) -> list[_Held]:
        """The same with every session's requests in the order of their turns, where all name one and none twice."""
        places: dict[str, list[int]] = defaultdict(list)
        for place, each in enumerate(held):
            if each.request.session is not None:
                places[each.request.session].append(place)
        found = list(held)
        for own in places.values():
            turns = [turn for place in own if (turn := held[place].turn) is not None]
            if len(set(turns)) == len(own) and turns != sorted(turns):
                self.turned += 1
                for place, each in zip(own, sorted((held[p] for p in own), key=lambda h: h.turn or 0), strict=True):
                    found[place] = each
        return found
