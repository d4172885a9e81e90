"""Texts that mean the same and are written differently: JSON and white space."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str) -> Any:
    """The value of a JSON object or array, or None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def same_json(old: str, new: str) -> bool:
    """Both are JSON objects or arrays, and they are equal."""
    left = parse_json(old)
    return left is not None and left == parse_json(new)


def json_difference(old: str, new: str) -> str:
    """In which way two spellings of the same JSON differ."""
    left, right = parse_json(old), parse_json(new)
    how = []
    if json.dumps(left) != json.dumps(right):
        is_sorted = json.dumps(right) == json.dumps(right, sort_keys=True)
        how.append("keys sorted" if is_sorted else "keys in another order")
    if ("\\u" in old) != ("\\u" in new):
        how.append("non-ASCII characters escaped" if "\\u" in new else "escaped characters written out")
    if sum(map(str.isspace, old)) != sum(map(str.isspace, new)):
        how.append("other white space")
    return " and ".join(how) or "other spelling of strings or numbers"


def same_but_space(old: str, new: str) -> str | None:
    """How two texts that are equal but for white space differ, or None."""
    if old == new or "".join(old.split()) != "".join(new.split()):
        return None
    for shorter, longer, verb in ((new, old, "trimmed"), (old, new, "added")):
        if longer.rstrip() == shorter:
            return f"trailing white space {verb}"
        if longer.lstrip() == shorter:
            return f"leading white space {verb}"
        if longer.strip() == shorter:
            return f"white space at both ends {verb}"
    if old.replace("\r\n", "\n") == new.replace("\r\n", "\n"):
        return "line ends rewritten"
    return "white space rewritten"
