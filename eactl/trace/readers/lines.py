"""Readers of line-based files: lines to JSON objects, with what can be wrong with a line said once, here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from eactl.trace.call import Call
from eactl.trace.readers.base import BadLineError, RecordReader, no_collection
from eactl.trace.tracefile import LineBatch


class LineReader(RecordReader):
    """A reader with one JSON object per line."""

    def batches(self) -> Iterator[list[Call]]:
        for batch in self.file.batches(tolerate_cut=self.options.skip_bad_lines):
            with no_collection():
                calls = self._batch(batch)
            yield calls
        self.finish()

    def _batch(self, batch: LineBatch) -> list[Call]:
        try:
            return self.take(list(map(orjson.loads, batch.lines)), batch.numbers)
        except orjson.JSONDecodeError:
            return self.take(*self._decode_each(batch))

    def _decode_each(self, batch: LineBatch) -> tuple[list[Any], list[int]]:
        records: list[Any] = []
        numbers: list[int] = []
        for at, (line, number) in enumerate(zip(batch.lines, batch.numbers, strict=True), 1):
            error = _decode_into(records, line)
            if error is None:
                numbers.append(number)
            else:
                self.bad(number, why_not_json(line, error, cut=batch.cut and at == len(batch.lines)))
        return records, numbers


def _decode_into(records: list[Any], line: bytes) -> orjson.JSONDecodeError | None:
    try:
        records.append(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        return error
    return None


def why_not_json(text: bytes, error: orjson.JSONDecodeError, *, cut: bool) -> BadLineError:
    """What is wrong with text that is not JSON, in the words of its likely cause."""
    if b"\x00" in text:
        return BadLineError(
            "the line holds NUL bytes", "the writer was killed or its disk full; --skip-bad-lines leaves the line out"
        )
    if cut:
        return BadLineError(
            "the last line is cut", "the file may still be being written; --skip-bad-lines leaves the line out"
        )
    if b"NaN" in text or b"Infinity" in text:
        return BadLineError("not JSON: NaN and Infinity are no JSON numbers")
    reason = str(error).partition(":")[0]
    if "depth" in reason or "recursion" in reason:
        return BadLineError("JSON nested too deeply")
    return BadLineError(f"not JSON: {reason}")
