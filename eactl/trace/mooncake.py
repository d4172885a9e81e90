"""Writing Mooncake lines with ``block_size``, ``session_id`` and ``delay`` (reader: eactl.trace.readers.mooncake)."""

from __future__ import annotations

from typing import IO, Any

import orjson

from eactl.errors import TraceError
from eactl.trace.call import Call
from eactl.trace.numbering import ChainedNumbering

MS_PER_S = 1000
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


class MooncakeWriter:
    """Writes one line per call of a block trace: whole prompts, times in milliseconds.

    Ids are small whole numbers (Dynamo reads 32 bits) and chained; the partial last block gets one that never comes
    again. KV that must not be shared (other ``scope``, ``salt`` or ``model``) gets other ids, for the line has no field
    that says so. With ``sessions`` the task is the ``session_id`` and a follow-up turn carries its ``delay``.
    """

    def __init__(self, stream: IO[bytes], *, block_tokens: int, sessions: bool = True) -> None:
        self._stream = stream
        self._block_tokens = block_tokens
        self._sessions = sessions
        self._numbering = ChainedNumbering()

    def write(self, call: Call) -> None:
        """Write one call. Raises TraceError where there is neither an arrival nor a gap to write."""
        ids = self._numbering.number((call.scope, call.salt, call.model), call.ids).tolist()
        if call.prompt_tokens % self._block_tokens:
            ids.append(self._numbering.fresh())
        record: dict[str, Any] = {}
        delay = _milliseconds(call.gap_s) if self._sessions and call.call else None
        if call.arrival_s is not None:
            record["timestamp"] = _milliseconds(call.arrival_s)
        elif delay is None:
            raise TraceError(
                f"call {call.call} of task {call.task!r} has no arrival time, which a Mooncake line needs",
                where="" if call.line is None else f"line {call.line} of the input",
                hint="--to native keeps calls without times",
            )
        record["input_length"] = call.prompt_tokens
        if call.output_tokens is not None:
            record["output_length"] = call.output_tokens
        record["hash_ids"] = ids
        record["block_size"] = self._block_tokens
        if self._sessions:
            record["session_id"] = call.task
            if delay is not None:
                record["delay"] = delay
        self._stream.write(orjson.dumps(record, option=_OPTIONS))


def _milliseconds(time_s: float | None) -> int | float | None:
    """Whole where it is whole to a nanosecond: the format's own files hold whole numbers."""
    if time_s is None:
        return None
    value = round(time_s * MS_PER_S, 6)
    return int(value) if value.is_integer() else value
