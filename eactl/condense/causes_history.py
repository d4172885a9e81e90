"""Messages that were removed, masked, merged, moved or replaced by a summary."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eactl.condense.diff import Change
from eactl.condense.finding import Finding
from eactl.condense.prompt import Segment
from eactl.condense.values import alikeness

_PLACEHOLDER = re.compile(
    r"clear|mask|omit|elid|redact|remov|prun|hidden|truncat|trim|collaps|compact|snip|shorten|stale|old tool|no longer",
    re.IGNORECASE,
)
_NOTICE = re.compile(r"omitt|remov|truncat|dropp|trimm|elid|hidden|earlier (?:messages|history|conversation)", re.I)
_SUMMARY = re.compile(
    r"summar|condens|compact|recap|so far|previous conversation|conversation history|continued from|distill|digest",
    re.IGNORECASE,
)
_NOTICE_TOKENS = 96


def reordered(change: Change) -> Finding | None:
    """The same messages in another order: both that stood here and that stands here now are on either side."""
    old, new = change.old_segment, change.new_segment
    if old is None or new is None:
        return None
    if _later(change.old, new, change.index) and _later(change.new, old, change.index):
        name = "lines" if old.is_raw else f"{old.role} message {change.before.message_index(change.index)}"
        behind = "others" if new.is_raw else f"the {new.role} message that stands here now"
        return Finding("render-order", f"{name} moved behind {behind}")
    return None


def merged(change: Change) -> Finding | None:
    """Two messages became one, one became two, or the next message was written into the last one."""
    old, new, at = change.old_segment, change.new_segment, change.index
    if old is None or new is None or old.role != new.role or old.is_tools:
        return None
    if len(new.text) > len(old.text) and new.text.startswith(old.text):
        rest = new.text[len(old.text) :].strip()
        following = change.old[at + 1] if at + 1 < len(change.old) else None
        if following is not None and following.text.strip() and rest.startswith(following.text.strip()):
            return Finding("boundary-merge", f"two {old.role} messages merged into one")
        if at == len(change.before.segments) - 1 and not new.is_head:
            return Finding("boundary-merge", f"new text was written into the last {old.role} message")
    if len(old.text) > len(new.text) and old.text.startswith(new.text) and at + 1 < len(change.new):
        rest = old.text[len(new.text) :].strip()
        if rest and rest == change.new[at + 1].text.strip():
            return Finding("boundary-merge", f"one {old.role} message split in two")
    return None


def trimmed(change: Change) -> Finding | None:
    """Messages are missing and those behind them moved up: a sliding window or a cut in steps.

    Which of the two shows only over several turns (see eactl.condense.sessions); one alone is called truncated.
    """
    if not change.removed or not change.kept:
        return None
    inserted = [change.new[i] for i in change.inserted]
    first_old, first_new = change.kept[0]
    if first_old - change.index <= first_new - change.index:
        return None  # nothing moved up
    count = len([i for i in change.removed if not change.old[i].is_head])
    if not inserted:
        return Finding("truncated", f"{_parts(count, change)} dropped")
    notice = inserted[0]
    is_notice = len(inserted) == 1 and notice.tokens <= _NOTICE_TOKENS and _NOTICE.search(notice.text) is not None
    if is_notice and (count == 1 or not _SUMMARY.search(notice.text)):
        return Finding("truncated", f"{_parts(count, change)} replaced by a notice")
    return None


def masked(change: Change) -> Finding | None:
    """Content was replaced or cut where it stands; the messages around it stay."""
    old, new = change.old_segment, change.new_segment
    if old is None or new is None or old.role != new.role or old.is_head:
        return None
    attached = change.old_piece is not None and change.old_piece.kind == "attachment"
    if attached and (change.new_piece is None or change.new_piece.kind != "attachment"):
        return Finding("masked", f"an attachment was taken out of the {old.role} message")
    if not change.in_place or len(change.new) < len(change.before.segments):
        return None
    how = _masking(old, new)
    if how is None:
        return None
    others = sum(
        1
        for i in range(change.index + 1, min(len(change.before.segments), len(change.new)))
        if change.old[i] is not change.new[i] and _masking(change.old[i], change.new[i]) is not None
    )
    many = f", with {others} more" if others else ""
    return Finding("masked", f"the {old.role} message {how}{many}")


def summary(change: Change) -> Finding | None:
    """Messages gave way to a text that stands for them."""
    gone = [change.old[i] for i in change.removed if not change.old[i].is_head]
    put_in = [change.new[i] for i in change.inserted]
    if not gone or not put_in or change.in_output:
        return None
    told = bool({"compaction", "condensation", "compact"} & set(change.after.request.events))
    named = any(_SUMMARY.search(segment.text[:2000]) for segment in put_in)
    before, after = sum(s.tokens for s in gone), sum(s.tokens for s in put_in)
    goes_on = bool(change.kept or change.appended)  # a last message is a question, not a summary
    by_length = goes_on and len(gone) > len(put_in) and 2 * after < before and (change.index > 0 or bool(change.kept))
    if told or (named and (after < before or len(gone) > 1)) or by_length:
        hint = "" if told or named else ", by its length"
        return Finding("summary", f"{_parts(len(gone), change)} replaced by {len(put_in)}{hint}")
    return None


def reset(change: Change) -> Finding | None:
    """The whole conversation is gone and a new one begins behind the same head."""
    if change.kept or change.in_output or len(change.new) >= len(change.before.segments):
        return None
    gone = sum(not change.old[i].is_head for i in change.removed)
    kind = f"all {_parts(gone, change)} dropped, a new conversation begins"
    return Finding("truncated", kind) if gone else None


def _masking(old: Segment, new: Segment) -> str | None:
    if old.role != new.role:
        return None
    before, after = old.text, new.text
    if len(after) >= len(before):
        return None
    if len(after) < 0.5 * len(before) + 40 and len(after) <= 400 and _PLACEHOLDER.search(after):
        return f"was replaced by a placeholder ({len(before):,} to {len(after):,} characters)"
    if alikeness(before, after) >= 0.6 and len(after) <= 0.9 * len(before):
        return f"was shortened ({len(before):,} to {len(after):,} characters)"
    if old.role == "tool" and len(after) <= 0.3 * len(before):
        return f"was replaced by a shorter text ({len(before):,} to {len(after):,} characters)"
    return None


def _parts(count: int, change: Change) -> str:
    """``3 messages``, or lines where the log holds rendered text."""
    segment = change.old_segment or change.new_segment
    word = "line" if segment is not None and segment.is_raw else "message"
    return f"{count} {word}{'' if count == 1 else 's'}"


def _later(segments: Sequence[Segment], wanted: Segment, index: int) -> bool:
    return any(segment is wanted for segment in segments[index + 1 :])
