"""From two prompts to one Turn: how much stayed, how much is fresh, how much of that an edit made necessary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eactl.condense.causes import classify, switched
from eactl.condense.diff import Change, find_change
from eactl.condense.finding import Finding
from eactl.condense.pieces import ATTACHMENT_TOKENS, Piece
from eactl.condense.prompt import Prompt, Rendered, Segment
from eactl.condense.quotes import quote
from eactl.condense.raw import by_lines, generation_prompt
from eactl.condense.rendered import Renderer, message_at, shared_tokens, template_finding
from eactl.condense.result import Turn, Where
from eactl.condense.shared import Shared
from eactl.condense.values import common_prefix
from eactl.trace.tokens import Tokenizer

_ISOLATED_FROM = 16  # tokens: a smaller shared head is not worth a word


@dataclass(frozen=True, slots=True)
class Event:
    """A message without its text."""

    role: str
    tokens: int
    key: int


@dataclass(frozen=True, slots=True)
class Draft:
    """A turn before its session is over, and what only later turns can make use of.

    ``dropped_tokens`` were cut from the history, ``added_tokens`` came in at its end since the last turn; ``added``
    are those messages, for models of condensers.
    """

    turn: Turn
    line: int
    dropped_tokens: int = 0
    added: tuple[Event, ...] = ()
    from_the_front: bool = False  # what was dropped were the oldest messages

    @property
    def added_tokens(self) -> int:
        return sum(event.tokens for event in self.added)


@dataclass(frozen=True)
class TurnMaker:
    """Makes turns; ``quotes`` says whether text may be shown."""

    tokenizer: Tokenizer
    chunk_tokens: int = 256
    quotes: bool = True
    renderer: Renderer | None = None

    def first(self, prompt: Prompt, own: Shared, others: Shared, *, named: bool) -> Turn:
        """A first call. What it shares with earlier requests (``own``: those whose KV it may use) counts as stable
        only where no sessions are named, since then every request is compared with all before it."""
        stable = 0 if named else own.tokens
        switch = None
        if others.group is not None and others.tokens > own.tokens + _ISOLATED_FROM:
            switch = switched(others.group, prompt.group)
        if switch is not None and switch.cause in ("salt", "adapter-switch"):
            where = Where(None, None, None, None, None, token=own.tokens)
            kind = f"{switch.kind}: the head that others share cannot be used"
            return self._turn(prompt, stable, stable, Finding(switch.cause, kind), where=where,
                              lost=others.tokens - own.tokens, processed=others.tokens, shared=own.tokens)  # fmt: skip
        return self._turn(prompt, stable, stable, Finding("first-call"), shared=own.tokens)

    def next(self, before: Prompt, after: Prompt, same_group: Prompt | None, line: int) -> Draft:
        """``after`` against ``before``; ``same_group`` is the line's last prompt with the same model, adapter and
        salt (None: none yet), which is what the cache can hold for this request."""
        switch = switched(before.group, after.group)
        if switch is not None:
            turn = self._switched(switch, before, after, same_group)
            return Draft(turn, line, added=events(after, after.segments[len(before.segments) :]))
        if before.request.prompt_token_ids is not None and after.request.prompt_token_ids is not None:
            return Draft(self._by_ids(before.request.prompt_token_ids, after, before), line)
        if before.is_raw and after.is_raw:
            old, new = before.segments[0].text, after.segments[0].text
            if new.startswith(old):
                lower = min(before.prompt_tokens, after.prompt_tokens)
                return Draft(self._turn(after, lower, lower, Finding("append")), line)
            finding = generation_prompt(old, new)
            known: dict[str, Segment] = {}
            before, after = by_lines(before, self.tokenizer, known), by_lines(after, self.tokenizer, known)
            change = find_change(before, after)
            if change is None:
                return self._grown(before, after, line)
            return self._broken(change, finding or classify(change), line)
        change = find_change(before, after)
        if before.rendered is not None and after.rendered is not None:
            return self._as_rendered(before, after, before.rendered, after.rendered, change, line)
        if change is None:
            return self._grown(before, after, line)
        return self._broken(change, classify(change), line)

    def _as_rendered(
        self, before: Prompt, after: Prompt, old: Rendered, new: Rendered, change: Change | None, line: int
    ) -> Draft:
        """The texts decide whether the prefix held; the messages say why, unless they did not change."""
        if new.text.startswith(old.text):
            return self._grown(before, after, line)
        stable = shared_tokens(old, new, self.tokenizer)
        if change is not None and not change.in_output:
            return self._broken(change, classify(change), line, stable)
        if change is None and len(after.segments) < len(before.segments):
            return self._grown(before, after, line)
        cut = common_prefix(old.text, new.text)
        history = self.renderer.history(before.request) if self.renderer is not None else None
        finding = template_finding(old, new, before.request, after.request, cut, history)
        message = message_at(before.request.messages, old.text, cut)
        role = None if message is None else str(before.request.messages[message].get("role"))
        quotes = (finding.old_text or old.text[cut:], finding.new_text or new.text[cut:]) if self.quotes else None
        where = Where(
            message, role, cut, None if quotes is None else quote(quotes[0], 0),
            None if quotes is None else quote(quotes[1], 0), path="rendered prompt", token=stable,
        )  # fmt: skip
        at = len(before.segments)
        added = after.segments[at:]
        if added and added[0].role == "assistant":
            added = added[1:]
        lost = max(0, after.prompt_tokens - stable - _scaled(after, sum(segment.tokens for segment in added)))
        turn = self._turn(after, stable, stable, finding, where=where, lost=lost, processed=before.prompt_tokens,
                          removed=0)  # fmt: skip
        return Draft(turn, line, added=events(after, after.segments[at:]))

    def _by_ids(self, old: list[int], after: Prompt, before: Prompt) -> Turn:
        new = after.request.prompt_token_ids or []
        stable, lower = stable_tokens(before, after, None, self.tokenizer)
        if lower >= min(len(old), len(new)):
            return self._turn(after, stable, lower, Finding("append"))
        finding = ids_finding(old, new, lower)
        where = Where(None, "prompt", None, None, None, path="prompt_token_ids", token=lower)
        added = max(0, len(new) - len(old))
        return self._turn(after, stable, lower, finding, where=where, lost=max(0, len(new) - lower - added),
                          removed=max(0, len(old) - len(new)), processed=len(old))  # fmt: skip

    def _grown(self, before: Prompt, after: Prompt, line: int) -> Draft:
        stable, lower = stable_tokens(before, after, None, self.tokenizer)
        kept = len(after.segments) >= len(before.segments)
        turn = self._turn(after, stable, lower, Finding("append", "" if kept else "a repeat or a step back"))
        return Draft(turn, line, added=events(after, after.segments[len(before.segments) :]))

    def _broken(self, change: Change, finding: Finding, line: int, exact: int | None = None) -> Draft:
        before, after = change.before, change.after
        stable, lower = (exact, exact) if exact is not None else stable_tokens(before, after, change, self.tokenizer)
        appended = list(change.appended)
        if appended and before.response is None and after.segments[appended[0]].role == "assistant":
            appended = appended[1:]  # the previous output: generated, so it was resident
        added = _scaled(after, sum(after.segments[i].tokens for i in appended))
        lost = max(0, after.prompt_tokens - stable - added)
        processed = before.prompt_tokens + _scaled(before, _output_tokens(before, after))
        removed = max(0, processed + added - after.prompt_tokens)
        where = self._where(change, finding, stable)
        turn = self._turn(after, stable, lower, finding, where=where, lost=lost, removed=removed, processed=processed)
        dropped = sum(change.old[i].tokens for i in change.removed)
        head = next((i for i, segment in enumerate(change.old) if not segment.is_head), 0)
        came_in = events(after, (after.segments[i] for i in change.appended))
        return Draft(turn, line, dropped, came_in, from_the_front=change.index <= head + 1)

    def _switched(self, finding: Finding, before: Prompt, after: Prompt, same_group: Prompt | None) -> Turn:
        stable = lower = 0
        if same_group is not None:
            stable, lower = stable_tokens(same_group, after, find_change(same_group, after), self.tokenizer)
        could, _ = stable_tokens(before, after, find_change(before, after), self.tokenizer)
        where = Where(None, None, None, None, None, token=stable)
        lost = max(0, could - stable)
        return self._turn(after, stable, lower, finding, where=where, lost=lost, processed=could)

    def _turn(
        self, after: Prompt, stable: int, lower: int, finding: Finding, *, where: Where | None = None,
        lost: int = 0, removed: int = 0, processed: int | None = None, shared: int | None = None,
    ) -> Turn:  # fmt: skip
        b = self.chunk_tokens
        chunks = 0 if processed is None else max(0, processed // b - stable // b)
        return Turn(
            session=after.request.session or "",
            turn=after.request.turn,
            prompt_tokens=after.prompt_tokens,
            stable_tokens=stable,
            stable_tokens_lower=lower,
            cause=finding.cause,
            kind=finding.kind,
            where=where,
            line=after.request.where,
            lost_tokens=lost,
            removed_tokens=removed,
            chunks_lost=chunks,
            shared_tokens=shared,
            cached_tokens=_cached(after),
        )

    def _where(self, change: Change, finding: Finding, stable: int) -> Where:
        segment = change.new_segment or change.old_segment
        piece = change.new_piece or change.old_piece
        message, offset = change.after.message_index(change.index), change.offset
        if segment is not None and segment.is_raw:
            message, offset = 0, offset + sum(len(s.text) for s in change.new[: change.index])
        old_text, new_text = _text(change.old_piece), _text(change.new_piece)
        before = after = None
        if self.quotes:
            before = finding.old_text if finding.old_text is not None else old_text
            after = finding.new_text if finding.new_text is not None else new_text
            before = quote(before, 0 if finding.old_text is not None else change.offset)
            after = quote(after, 0 if finding.new_text is not None else change.offset)
        return Where(
            message=message,
            role=None if segment is None else segment.role,
            offset=offset,
            before=before,
            after=after,
            path=None if piece is None else piece.path,
            token=stable,
        )


def events(prompt: Prompt, segments: Iterable[Segment]) -> tuple[Event, ...]:
    """Segments of ``prompt`` without their text, in the provider's measure."""
    return tuple(Event(segment.role, _scaled(prompt, segment.tokens), segment.key) for segment in segments)


