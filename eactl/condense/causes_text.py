"""A message that stands where it stood, with other text in it."""

from __future__ import annotations

import re

from eactl.condense.diff import Change
from eactl.condense.finding import Finding
from eactl.condense.sameness import json_difference, same_but_space
from eactl.condense.sameness import same_json as equal_json
from eactl.condense.values import alikeness, changed_value

_STATE = (
    r"memor(?:y|ies)|notes?|facts?|context|preferences|to-?do|plan|state|env(?:ironment)?|scratch ?pad|progress|"
    r"(?:git ?)?status|reminder|learned|directory|workspace"
)
_OPEN_TAG = re.compile(rf"<(?P<name>[\w:-]*(?:{_STATE})[\w:-]*)(?:\s[^<>]*)?>", re.IGNORECASE)
_HEADING = re.compile(
    rf"^(?:#+[^\n]*\b(?:{_STATE})\b[^\n]*|[^\n:]{{0,30}}?\b(?:{_STATE})\b[^\n:]{{0,20}}:)", re.IGNORECASE | re.MULTILINE
)
_LOOK_BACK = 4000
_ALIKE = 0.3  # lines less alike than this are two lines


def attachment(change: Change) -> Finding | None:
    """The same place holds an attachment with other bytes."""
    old, new = change.old_piece, change.new_piece
    if old is None or new is None or old.kind != "attachment" or new.kind != "attachment":
        return None
    what = old.name.removeprefix("input_").removesuffix("_url")
    return Finding("attachment", f"the bytes of the {what} changed", old.text, new.text)


def same_json(change: Change) -> Finding | None:
    """Arguments or a result that parse to the same object and are written differently."""
    old, new = change.old_piece, change.new_piece
    if old is None or new is None or old.kind != new.kind or old.name != new.name:
        return None
    if not equal_json(old.text, new.text):
        return None
    what = f"arguments of {old.name}" if old.kind == "call" else "JSON text"
    where = " sent back" if change.in_output else ""
    return Finding("same-json", f"{what}{where}: {json_difference(old.text, new.text)}")


def reasoning(change: Change) -> Finding | None:
    """Reasoning that was in the prompt, or was generated, is missing now."""
    old, new = change.old_piece, change.new_piece
    if old is None or old.kind != "reasoning" or change.old_segment is None or change.new_segment is None:
        return None
    if change.new_segment.role != change.old_segment.role:
        return None
    if new is not None and new.kind == "reasoning" and len(new.text) >= len(old.text):
        return None  # rewritten, not stripped
    how = "dropped" if new is None or new.kind != "reasoning" else "shortened"
    if any(change.new[i].role == "user" for i in change.appended):
        return Finding("reasoning-stripped", f"{how} at a new user message")
    return Finding("reasoning-stripped", f"{how} at every turn" if not change.in_output else f"{how} by the client")


def whitespace(change: Change) -> Finding | None:
    """Equal but for white space."""
    old, new = change.old_segment, change.new_segment
    if old is None or new is None or old.role != new.role or old.is_tools:
        return None
    if [piece.kind for piece in old.pieces] != [piece.kind for piece in new.pieces]:
        # A piece that holds nothing but white space does not count.
        if old.text.strip() != new.text.strip():
            return None
        return Finding("boundary-merge", "white space between the parts of the message changed")
    how = same_but_space(old.text, new.text)
    return Finding("boundary-merge", how) if how is not None else None


def changing_value(change: Change) -> Finding | None:
    """A clock, id, counter or header that is written anew each turn, in text that otherwise stays."""
    old, new = change.old_piece, change.new_piece
    if old is None or new is None or old.kind != new.kind or not _intact(change):
        return None
    value = changed_value(old.text, new.text, change.offset)
    if value is None:
        return None
    segment = change.old_segment
    block = _block(old.text, change.offset)
    if value.kind == "value":
        if segment is None or not segment.is_head or block is not None:
            return None
        return Finding("changing-value", "a word that changes", value.old, value.new)
    kind = f"{value.kind} ({value.detail})" if value.detail else value.kind
    if value.kind == "clock":
        kind = f"clock with {value.detail} granularity"
    return Finding("changing-value", f"{kind}{f' in {block}' if block else ''}", value.old, value.new)


