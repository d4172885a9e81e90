"""Values that change from turn to turn inside text that otherwise stays: clocks, ids, counters, billing headers."""

from __future__ import annotations

import re
from dataclasses import dataclass

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]*\.?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_TIME = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
    r"(?:\s?(?:Z\b|UTC\b|GMT\b|[A-Z]{3,4}\b|[+-]\d{2}:?\d{2}\b))?"
)
_DATE = (
    r"(?:(?<![\d.])(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?![\d]|\.\d)"
    r"|\d{4}年\d{1,2}月\d{1,2}日"
    rf"|(?:{_DAY},?\s+)?{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}}\b)?"
    rf"|(?:{_DAY},?\s+)?\d{{1,2}}\s+{_MONTH}(?:,?\s+\d{{4}}\b)?)"
)

# Kind of value -> how it is written. The first pattern that covers the difference on both sides decides.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("clock", re.compile(rf"{_DAY},?\s+{_MONTH}\s+\d{{1,2}},?\s+{_TIME}(?:\s+\d{{4}})?")),
    ("clock", re.compile(rf"{_DATE}(?:T|,?\s+at\s+|,?\s+|\s*[-|]\s*){_TIME}")),
    ("clock", re.compile(rf"{_TIME}(?:\s+on|,)?\s+{_DATE}")),
    ("id", re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")),
    ("clock", re.compile(_DATE)),
    ("clock", re.compile(rf"(?<![\d:]){_TIME}")),
    ("clock", re.compile(r"(?<![\w.])1\d{9}(?:\.\d+)?(?![\w.])")),
    ("clock", re.compile(r"(?<![\w.])1\d{12}(?:\d{3}){0,2}(?![\w.])")),
    ("clock", re.compile(rf"\b{_DAY}\b")),
)
_CLOCK_TIME = re.compile(r"\d{1,2}:\d{2}(?P<seconds>:\d{2}(?P<fraction>[.,]\d+)?)?")
_BILLING = re.compile(r"^[\w-]*(?:billing|attribution)[\w-]*\s*[:=]", re.IGNORECASE)
_WORD = re.compile(r"(?:[^\s\"'`<>(){}\[\],;=|]|(?<=\d),(?=\d{3}))+")
_NUMBER = re.compile(r"[+-]?\d[\d,_]*(?:\.\d+)?%?")
_RATIO = re.compile(r"(\d+)/\d+")
_BACK = 48  # characters to look back for the start of a value
_AHEAD = 160


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """What changed: its kind, a detail (granularity, step) and how far it reaches in either text."""

    kind: str  # "billing header", "clock", "id", "counter", "value"
    detail: str
    old: str
    new: str


def common_prefix(old: str, new: str) -> int:
    """Characters that both texts start with; linear in that length, at memory speed."""
    limit = min(len(old), len(new))
    if old[:limit] == new[:limit]:
        return limit
    start, step = 0, 256
    while old[start : start + step] == new[start : start + step]:
        start += step
        step *= 2
    low, high = start, min(start + step, limit)  # the first difference lies in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle
    return low


def common_suffix(old: str, new: str, after: int = 0) -> int:
    """Characters that both end with, not reaching back before position ``after``."""
    limit = min(len(old), len(new)) - after
    if limit <= 0:
        return 0
    return common_prefix(old[-limit:][::-1], new[-limit:][::-1])


def alikeness(old: str, new: str) -> float:
    """Share of the shorter text that lies in the common head and tail; 1.0 when one contains the other so."""
    shorter = min(len(old), len(new))
    if not shorter:
        return 1.0 if old == new else 0.0
    head = common_prefix(old, new)
    return (head + common_suffix(old, new, head)) / shorter


def changed_value(old: str, new: str, offset: int) -> ChangedValue | None:
    """The value that differs at ``offset``, if the text after it goes on as before; None for any other edit."""
    typed = _typed(old, new, offset)
    if typed is not None:
        return _billing(old, new, offset) or typed
    words = _words(old, new, offset)
    if words is None:
        return None
    first, second, goes_on = words
    if not goes_on or not _same_elsewhere(old, new):
        return None
    found = _billing(old, new, offset)
    return found or ChangedValue(*_word_kind(first, second), first, second)


