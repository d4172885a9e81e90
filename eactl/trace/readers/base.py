"""What every reader shares: the source it fills, and the policy for records that cannot be read."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar, Literal

from eactl.errors import TraceError
from eactl.trace.call import Call, Ids, Notice, PromptKind, Source
from eactl.trace.options import TraceOptions
from eactl.trace.tracefile import Head, TraceFile

LISTED_LINES = 1000
NAMED_LINES = 20
SKIP_HINT = "--skip-bad-lines leaves such lines out and counts them"


class BadLineError(Exception):
    """A record that has no meaning: why, and what could be done about it."""

    def __init__(self, reason: str, hint: str = SKIP_HINT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class Reader(ABC):
    """One format: recognises a file by its head, and turns its contents into calls, lazily and in order.

    To add a format write a module with a subclass and put the class into READERS of this package.
    """

    name: ClassVar[str]  # as given to --format and shown in results
    family: ClassVar[Literal["trace", "text log"]] = "trace"
    refuses: ClassVar[bool] = False  # recognises a format only to say why it cannot be used
    on_request: ClassVar[bool] = False  # looks like another format: only --format chooses it

    source: Source
    scope: str = ""  # of the calls' ids; the stream sets it where files with local ids meet
    local_ids: bool = True  # ids mean something in this file only
    absolute_times: bool = False  # arrival_s counts from 1970; the stream subtracts the first arrival

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        self.file = file
        self.options = options
        self.seen_sessions: dict[bytes, str] = {}  # digest -> where; shared by all readers of a stream
        self._reasons: dict[str, int] = {}
        self._first_skipped = ""

    @staticmethod
    @abstractmethod
    def sniff(head: Head) -> str | None:
        """None when the head looks like this format, else in a few words why not."""

    @abstractmethod
    def batches(self) -> Iterator[list[Call]]:
        """The calls in scheduled order, some at a time. Raises TraceError with file:line."""

    def join(self, readers: Sequence[Reader]) -> None:  # noqa: B027 - most formats have nothing to do here
        """Meet all readers of the stream, before any is read: for formats whose sessions span several files."""

    def peek_arrival_s(self) -> float | None:
        """When the first call arrived, if that can be told without reading the file: it is then opened no earlier."""
        return None

    def calls(self) -> Iterator[Call]:
        """The calls one by one."""
        return chain.from_iterable(self.batches())

    def make_source(self, kind: PromptKind, unit_tokens: int, **fields: Any) -> Source:
        """The Source of this file."""
        return Source(
            path=self.file.name, format=self.name, kind=kind, unit_tokens=unit_tokens,
            text=self.family == "text log", **fields,
        )  # fmt: skip

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

    def at(self, line: int) -> str:
        """``file:line`` for messages."""
        return f"{self.file.name}:{line}"

    def bad(self, line: int, error: BadLineError) -> None:
        """Refuse line ``line``, or count it if bad lines are to be skipped."""
        if not self.options.skip_bad_lines:
            raise TraceError(error.reason, where=self.at(line), hint=error.hint)
        if not self.source.skipped:
            self._first_skipped = f"{self.at(line)}: {error.reason}"
        self.source.skipped += 1
        if len(self.source.skipped_lines) < LISTED_LINES:
            self.source.skipped_lines.append(line)
        if error.reason in self._reasons or len(self._reasons) < NAMED_LINES:
            self._reasons[error.reason] = self._reasons.get(error.reason, 0) + 1

    @property
    def skipped_because(self) -> str:
        """Where and why the first line was left out; empty if none was."""
        return self._first_skipped

    def finish(self) -> None:
        """Report what was left out; call it once, when the file has been read. Raises TraceError if most was bad."""
        early = self.file.ended_early
        if early is not None:
            self.warn("cut-file", f"{early.what}; it was read up to there", "copy the file again")
        skipped = self.source.skipped
        if not skipped:
            return
        if skipped > max(1, self.source.calls):  # one alone may be a whole document among others
            total = skipped + self.source.calls
            raise TraceError(
                f"{skipped} of {total} lines cannot be read, the first {self._first_skipped}",
                where=self.file.name,
                hint="this may be another format; --format names one",
            )
        places = [self.at(line).removeprefix(f"{self.file.name}:") for line in self.source.skipped_lines[:NAMED_LINES]]
        lines = ("line " if places[0].isdigit() else "") + ", ".join(places)
        more = ", ..." if skipped > NAMED_LINES else ""
        named = sorted(self._reasons.items(), key=lambda item: -item[1])[:3]
        reasons = "; ".join(reason if count == 1 else f"{count} times {reason}" for reason, count in named)
        self.warn(
            "lines-skipped",
            f"{skipped} bad line{'s' * (skipped > 1)} left out ({lines}{more}): {reasons}",
            "mend or record them again",
        )


class RecordReader(Reader):
    """A reader whose file is made of JSON objects, which become calls a batch at a time."""

    one_by_one: bool = False  # each record needs the one before it

    @abstractmethod
    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        """Calls of a batch of records, whose line numbers are ``numbers``.

        Either all of them or BadLineError, with nothing remembered: the batch then comes again one by one.
        """

    def take(self, records: Sequence[Any], numbers: Sequence[int]) -> list[Call]:
        """The calls of JSON values; those that are no good are refused or counted."""
        if set(map(type, records)) <= {dict} and not self.one_by_one and records:
            try:
                return self.rows(records, numbers)
            except BadLineError:
                pass  # one by one finds which
        calls: list[Call] = []
        for record, number in zip(records, numbers, strict=True):
            calls += self._row(record, number)
        return calls

    def _row(self, record: Any, number: int) -> list[Call]:
        try:
            if type(record) is not dict:
                raise BadLineError(f"the line holds {json_type(record)}, not a JSON object")
            return self.rows([record], [number])
        except BadLineError as error:
            self.bad(number, error)
            return []


@contextmanager
def no_collection() -> Iterator[None]:
    """Hold the cycle collector back: a batch makes thousands of objects, all of them alive, none in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def json_type(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
