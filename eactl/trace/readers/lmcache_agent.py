"""LMCache agent traces: ``{"timestamp","input","output","session_id"}``, one file per session, times in µs.

``input`` is the whole prompt flattened to one text, however the producer joined its messages; tool definitions are
not in it. Lines are not in the order of time, so they are sorted. One session may hold several kinds of prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.chatforms import seconds
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.columns import describe
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head

_FIELDS = ("timestamp", "input", "output", "session_id")


class LmcacheAgentReader(TextReader):
    """Requests of one file, in the order of their times."""

    name = "lmcache-agent"

    @staticmethod
    def sniff(head: Head) -> str | None:
        records = first_objects(head)
        if not records:
            return "no JSON object on a line"
        missing = [key for key in _FIELDS if key not in records[0]]
        return f"no {missing[0]!r}" if missing else None

    def read(self) -> Iterator[ChatRequest]:
        lines: list[tuple[float, int, bytes]] = []
        for number, record in self.objects():
            at_s = self._time_s(number, record)
            if at_s is not None:
                lines.append((at_s, number, orjson.dumps(record)))
        lines.sort(key=lambda line: line[:2])
        turns: dict[str, int] = {}
        for at_s, number, line in lines:
            record = orjson.loads(line)
            session = str(record.get("session_id"))
            turn = turns.get(session, 0)
            turns[session] = turn + 1
            output = record.get("output")
            yield ChatRequest(
                session=session, messages=[{"role": RAW_ROLE, "content": record["input"]}], turn=turn,
                response={"role": "assistant", "content": output} if output else None, arrival_s=at_s,
                exact=False, hidden_tokens=(0, None), where=self.at(number),
            )  # fmt: skip

    def _time_s(self, number: int, record: dict[str, Any]) -> float | None:
        """When the request was sent; None for a line that was skipped as bad."""
        stamp = record.get("timestamp")
        for key in ("input", "output"):
            if not isinstance(record.get(key), str):
                self.bad(number, BadLineError(f"{key!r} is {describe(record.get(key))}, not a text"))
                return None
        at_s = seconds(stamp / 1e6) if isinstance(stamp, (int, float)) and not isinstance(stamp, bool) else None
        if at_s is None:
            self.bad(number, BadLineError(f"'timestamp' is {describe(stamp)}, not a time in microseconds"))
        return at_s
