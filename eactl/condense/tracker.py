"""Following conversations: which earlier request each request continues, and what became of the prefix."""

from __future__ import annotations

from dataclasses import dataclass, field

from eactl.condense.prompt import Group, Prompt
from eactl.condense.result import Turn
from eactl.condense.segments import Segmenter, SegmentPool
from eactl.condense.shared import SharedHeads
from eactl.condense.similarity import Match, match
from eactl.condense.turns import Draft, TurnMaker, first_events
from eactl.condense.usage import counts_of
from eactl.trace.chat import ChatRequest

_MOST_LINES = 8  # conversations that one named session may interleave: sub-agents, a condenser's own calls
_MOST_OPEN = 2048  # conversations followed at once where the log names no sessions
_RECENT = 8  # of those, how many are compared when no message is shared
_POOL_FACTOR = 3
_MOST_POOLED = 200_000


@dataclass(slots=True, eq=False)
class Line:
    """One conversation: requests of which each continues the one before."""

    number: int
    last: Prompt
    by_group: dict[Group, Prompt] = field(default_factory=dict)
    children: list[int] = field(default_factory=list)  # lines that began as a doubtful rewrite of this one

    def advance(self, prompt: Prompt) -> None:
        """``prompt`` is this conversation's latest request."""
        self.last = prompt
        self.by_group[prompt.group] = prompt


class Tracker:
    """The requests of one session, or, with ``named`` False, of all that name none.

    A named session's request that resembles nothing before is taken for a rewrite of the conversation, unless that
    conversation goes on later: then it was a call beside it (a sub-agent, a condenser's own call).
    """

    def __init__(self, maker: TurnMaker, segmenter: Segmenter, heads: SharedHeads, *, named: bool) -> None:
        self.drafts: list[Draft] = []
        self.beside: set[int] = set()  # numbers of lines that turned out to be calls beside the conversation
        self.usage_only: list[ChatRequest] = []
        self.unmeasured = 0
        self._named = named
        self._maker = maker
        self._segmenter = segmenter
        self._heads = heads
        self._pool = SegmentPool()
        self._lines: dict[int, Line] = {}  # oldest use first
        self._holders: dict[int, set[int]] = {}  # segment key -> lines whose last prompt holds it; unnamed only
        self._count = 0

    @property
    def held_tokens(self) -> int:
        """About how much text is kept for comparing, in tokens."""
        return sum(line.last.starts[-1] for line in self._lines.values())

    def forget_text(self) -> None:
        """Drop the text; a later request starts anew."""
        self._lines.clear()
        self._holders.clear()
        self._pool = SegmentPool()

    def add(self, request: ChatRequest) -> None:
        """Take the next request."""
        if not request.messages and request.prompt_token_ids is None:
            if counts_of(request) is None:
                self.unmeasured += 1
            else:
                self.usage_only.append(request)
            return
        latest = next(reversed(self._lines.values())).last if self._lines and self._named else None
        prompt = self._segmenter.prompt(request, self._pool, latest)
        line, found = self._best(prompt)
        if line is None or (not found.sure and not self._named):
            turn = self._first(prompt)
            self._start(prompt, Draft(turn, self._count, added=first_events(prompt)))
        elif not found.sure:
            draft = self._maker.next(line.last, prompt, line.by_group.get(prompt.group), self._count)
            line.children.append(self._count)
            self._start(prompt, draft)
        else:
            self.beside.update(line.children)
            line.children.clear()
            draft = self._maker.next(line.last, prompt, line.by_group.get(prompt.group), line.number)
            self.drafts.append(draft)
            self._unhold(line)
            line.advance(prompt)
            self._lines[line.number] = self._lines.pop(line.number)
            self._hold(line)
        self._trim()

    def _first(self, prompt: Prompt) -> Turn:
        own, others = self._heads.look_up(prompt)
        self._heads.add(prompt)
        return self._maker.first(prompt, own, others, named=self._named)

    def _start(self, prompt: Prompt, draft: Draft) -> None:
        line = self._lines[self._count] = Line(self._count, prompt, {prompt.group: prompt})
        self._count += 1
        self.drafts.append(draft)
        self._hold(line)

    def _best(self, prompt: Prompt) -> tuple[Line | None, Match]:
        """The conversation that ``prompt`` continues best; one that it simply extends wins at once."""
        best: Line | None = None
        best_match = Match(0, sure=False)
        for line in self._candidates(prompt):
            found = match(line.last, prompt, named=self._named)
            if found.extends:
                return line, found
            if best is None or (found.sure, found.shared_tokens) > (best_match.sure, best_match.shared_tokens):
                best, best_match = line, found
        return best, best_match

    def _candidates(self, prompt: Prompt) -> list[Line]:
        recent = list(reversed(self._lines.values())) if self._named else _last(self._lines, _RECENT)
        if self._named:
            return recent
        numbers: dict[int, None] = {}
        for segment in reversed(prompt.segments):
            for number in self._holders.get(segment.key, ()):
                numbers[number] = None
            if len(numbers) > _RECENT:
                break
        return [self._lines[number] for number in numbers] + [line for line in recent if line.number not in numbers]

    def _hold(self, line: Line) -> None:
        if not self._named:
            for segment in line.last.segments:
                if not segment.is_head:
                    self._holders.setdefault(segment.key, set()).add(line.number)

    def _unhold(self, line: Line) -> None:
        if not self._named:
            for segment in line.last.segments:
                holders = self._holders.get(segment.key)
                if holders is not None:
                    holders.discard(line.number)
                    if not holders:
                        del self._holders[segment.key]

    def _trim(self) -> None:
        limit = _MOST_LINES if self._named else _MOST_OPEN
        while len(self._lines) > limit:
            oldest = next(iter(self._lines.values()))
            self._unhold(oldest)
            del self._lines[oldest.number]
        size = sum(len(line.last.segments) for line in self._lines.values()) if self._named else 0
        allowed = max(64, _POOL_FACTOR * size) if self._named else _MOST_POOLED
        if len(self._pool.known) > allowed:
            self._pool.keep(prompt for line in self._lines.values() for prompt in line.by_group.values())


def _last(lines: dict[int, Line], count: int) -> list[Line]:
    found = []
    for line in reversed(lines.values()):
        found.append(line)
        if len(found) == count:
            break
    return found
