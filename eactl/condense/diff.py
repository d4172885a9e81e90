"""Where two consecutive prompts part, and which of the old messages come back later in the new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eactl.condense.pieces import Piece
from eactl.condense.prompt import Prompt, Segment
from eactl.condense.values import alikeness, common_prefix
from eactl.trace.growing import first_difference


@dataclass(frozen=True, slots=True)
class Change:
    """The first difference between what was processed (``old``: a prompt and its output) and the next prompt.

    ``index`` counts segments, ``offset`` characters inside the piece. ``kept`` pairs (old, new) positions of the
    messages after the difference that both hold, in order; ``removed`` and ``inserted`` are what stands before the
    last of them on either side, ``appended`` what the new prompt adds behind.
    """

    before: Prompt
    after: Prompt
    old: Sequence[Segment]
    index: int
    piece: int
    offset: int
    kept: tuple[tuple[int, int], ...]
    removed: tuple[int, ...]
    inserted: tuple[int, ...]
    appended: tuple[int, ...]

    @property
    def new(self) -> Sequence[Segment]:
        return self.after.segments

    @property
    def in_output(self) -> bool:
        """The whole previous prompt was kept: the difference lies in what was generated or behind it."""
        return self.index >= len(self.before.segments)

    @property
    def old_segment(self) -> Segment | None:
        return self.old[self.index] if self.index < len(self.old) else None

    @property
    def new_segment(self) -> Segment | None:
        return self.new[self.index] if self.index < len(self.new) else None

    @property
    def old_piece(self) -> Piece | None:
        return _piece(self.old_segment, self.piece)

    @property
    def new_piece(self) -> Piece | None:
        return _piece(self.new_segment, self.piece)

    @property
    def in_place(self) -> bool:
        """A segment was changed where it stands: the segments behind it are where they were."""
        if self.old_segment is None or self.new_segment is None or self.old_segment.role != self.new_segment.role:
            return False
        return all(old == new for old, new in self.kept)


def find_change(before: Prompt, after: Prompt) -> Change | None:
    """The first difference, or None when ``after`` only adds to what was processed (or repeats a part of it)."""
    index = first_difference(before.segments, after.segments)
    if index == len(before.segments) and (before.response is None or _same_or_dropped(before.response, after, index)):
        return None
    if index == len(after.segments):
        return None  # a repeat, or a step back: nothing has to be computed again
    old = before.segments if before.response is None else [*before.segments, before.response]
    piece, offset = _inside(old[index], after.segments[index])
    kept = _kept(old, after.segments, index)
    last_old, last_new = kept[-1] if kept else (index - 1, index - 1)
    in_old, in_new = {o for o, _ in kept}, {n for _, n in kept}
    if kept:
        removed = tuple(i for i in range(index, last_old) if i not in in_old)
        inserted = tuple(i for i in range(index, last_new) if i not in in_new)
        appended = tuple(range(last_new + 1, len(after.segments)))
    else:
        removed = tuple(range(index, len(old)))
        inserted, appended = _split_new(old, after.segments, index)
    return Change(before, after, old, index, piece, offset, kept, removed, inserted, appended)


def _same_or_dropped(response: Segment, after: Prompt, index: int) -> bool:
    if index >= len(after.segments) or after.segments[index] is response:
        return True
    return after.segments[index].role != "assistant"  # the answer was not sent back: nothing of it is missed


def _inside(old: Segment, new: Segment) -> tuple[int, int]:
    """Which piece differs first, and at which character of it."""
    for number, (left, right) in enumerate(zip(old.pieces, new.pieces, strict=False)):
        if left.kind != right.kind or left.text != right.text:
            return number, common_prefix(left.text, right.text) if left.kind == right.kind else 0
    return min(len(old.pieces), len(new.pieces)), 0


def _kept(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[tuple[int, int], ...]:
    """Segments after the difference that both have, greedily in order; the same object means the same text."""
    places: dict[int, list[int]] = {}
    for position in range(len(old) - 1, index - 1, -1):
        places.setdefault(id(old[position]), []).append(position)
    kept: list[tuple[int, int]] = []
    reached = index - 1
    for position in range(index, len(new)):
        candidates = places.get(id(new[position]))
        while candidates and candidates[-1] <= reached:
            candidates.pop()
        if candidates:
            reached = candidates.pop()
            kept.append((reached, position))
    return tuple(kept)


def _split_new(old: Sequence[Segment], new: Sequence[Segment], index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Nothing after the difference came back: which new segments replace, and which continue the conversation?"""
    fresh = range(index, len(new))
    # Segments that stand where they stood and look alike were changed in place; the rest continues.
    alike = index
    while alike < min(len(old), len(new)) and resembles(old[alike], new[alike]):
        alike += 1
    if alike == index:
        alike = min(index + 1, len(new)) if len(old) - index > 1 or len(new) - index > 1 else len(new)
    return tuple(fresh[: alike - index]), tuple(fresh[alike - index :])


def resembles(old: Segment, new: Segment) -> bool:
    """The same role and mostly the same text."""
    return old.role == new.role and (old.is_tools or alikeness(old.text, new.text) >= 0.5)


def _piece(segment: Segment | None, number: int) -> Piece | None:
    return segment.pieces[number] if segment is not None and number < len(segment.pieces) else None