def first_events(prompt: Prompt) -> tuple[Event, ...]:
    """All of a first prompt, what is not in the log at its head."""
    hidden = (Event("system", prompt.hidden_tokens, 0),) if prompt.hidden_tokens else ()
    return (*hidden, *events(prompt, prompt.segments))


def ids_finding(old: list[int], new: list[int], cut: int) -> Finding:
    """What token ids alone show: a piece taken out, a piece put in, or another change."""
    run = 32
    text, other = "".join(map(chr, old)), "".join(map(chr, new))
    moved_up = text.find(other[cut : cut + run], cut + 1) if len(other) >= cut + run else -1
    if moved_up > 0:
        return Finding("truncated", f"{moved_up - cut:,} tokens dropped")
    if len(text) >= cut + run and other.find(text[cut : cut + run], cut + 1) > 0:
        return Finding("edited", "tokens were put in")
    return Finding("unknown", "the token ids differ and no text is in the log")


def stable_tokens(before: Prompt, after: Prompt, change: Change | None, tokenizer: Tokenizer) -> tuple[int, int]:
    """Prompt tokens unchanged since ``before`` and its output, and the same without its output.

    The first takes generated text that came back unchanged as reusable; the second does not, since text need not
    become the generated ids again.
    """
    before_ids, after_ids = before.request.prompt_token_ids, after.request.prompt_token_ids
    if before_ids is not None and after_ids is not None:
        lower = common_ids(before_ids, after_ids)
        if lower < len(before_ids):
            return lower, lower
        generated = before.request.response_token_ids
        if generated is not None:  # the ids are known: nothing is left to doubt
            stable = lower + common_ids(generated, after_ids[lower:])
            return stable, stable
        usage = before.request.usage
        output = usage.output_tokens if usage is not None and usage.output_tokens is not None else 0
        return min(lower + output, len(after_ids)), lower
    if change is not None and not change.in_output:
        stable = min(after.position(change.index, _inside(change, tokenizer)), before.prompt_tokens)
        return stable, stable
    if len(after.segments) < len(before.segments):
        return after.prompt_tokens, after.prompt_tokens
    own = before.measured or before.rendered is not None
    lower = min(before.prompt_tokens if own else after.position(len(before.segments)), after.prompt_tokens)
    if change is not None:
        return min(lower + _scaled(after, _inside(change, tokenizer)), after.prompt_tokens), lower
    new = after.starts[-1] - after.starts[len(before.segments)]
    output = min(_output_tokens(before, after, behind=len(before.segments)), new)
    if not output:
        return lower, lower
    # What a request added is stretched to its measured length: the output has its share of that.
    return lower + (after.prompt_tokens - lower) * output // new, lower


