"""The Mooncake trace line (FAST'25), and what other tools have added to it.

One JSON object per line: ``timestamp`` in **milliseconds**, ``input_length``, ``output_length``, ``hash_ids``. Ids
are chained (equal id = equal prefix) and the partial last block has an id of its own, so
``len(hash_ids) == ceil(input_length / block)``; that last id is dropped here, for a partial block is never shared.
A block is 512 tokens unless ``block_size`` says otherwise (AIPerf, kvcache-simulator, SGLang's converter).

Read as well: ``session_id``; ``delay`` or ``delay_ms``, the milliseconds after the session's previous response, which
may stand in for the timestamp of a follow-up turn; ``created_time``, ``input_tokens``, ``output_tokens`` (Dynamo's
names); ``model`` and ``salt``. Every line holds its whole prompt, as in Dynamo's ``mooncake``; rows that hold only what
a turn adds (Dynamo's ``mooncake-delta``, AIPerf's sessions) are refused where that shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from eactl.errors import TraceError
from eactl.trace.call import Call, Ids
from eactl.trace.options import TraceOptions
from eactl.trace.readers import blocks, columns
from eactl.trace.readers.base import SKIP_HINT, BadLineError
from eactl.trace.readers.clock import ClockWatch
from eactl.trace.readers.lines import LineReader
from eactl.trace.tracefile import Head, TraceFile

MS_PER_S = 1000
DEFAULT_BLOCK_TOKENS = 512
_PLAIN_FIELDS = frozenset(("timestamp", "input_length", "output_length", "hash_ids"))
_OTHER_NAMES = {
    "created_time": "timestamp",
    "input_tokens": "input_length",
    "output_tokens": "output_length",
    "delay_ms": "delay",
    "block_tokens": "block_size",
}
_DELTA_TURNS = 8  # this many follow-up turns must look like increments before the file is refused


class MooncakeReader(LineReader):
    """Calls of a Mooncake-style file, in file order."""

    name = "mooncake"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        recorded = _own_names(file.head.record).get("block_size")
        known = type(recorded) is int and recorded > 0
        self.unit = self.block_tokens(recorded if known else None, DEFAULT_BLOCK_TOKENS)
        self.source = self.make_source("blocks", self.unit, common_clock=False)
        self._sessions: dict[str, _Session] = {}
        self._clock = ClockWatch()
        self._followed, self._increments = 0, 0

    @staticmethod
    def sniff(head: Head) -> str | None:
        record = _own_names(head.record)
        for key in ("hash_ids", "input_length"):
            if key not in record:
                return f"no {key!r} on its first line" if record else "its lines are no JSON objects"
        return "it has 'chat_id'" if "chat_id" in record else None

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        extended = set(map(len, records)) != {4} or not all(map(_PLAIN_FIELDS.issuperset, records))
        if extended:
            records = list(map(_own_names, records))
            self._check_block_size(records)
        prompt_tokens = columns.token_counts(records, "input_length")
        flat, listed = columns.id_lists(records, "hash_ids")
        full = blocks.full_blocks(prompt_tokens, listed, self.unit, "hash_ids", partial_listed=True)
        outputs = columns.optional_token_counts(records, "output_length")
        sessions: Iterable[str | None] = repeat(None)
        models = salts = sessions
        gaps: npt.NDArray[np.float64] | None = None
        if extended:
            sessions = columns.optional_texts(records, "session_id")
            models, salts = columns.optional_texts(records, "model"), columns.optional_texts(records, "salt")
            gaps = columns.times_s([record.get("delay") for record in records], "delay", MS_PER_S)
        arrivals = self._arrivals(records, gaps)
        ids = blocks.cut(flat, listed, full)

        # Nothing is remembered before this point: a refused batch comes again line by line.
        turns: Iterable[int] = repeat(0)
        if isinstance(sessions, list) and any(sessions):
            turns = list(map(self._turn, sessions, ids, prompt_tokens.tolist()))
        self._clock.watch(arrivals)
        self.count(prompt_tokens, outputs)
        return list(
            map(
                Call, sessions, prompt_tokens.tolist(), ids, repeat(self.unit), outputs, repeat(None), turns,
                columns.or_none(arrivals), repeat(None) if gaps is None else columns.or_none(gaps), repeat(None),
                salts, models, repeat(self.scope), repeat(0), numbers,
            )
        )  # fmt: skip

    def _check_block_size(self, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            size = record.get("block_size", self.unit)
            if size != self.unit or type(size) is not int:
                raise BadLineError(
                    f"'block_size' is {columns.describe(size)}, but the file is read with blocks of {self.unit} tokens",
                    f"one file has one block size; {SKIP_HINT}",
                )

    def _arrivals(
        self, records: Sequence[dict[str, Any]], gaps: npt.NDArray[np.float64] | None
    ) -> npt.NDArray[np.float64]:
        arrivals = columns.times_s([record.get("timestamp") for record in records], "timestamp", MS_PER_S)
        missing = np.isnan(arrivals)
        if missing.any() and (gaps is None or np.isnan(gaps[missing]).any()):
            raise BadLineError("no 'timestamp'", f"only a turn with a 'delay' can do without one; {SKIP_HINT}")
        return arrivals

    def _turn(self, name: str | None, ids: Ids, prompt_tokens: int) -> int:
        """The call's position within its session."""
        if name is None:
            return 0
        session = self._sessions.get(name)
        if session is None:
            self._sessions[name] = _Session(int(ids[0]) if len(ids) else None, prompt_tokens)
            return 0
        if session.first_id is not None:
            self._followed += 1
            shorter = prompt_tokens < session.prompt_tokens
            self._increments += shorter and not (len(ids) and int(ids[0]) == session.first_id)
        session.calls += 1
        return session.calls - 1

    def finish(self) -> None:
        self.source.tasks = len(self._sessions)
        if self._followed >= _DELTA_TURNS and 10 * self._increments >= 9 * self._followed:
            raise TraceError(
                f"{self._increments} of {self._followed} follow-up turns are shorter than their session's "
                "first prompt and share no block with it: the lines seem to hold only what a turn adds",
                where=self.file.name,
                hint="--format mooncake-delta adds the turns of a session up",
            )
        notice = self._clock.notice()
        if notice:
            self.warn(*notice)
        super().finish()


class _Session:
    __slots__ = ("calls", "first_id", "prompt_tokens")

    def __init__(self, first_id: int | None, prompt_tokens: int) -> None:
        self.first_id = first_id
        self.prompt_tokens = prompt_tokens
        self.calls = 1


def _own_names(record: dict[str, Any]) -> dict[str, Any]:
    """The record under Mooncake's own field names, where another tool's name stands alone."""
    if _OTHER_NAMES.keys().isdisjoint(record):
        return record
    named = {own: record[other] for other, own in _OTHER_NAMES.items() if other in record}
    return {**named, **record}