def memory_block(change: Change) -> Finding | None:
    """Memory, environment or other state that the client writes into the system prompt or the first message."""
    segment = change.old_segment or change.new_segment
    if segment is None or not _intact(change):
        return None
    moved = change.old_segment is not None and change.new_segment is not None and change.in_place is False
    for side, piece in ((change.new_segment, change.new_piece), (change.old_segment, change.old_piece)):
        if moved or side is None or piece is None or piece.kind != "text":
            continue
        block = _block(piece.text, change.offset) or _block(piece.text, min(len(piece.text), change.offset + 80))
        if block is not None and (side.is_head or block.startswith("<")):
            return Finding("memory-block", f"{block} rewritten in the {side.role} message")
    inserted = change.new_segment
    if inserted is not None and change.index in change.inserted and not inserted.is_tools:
        found = _OPEN_TAG.match(inserted.text.lstrip()[:200]) if not inserted.is_head else None
        block = (
            f"<{found['name']}>" if found else _block(inserted.text, len(inserted.text)) if inserted.is_head else None
        )
        if block is not None:
            return Finding("memory-block", f"a {inserted.role} message with {block} put in")
    return None


def passing_block(change: Change) -> Finding | None:
    """A block of state that stood at the end of the newest message and is taken out once that is history."""
    old, new = change.old_piece, change.new_piece
    if old is None or new is None or old.kind != "text" or new.kind != "text" or not _intact(change):
        return None
    gone = old.text[change.offset :]
    tag = _OPEN_TAG.match(gone.lstrip()) if new.text.rstrip() == old.text[: change.offset].rstrip() else None
    if tag is None or not gone.rstrip().endswith(f"</{tag['name']}>"):
        return None
    return Finding("memory-block", f"<{tag['name']}> is taken out of the message once it is history")


def edited(change: Change) -> Finding | None:
    """A message that was rewritten where it stands, for no reason that the text shows."""
    old, new = change.old_segment, change.new_segment
    if old is None or new is None or not (change.in_place or _intact(change)):
        return None
    if old.is_raw and not change.kept and alikeness(old.text, new.text) < _ALIKE:
        return None  # one rendered prompt beside another, not an edit of it
    if old.role != new.role:
        if not change.kept:
            return None
        what = "a message put in" if change.kept[0][1] > change.index else "another message"
        return Finding("edited", f"{what}: {old.role} was here, {new.role} is here now")
    if change.in_output:
        return Finding("edited", "the answer was changed before it was sent back")
    grown = len(new.text) - len(old.text)
    what = "a line of the prompt" if old.is_raw else f"the {old.role} message"
    return Finding("edited", f"{what} was rewritten ({grown:+,} characters)")


def _intact(change: Change) -> bool:
    """No message is missing: whatever changed, the history did not get shorter."""
    return len(change.new) >= len(change.before.segments)


def _block(text: str, offset: int) -> str | None:
    """The tagged block or headed section around ``offset`` that by its name holds state."""
    start = max(0, offset - _LOOK_BACK)
    for match in reversed(list(_OPEN_TAG.finditer(text, start, min(len(text), offset + 1)))):
        if text.find(f"</{match['name']}", match.end(), offset) < 0:
            return f"<{match['name']}>"
    paragraph = text.rfind("\n\n", start, offset)
    section = max(start, paragraph + 2 if paragraph >= 0 else start, text.rfind("\n#", start, offset) + 1)
    heading = None
    for heading in _HEADING.finditer(text, section, min(len(text), offset + 40)):
        if heading.start() > offset:
            break
    if heading is not None and heading.start() <= offset:
        return f"the section '{heading.group().strip(' #:')[:40]}'"
    return None