def common_ids(old: list[int], new: list[int]) -> int:
    """Length of the common prefix of two lists of token ids."""
    limit = min(len(old), len(new))
    if old[:limit] == new[:limit]:
        return limit
    return int(np.argmax(np.asarray(old[:limit]) != np.asarray(new[:limit])))


def _output_tokens(before: Prompt, after: Prompt, behind: int = 0) -> int:
    """Counted tokens of the previous output as it stands in the new prompt, from segment ``behind`` on; 0 if it was
    not sent back."""
    at = len(before.segments)
    if at < len(after.segments) and after.segments[at].role == "assistant":
        return after.segments[at].tokens
    if before.response is not None and any(s is before.response for s in after.segments[behind:]):
        return before.response.tokens
    return 0


def _scaled(prompt: Prompt, counted: int) -> int:
    """Counted tokens in the provider's measure."""
    visible = prompt.starts[-1]
    return round(counted * (prompt.prompt_tokens - prompt.hidden_tokens) / visible) if visible else 0


def _inside(change: Change, tokenizer: Tokenizer) -> int:
    """Counted tokens of the differing segment that are still the same."""
    old, new = change.old_segment, change.new_segment
    if old is None or new is None or old.role != new.role:
        return 0
    tokens = sum(_piece_tokens(piece, tokenizer) for piece in new.pieces[: change.piece])
    left, right = change.old_piece, change.new_piece
    if left is not None and right is not None and change.offset and left.kind == right.kind != "attachment":
        # Only the text up to a little behind the difference can have equal leading ids.
        cut = change.offset + 16
        a, b = tokenizer.encode(left.text[:cut]), tokenizer.encode(right.text[:cut])
        n = min(len(a), len(b))
        unequal = np.flatnonzero(a[:n] != b[:n])
        tokens += int(unequal[0]) if len(unequal) else n
    return tokens


def _piece_tokens(piece: Piece, tokenizer: Tokenizer) -> int:
    return ATTACHMENT_TOKENS if piece.kind == "attachment" else len(tokenizer.encode(piece.text))


def _text(piece: Piece | None) -> str:
    return piece.text if piece is not None else ""


def _cached(prompt: Prompt) -> int | None:
    return prompt.request.usage.cached_tokens if prompt.request.usage is not None else None
