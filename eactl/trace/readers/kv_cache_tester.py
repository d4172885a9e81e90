"""kv-cache-tester sessions: one JSON document per file, one file per session, times in seconds from its start.

``hash_ids`` are chained, full blocks of ``block_size`` only (the partial last block is dropped:
``len(hash_ids) == floor(in / block_size)``), and local to the file unless ``hash_id_scope`` is "global". A request
names its ``model``; KV of different models is never shared.

A sub-agent stands in the parent's list as one entry with ``requests`` of its own, which count time from the
sub-agent's **start**; the entry's ``t`` is its **end**, so it started at ``t - duration_ms / 1000``. It is a task of
its own, ``<id>/<agent_id>``. A sub-agent launched in the background has ``duration_ms: null``: its entry's ``t`` is
then the moment of the launch, the only time there is.

``think_time`` is the gap after the previous response, ``api_time`` the time the request took. The same conversation
occurs under several ids: a session whose calls equal an earlier one's is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from operator import attrgetter
from typing import Any

import orjson

from eactl.errors import TraceError
from eactl.trace.call import Call
from eactl.trace.options import TraceOptions
from eactl.trace.readers import blocks, columns
from eactl.trace.readers.base import BadLineError, RecordReader, json_type, no_collection
from eactl.trace.readers.lines import why_not_json
from eactl.trace.tracefile import Head, TraceFile

GLOBAL_SCOPE = "kv-cache-tester"
MAX_DEPTH = 8  # sub-agents of sub-agents; the tool itself records one level
_CLOCK_SLACK_S = 1.0  # recorded times are rounded to about a second
_GLOBAL = re.compile(rb'"hash_id_scope"\s*:\s*"global"')


@dataclass(frozen=True)
class _Entry:
    """Where a request stands in the document and how its time is to be read."""

    path: str
    task: str
    start_s: float
    record: dict[str, Any]


class KvCacheTesterReader(RecordReader):
    """Calls of one session and its sub-agents, in order of time."""

    name = "kv-cache-tester"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        # The block size may stand behind a megabyte of requests, so the document is decoded when it is read;
        # until then the source shows what the head says.
        self.unit = self.block_tokens(_int_near(file.head.data, b'"block_size"'), 64)
        self.local_ids = not _GLOBAL.search(file.head.data)
        if not self.local_ids:
            self.scope = GLOBAL_SCOPE
        self.source = self.make_source("blocks", self.unit, common_clock=False)
        self._entries: list[_Entry] = []
        self._tasks: set[str] = set()

    @staticmethod
    def sniff(head: Head) -> str | None:
        data = head.data.lstrip()
        if not data.startswith(b"{"):
            return "not one JSON object"
        if b'"requests"' not in data:
            return "no 'requests'"
        return None if b'"hash_ids"' in data and b'"block_size"' in data else "no 'block_size' and 'hash_ids'"

    def at(self, line: int) -> str:
        return f"{self.file.name}:{self._entries[line - 1].path}" if self._entries else super().at(line)

    def batches(self) -> Iterator[list[Call]]:
        try:
            with no_collection():
                calls = self._session()
        except TraceError as error:
            if not self.options.skip_bad_lines:
                raise
            self._leave_out(error)
            return
        self.source.tasks = len(self._tasks)
        self._entries = []
        yield calls

    def _leave_out(self, error: TraceError) -> None:
        """Count a session that cannot be read as one bad line; others of the trace may be whole."""
        source = self.source
        source.calls = source.prompt_tokens = source.output_tokens = source.skipped = 0
        source.skipped_lines, self._entries = [], []
        self.bad(1, BadLineError(error.what))
        self.warn("session-skipped", f"the session was left out: {error.what} ({error.where})", error.hint or "")

    def _session(self) -> list[Call]:
        document = self._document()
        name = document.get("id")
        if type(name) is not str or not name:
            raise self._wrong("'id' names no session")
        size = document.get("block_size")
        if type(size) is not int or size < 1:
            raise self._wrong(f"'block_size' is {columns.describe(size)}, not a number of tokens")
        self.unit = self.source.unit_tokens = self.block_tokens(size)
        scope = document.get("hash_id_scope", "local")
        if scope not in ("local", "global"):
            raise self._wrong(f"'hash_id_scope' is {columns.describe(scope)}, neither local nor global")
        if scope == "global":
            self.scope = GLOBAL_SCOPE
        self._entries = list(self._flatten(document.get("requests"), "requests", name, 0.0, 0))
        calls = self.take([entry.record for entry in self._entries], range(1, len(self._entries) + 1))
        calls.sort(key=attrgetter("arrival_s"))
        positions: dict[str | None, int] = {}
        for call in calls:
            call.call = positions.get(call.task, 0)
            positions[call.task] = call.call + 1
            if not call.call:
                call.gap_s = None  # nothing came before
        self.finish()
        return [] if self._repeats(calls) and self.options.drop_duplicates else calls

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        entries = [self._entries[number - 1] for number in numbers]
        prompt_tokens = columns.token_counts(records, "in")
        flat, listed = columns.id_lists(records, "hash_ids")
        full = blocks.full_blocks(prompt_tokens, listed, self.unit, "hash_ids", partial_listed=False)
        outputs = columns.optional_token_counts(records, "out")
        times = columns.times_s(columns.required(records, "t"), "t", null=False)
        arrivals = [entry.start_s + time for entry, time in zip(entries, times.tolist(), strict=True)]
        gaps = columns.optional_seconds(records, "think_time")
        services = columns.optional_seconds(records, "api_time")
        models = columns.optional_texts(records, "model")
        tasks = [entry.task for entry in entries]
        self._tasks.update(tasks)
        self.count(prompt_tokens, outputs)
        return list(
            map(
                Call, tasks, prompt_tokens.tolist(), blocks.cut(flat, listed, full), repeat(self.unit), outputs,
                repeat(None), repeat(0), arrivals, gaps, services, repeat(None), models, repeat(self.scope),
                repeat(0), numbers,
            )
        )  # fmt: skip

    def _document(self) -> dict[str, Any]:
        text = self.file.document()
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            reason = str(error).partition(":")[0]
            if "after document" in reason or "trailing" in reason:
                raise self._wrong("more than one JSON document", "put each session into a file of its own") from None
            bad = why_not_json(text, error, cut="end of data" in reason)
            raise TraceError(
                bad.reason.replace("last line", "document"), where=self.at(error.lineno),
                hint="the file may still be being written" if "end of data" in reason else "check the file",
            ) from None  # fmt: skip
        if type(document) is not dict:
            raise self._wrong(f"the file holds {json_type(document)}, not a session")
        return document

    def _flatten(self, requests: Any, path: str, task: str, start_s: float, depth: int) -> Iterator[_Entry]:
        if type(requests) is not list:
            raise self._wrong(f"{path!r} is {columns.describe(requests)}, not a list of requests")
        for index, record in enumerate(requests):
            here = f"{path}[{index}]"
            if type(record) is dict and record.get("type") == "subagent":
                if depth == MAX_DEPTH:
                    raise self._wrong(f"sub-agents nested more than {MAX_DEPTH} deep at {here}")
                agent = record.get("agent_id")
                name = agent if type(agent) is str and agent else here
                began_s = self._start_s(record, here, start_s)
                yield from self._flatten(
                    record.get("requests"), f"{here}.requests", f"{task}/{name}", began_s, depth + 1
                )
            else:
                yield _Entry(here, task, start_s, record)

    def _start_s(self, record: dict[str, Any], here: str, base_s: float) -> float:
        """When a sub-agent began."""
        try:
            end_s = float(columns.times_s([record.get("t")], "t", null=False)[0])
            duration_s = float(columns.times_s([record.get("duration_ms")], "duration_ms", 1000)[0])
        except BadLineError as error:
            raise TraceError(error.reason, where=f"{self.file.name}:{here}", hint="check the session") from None
        if duration_s != duration_s:
            self.warn(
                "subagent-start-unknown",
                f"the sub-agent {here} has no duration; its times are counted from {end_s:g} s, when it was launched",
            )
            return base_s + end_s
        if duration_s > end_s + _CLOCK_SLACK_S:
            self.warn(
                "subagent-before-session",
                f"the sub-agent {here} would begin {duration_s - end_s:.0f} s before its session; it is taken to begin "
                "with it",
            )
        return base_s + max(0.0, end_s - duration_s)

    def _repeats(self, calls: list[Call]) -> bool:
        """Whether an earlier session has exactly these calls; else remember them."""
        digest = blake2b(digest_size=16)
        for call in calls:
            facts = (call.arrival_s, call.prompt_tokens, call.output_tokens, call.model, call.unit_tokens, call.gap_s)
            digest.update(repr(facts).encode())
            digest.update(call.ids.tobytes())
        first = self.seen_sessions.setdefault(digest.digest(), self.file.name)
        if first == self.file.name:
            return False
        self.source.duplicate_of = first
        self.warn(
            "duplicate-session",
            f"it holds the same calls as {first}",
            "it was left out" if self.options.drop_duplicates else "--drop-duplicates leaves such sessions out",
        )
        if self.options.drop_duplicates:
            self.source.calls = self.source.tasks = self.source.prompt_tokens = self.source.output_tokens = 0
            self._tasks.clear()
        return True

    def _wrong(self, what: str, hint: str = "is this a kv-cache-tester session?") -> TraceError:
        return TraceError(what, where=self.file.name, hint=hint)


def _int_near(data: bytes, key: bytes) -> int | None:
    """The whole number after ``key`` in JSON text, if it is there."""
    rest = data.partition(key)[2].lstrip(b" \t\r\n:")
    digits = rest[: len(rest) - len(rest.lstrip(b"0123456789"))]
    return int(digits) if 0 < len(digits) < 10 and int(digits) > 0 else None
