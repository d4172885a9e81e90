"""Formats in which a file is one JSON document: reading it whole, and recognising it by its beginning."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import orjson

from eactl.trace.bytestream import CutStreamError
from eactl.trace.chat import ChatRequest
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.lines import why_not_json
from eactl.trace.readers.textbase import TextReader
from eactl.trace.tracefile import Head

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_CLOSER = {ord("{"): b"}", ord("["): b"]"}


class DocumentReader(TextReader):
    """A reader of one JSON document per file."""

    @property
    def skipped_because(self) -> str:
        """Where and why the first part of the file was left out."""
        return self._first_skipped

    def document(self) -> Any:
        """The whole document, or None when it is no JSON and bad ones are to be skipped. Raises TraceError."""
        try:
            data = self.file.document()
        except CutStreamError as error:
            self.bad(1, BadLineError(error.what))
            return None
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.bad(data.count(b"\n", 0, error.pos) + 1, _why(data, error))
            return None


def _why(data: bytes, error: orjson.JSONDecodeError) -> BadLineError:
    if b"\x00" in data:
        return why_not_json(data, error, cut=False)
    if error.pos >= len(data.rstrip()) - 1:
        return BadLineError("the JSON document is cut", "copy the file again, or wait until it is written")
    return why_not_json(data, error, cut=False)


def requests_in_time(requests: list[ChatRequest]) -> list[ChatRequest]:
    """Requests sorted by arrival where all have one; else as they stand."""
    if all(request.arrival_s is not None for request in requests):
        return sorted(requests, key=lambda request: request.arrival_s or 0.0)
    return requests


def objects_in(value: Any) -> list[dict[str, Any]]:
    """The JSON objects of a list; nothing of what is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


@lru_cache(maxsize=2)
def beginning(head: Head) -> Any:
    """The JSON value at the beginning of a file, as far as the head holds it; None when there is none."""
    first, _, rest = head.data.partition(b"\n")
    if head.record and rest.strip() and isinstance(_loads(first), dict):
        return None  # one object per line
    if head.whole or head.record:
        document = _loads(head.data)
        if document is not None:
            return document
    return _repaired(head.data)


def _repaired(data: bytes) -> Any:
    """A JSON text that may be cut, closed after its last whole value."""
    text = data.lstrip()
    if text[:1] not in (b"{", b"["):
        return None
    stack: list[int] = []
    at, closers = 0, b""
    for match in _TOKEN.finditer(text):
        first = text[match.start()]
        if first in _CLOSER:
            stack.append(first)
            if len(stack) > 200:
                break
        elif first in (0x7D, 0x5D):
            if not stack:
                return None
            stack.pop()
            if not stack:
                return _loads(text[: match.end()])
        elif first != 0x2C:
            if not match.group().endswith(b'"') or match.end() - match.start() < 2:
                break  # a text that is cut
            continue
        at = match.start() if first == 0x2C else match.end()
        closers = b"".join(_CLOSER[opener] for opener in reversed(stack))
    return _loads(text[:at] + closers) if at else None


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
