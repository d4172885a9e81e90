"""What every reader shares: the source it fills, the policy for lines that cannot be read, batches of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import orjson

from eactl.errors import TraceError
from eactl.trace.call import Call, Ids, Notice, PromptKind, Source
from eactl.trace.options import TraceOptions
from eactl.trace.tracefile import Head, LineBatch, TraceFile

LISTED_LINES = 1000
NAMED_LINES = 20
MAX_ARRIVAL_S = 1e11  # a timestamp after the year 5000 has another unit than the format says


class BadLineError(Exception):
    """A record that has no meaning: why, and what could be done about it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Reader(ABC):
    """One format: recognises a file by its head, and turns its contents into calls, lazily and in order.

    To add a format write a module with a subclass and add the class to READERS in this package.
    """

    name: ClassVar[str]  # as given to --format and shown in results
    family: ClassVar[Literal["trace", "text log"]] = "trace"

    source: Source
    scope: str = ""  # of the calls' ids; the stream sets it where files with local ids meet
    local_ids: bool = True  # ids mean something in this file only
    absolute_times: bool = False  # arrival_s counts from 1970; the stream subtracts the first arrival

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        self.file = file
        self.options = options
        self._reasons: dict[str, int] = {}
        self._first_skipped = ""

    @staticmethod
    @abstractmethod
    def sniff(head: Head) -> str | None:
        """None when the head looks like this format, else in a few words why not."""

    @abstractmethod
    def calls(self) -> Iterator[Call]:
        """The calls in scheduled order. Raises TraceError with file:line."""

    def make_source(self, kind: PromptKind, unit_tokens: int, **fields: Any) -> Source:
        """The Source of this file."""
        return Source(path=self.file.name, format=self.name, kind=kind, unit_tokens=unit_tokens, **fields)

    def block_tokens(self, recorded: int | None, default: int = 1) -> int:
        """Tokens per block id: what the trace records, else ``--block-tokens``, else the format's own size."""
        given = self.options.block_tokens
        if recorded is None:
            return default if given is None else given
        if given is not None and given != recorded:
            raise TraceError(
                f"--block-tokens {given} contradicts the trace, which records {recorded}",
                where=self.file.name,
                hint="leave the option out",
            )
        return recorded

    def count(self, prompt_tokens: Ids, outputs: Sequence[int | None]) -> None:
        """Add calls to the source's counters; one unknown output makes the output total unknown."""
        self.source.calls += len(prompt_tokens)
        self.source.prompt_tokens += int(prompt_tokens.sum())
        if self.source.output_tokens is not None:
            known = [tokens for tokens in outputs if tokens is not None]
            self.source.output_tokens = self.source.output_tokens + sum(known) if len(known) == len(outputs) else None

    def warn(self, code: str, text: str, hint: str = "") -> None:
        """Add a notice to the source."""
        self.source.warnings.append(Notice(code, text, hint))

    def bad(self, line: int, error: BadLineError) -> None:
        """Refuse line ``line``, or count it if bad lines are to be skipped."""
        if not self.options.skip_bad_lines:
            hint = error.hint or "--skip-bad-lines leaves such lines out and counts them"
            raise TraceError(error.reason, where=self.at(line), hint=hint)
        if not self.source.skipped:
            self._first_skipped = f"{self.at(line)}: {error.reason}"
        self.source.skipped += 1
        if len(self.source.skipped_lines) < LISTED_LINES:
            self.source.skipped_lines.append(line)
        kind = error.reason.partition(":")[0]
        if kind in self._reasons or len(self._reasons) < NAMED_LINES:
            self._reasons[kind] = self._reasons.get(kind, 0) + 1

    def at(self, line: int) -> str:
        """``file:line`` for messages."""
        return f"{self.file.name}:{line}"

    def finish(self) -> None:
        """Report what was left out; called once, when the file has been read. Raises TraceError if most was bad."""
        if self.file.ended_early is not None:
            self.warn("cut-file", f"{self.file.ended_early.what}; read up to there", self.file.ended_early.hint or "")
        skipped = self.source.skipped
        if not skipped:
            return
        if skipped > self.source.calls:
            total = skipped + self.source.calls
            raise TraceError(
                f"{skipped} of {total} lines cannot be read, the first {self._first_skipped}",
                where=self.file.name,
                hint="this may be another format; --format names one",
            )
        lines = ", ".join(map(str, self.source.skipped_lines[:NAMED_LINES]))
        more = ", ..." if skipped > NAMED_LINES else ""
        reasons = "; ".join(f"{count} × {reason}" for reason, count in self._reasons.items())
        self.warn("skipped-lines", f"{skipped} bad lines left out (lines {lines}{more}): {reasons}")


class LineReader(Reader):
    """A reader of line-based files: subclasses turn batches of JSON objects into calls."""

    one_by_one: bool = False  # each record needs the one before it: batches of one

    @abstractmethod
    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        """Calls of a batch of records, whose line numbers are ``numbers``.

        Either all of them or BadLineError, with nothing remembered: the batch then comes again line by line.
        """

    def calls(self) -> Iterator[Call]:
        for batch in self.file.batches(tolerate_cut=self.options.skip_bad_lines):
            yield from self._batch(batch)
        self.finish()

    def _batch(self, batch: LineBatch) -> list[Call]:
        lines, numbers = batch.lines, batch.numbers
        try:
            records = list(map(orjson.loads, lines))
        except orjson.JSONDecodeError:
            records, numbers = self._decode_each(batch)
        if not set(map(type, records)) <= {dict}:
            records, numbers = self._objects_only(records, numbers)
        if not records or self.one_by_one:
            return self._rows_each(records, numbers)
        try:
            return self.rows(records, numbers)
        except BadLineError:
            return self._rows_each(records, numbers)

    def _rows_each(self, records: list[Any], numbers: Sequence[int]) -> list[Call]:
        calls: list[Call] = []
        for record, number in zip(records, numbers, strict=True):
            calls += self._row(record, number)
        return calls

    def _row(self, record: Any, number: int) -> list[Call]:
        try:
            return self.rows([record], [number])
        except BadLineError as error:
            self.bad(number, error)
            return []

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

    def _objects_only(self, records: list[Any], numbers: Sequence[int]) -> tuple[list[Any], list[int]]:
        kept: list[Any] = []
        kept_numbers: list[int] = []
        for record, number in zip(records, numbers, strict=True):
            if type(record) is dict:
                kept.append(record)
                kept_numbers.append(number)
            else:
                self.bad(number, BadLineError(f"the line holds {json_type(record)}, not a JSON object"))
        return kept, kept_numbers


def _decode_into(records: list[Any], line: bytes) -> orjson.JSONDecodeError | None:
    try:
        records.append(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        return error
    return None


def why_not_json(line: bytes, error: orjson.JSONDecodeError, *, cut: bool) -> BadLineError:
    """What is wrong with a line that is not JSON, in the words of its likely cause."""
    if b"\x00" in line:
        return BadLineError("the line holds NUL bytes", "the writer was killed or the disk was full; --skip-bad-lines")
    if cut:
        return BadLineError(
            "the last line is cut", "the file may still be being written; --skip-bad-lines leaves the line out"
        )
    text = str(error)
    if "recursion" in text:
        return BadLineError("JSON nested too deeply")
    return BadLineError(f"not JSON: {text.partition(':')[0]}")


def json_type(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
