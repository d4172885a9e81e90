"""Short quotes around a difference: enough to find it, too little to leak a prompt, keys blotted out."""

from __future__ import annotations

import re

_BEFORE, _AFTER = 16, 44
_SECRET = re.compile(
    r"(?:\b(?:sk|pk|rk)-|gh[pousr]_|xox[abprs]-|AKIA|eyJ|glpat-|hf_|Bearer\s+|(?:password|secret|token|api[_-]?key)"
    r"[\"']?\s*[:=]\s*[\"']?)[^\s\"',;]{4,}",
    re.IGNORECASE,
)


def quote(text: str, offset: int, *, length: int = _AFTER) -> str:
    """Some characters of ``text`` from the start of the word at ``offset`` on; an ellipsis where it is cut."""
    start = max(0, offset - _BEFORE)
    if start:
        word = re.search(r"\s\S*\Z", text[start:offset])
        start = start + word.start() + 1 if word else start
    end = min(len(text), offset + length)
    # Look beyond the quote, so that a key that begins or ends outside is recognised.
    wide_start, wide_end = max(0, start - 40), min(len(text), end + 40)
    wide = _SECRET.sub(lambda match: match.group()[:3] + "*" * (len(match.group()) - 3), text[wide_start:wide_end])
    body = wide[start - wide_start : end - wide_start]
    return ("…" if start else "") + body + ("…" if end < len(text) else "")