def _typed(old: str, new: str, offset: int) -> ChangedValue | None:
    for kind, pattern in _PATTERNS:
        first, second = _covering(pattern, old, offset), _covering(pattern, new, offset)
        if first is None or second is None or first.group() == second.group():
            continue
        if not _goes_on(old, first.end(), new, second.end()):
            continue
        detail = _granularity(first.group(), second.group()) if kind == "clock" else "UUID"
        return ChangedValue(kind, detail, first.group(), second.group())
    return None


def _covering(pattern: re.Pattern[str], text: str, offset: int) -> re.Match[str] | None:
    start = max(0, offset - _BACK)
    for match in pattern.finditer(text, start, min(len(text), offset + _AHEAD)):
        if match.start() > offset:
            return None
        if match.end() >= offset and match.end() > match.start():
            # Where one text ends inside the value the difference sits at its very end.
            return match
    return None


def _goes_on(old: str, old_end: int, new: str, new_end: int) -> bool:
    left, right = old[old_end : old_end + 3], new[new_end : new_end + 3]
    return left == right or bool(left[:1].isspace() and right[:1].isspace()) or _another_value(left, right)


def _another_value(left: str, right: str) -> bool:
    """Two values side by side: both go on with the same separator and then differ again."""
    return bool(left and right) and left[0] == right[0] and not left[0].isalnum()


def _granularity(old: str, new: str) -> str:
    time = _CLOCK_TIME.search(old)
    if time is not None and _CLOCK_TIME.search(new):
        if time["fraction"]:
            return {4: "millisecond", 7: "microsecond", 10: "nanosecond"}.get(len(time["fraction"]), "sub-second")
        return "second" if time["seconds"] else "minute"
    digits = re.sub(r"\.\d+$", "", old)
    if digits.isdigit():
        if "." in old:
            return "sub-second"
        return {10: "second", 13: "millisecond", 16: "microsecond", 19: "nanosecond"}.get(len(digits), "second")
    return "day"


def _words(old: str, new: str, offset: int) -> tuple[str, str, bool] | None:
    """The word around the difference on both sides, and whether the text after it is the same."""
    start = offset
    while start > 0 and offset - start < _BACK and _WORD.match(old[start - 1]):
        start -= 1
    first, second = _WORD.match(old, start), _WORD.match(new, start)
    if first is None or second is None or first.group() == second.group():
        return None
    return first.group(), second.group(), _goes_on(old, first.end(), new, second.end())


def _same_elsewhere(old: str, new: str) -> bool:
    """Most of the text is unchanged: head and tail, or, with several values changing, most words in their places."""
    if alikeness(old, new) >= 0.5:
        return True
    left, right = old.split(), new.split()
    if len(left) != len(right):
        return False
    return sum(a != b for a, b in zip(left, right, strict=True)) <= max(1, len(left) // 5)


def _billing(old: str, new: str, offset: int) -> ChangedValue | None:
    start = max(old.rfind("\n", 0, offset), -1) + 1
    if not _BILLING.match(old[start : start + 200]) or not _BILLING.match(new[start : start + 200]):
        return None
    name = re.split(r"[:=]", old[start : start + 200], maxsplit=1)[0].strip()
    ends = (_line_end(old, offset), _line_end(new, offset))
    return ChangedValue("billing header", name, old[start : ends[0]], new[start : ends[1]])


def _line_end(text: str, offset: int) -> int:
    end = text.find("\n", offset)
    return len(text) if end < 0 else end


def _word_kind(first: str, second: str) -> tuple[str, str]:
    stem = common_prefix(first, second)
    while stem and first[stem - 1].isdigit():
        stem -= 1
    left, right = first[stem:].rstrip(".:"), second[stem:].rstrip(".:")
    ratio = (_RATIO.fullmatch(left), _RATIO.fullmatch(right))
    if ratio[0] and ratio[1]:
        left, right = ratio[0].group(1), ratio[1].group(1)
    if _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
        step = _number(right) - _number(left)
        return "counter", f"{step:+g}"
    if _random(first) and _random(second):
        return "id", "random"
    return "value", ""


def _number(text: str) -> float:
    return float(text.rstrip("%").replace(",", "").replace("_", ""))


def _random(word: str) -> bool:
    """Letters and digits mixed, or long enough not to be a word."""
    body = [character for character in word if character.isalnum()]
    digits = sum(character.isdigit() for character in body)
    return len(body) >= 5 and ((0 < digits < len(body)) or len(body) >= 20)
