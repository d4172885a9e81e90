"""The Mooncake trace line (FAST'25), and what other tools have added to it.

One JSON object per line: ``timestamp`` in **milliseconds**, ``input_length``, ``output_length``, ``hash_ids``. Ids
are chained (equal id = equal prefix) and the partial last block has an id of its own, so
``len(hash_ids) == ceil(input_length / block)``; that last id is dropped here, for a partial block can never be
shared. A block is 512 tokens unless ``block_size`` says otherwise (AIPerf, kvcache-simulator, SGLang's converter).

Read as well: ``session_id``; ``delay`` or ``delay_ms``, the milliseconds after the session's previous response, which
may stand in for the timestamp of a follow-up turn; ``created_time``, ``input_tokens``, ``output_tokens`` (Dynamo's
names); ``model``, ``salt``. Every line holds the whole prompt. AIPerf's own data sets list only a turn's *new* tokens
("incremental" rows, Dynamo's ``mooncake-delta``): such files are refused where it shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from eactl.trace.call import Call, Ids
from eactl.trace.options import TraceOptions
from eactl.trace.readers import columns
from eactl.trace.readers.base import BadLineError, LineReader
from eactl.trace.tracefile import Head, TraceFile

MS = 1e-3
DEFAULT_BLOCK_TOKENS = 512
_PLAIN_FIELDS = {"timestamp", "input_length", "output_length", "hash_ids"}
_OTHER_NAMES = {"created_time": "timestamp", "input_tokens": "input_length", "output_tokens": "output_length",
                "delay_ms": "delay", "block_tokens": "block_size"}  # fmt: skip


class MooncakeReader(LineReader):
    """Calls of a Mooncake-style file, in file order."""

    name = "mooncake"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        recorded = _plain_names(file.head.record).get("block_size")
        if type(recorded) is not int or recorded < 1:
            recorded = None
        self.unit = self.block_tokens(recorded, DEFAULT_BLOCK_TOKENS)
        self.source = self.make_source("blocks", self.unit, common_clock=False)
        self._positions: dict[str, int] = {}
        self._latest_s = 0.0
        self._backward_steps = 0

    @staticmethod
    def sniff(head: Head) -> str | None:
        record = _plain_names(head.record)
        if not record:
            return "no JSON object on a line"
        missing = [key for key in ("hash_ids", "input_length") if key not in record]
        if missing:
            return f"no {missing[0]!r}"
        return "it has 'chat_id'" if "chat_id" in record else None

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        extended = max(map(len, records)) > 4 or any(not record.keys() <= _PLAIN_FIELDS for record in records)
        if extended:
            records = list(map(_plain_names, records))
            self._check_block_size(records)
        prompt_tokens = columns.token_counts(records, "input_length")
        flat, counts = columns.id_lists(records, "hash_ids")
        full = self._full_blocks(prompt_tokens, np.array(counts))
        outputs = columns.optional_token_counts(records, "output_length")
        sessions: Iterable[str | None] = repeat(None)
        models = salts = sessions
        positions: Iterable[int] = repeat(0)
        gaps = None
        if extended:
            sessions = columns.optional_texts(records, "session_id")
            models, salts = columns.optional_texts(records, "model"), columns.optional_texts(records, "salt")
            gaps = columns.times_s([record.get("delay") for record in records], "delay", MS)
        arrivals = self._arrivals(records, gaps)
        if isinstance(sessions, list):
            positions = self._turns(sessions)

        ends = np.cumsum(counts)
        starts = (ends - counts).tolist()
        ids = [flat[start : start + blocks] for start, blocks in zip(starts, full.tolist(), strict=True)]
        self._watch_clock(arrivals)
        self.count(prompt_tokens, outputs)
        return list(
            map(
                Call, sessions, prompt_tokens.tolist(), ids, repeat(self.unit), outputs, repeat(None), positions,
                columns.or_none(arrivals), repeat(None) if gaps is None else columns.or_none(gaps), repeat(None),
                salts, models, repeat(self.scope), repeat(0), numbers,
            )
        )  # fmt: skip

    def _full_blocks(self, prompt_tokens: Ids, counts: Ids) -> Ids:
        expected = -(-prompt_tokens // self.unit)
        wrong = counts != expected
        if wrong.any():
            at = int(wrong.argmax())
            tokens, listed = int(prompt_tokens[at]), int(counts[at])
            raise BadLineError(
                f"'hash_ids' lists {listed} blocks: {tokens} tokens are {expected[at]} at {self.unit} per block",
                _fitting_sizes(tokens, listed),
            )
        return prompt_tokens // self.unit

    def _check_block_size(self, records: Sequence[dict[str, Any]]) -> None:
        for record in records:
            if record.get("block_size", self.unit) != self.unit:
                raise BadLineError(f"'block_size' is {columns.describe(record['block_size'])}: the file began with "
                                   f"{self.unit}", "split the file by block size")  # fmt: skip

    def _arrivals(self, records: Sequence[dict[str, Any]], gaps: Any) -> Any:
        column = [record.get("timestamp") for record in records]
        arrivals = columns.times_s(column, "timestamp", MS)
        missing = np.isnan(arrivals)
        if missing.any() and (gaps is None or np.isnan(gaps[missing]).any()):
            raise BadLineError("no 'timestamp'", "a follow-up turn may have 'session_id' and 'delay' instead")
        return arrivals

    def _turns(self, sessions: list[str | None]) -> list[int]:
        """Each call's position within its session."""
        positions = []
        for session in sessions:
            at = 0
            if session is not None:
                at = self._positions.get(session, 0)
                self._positions[session] = at + 1
            positions.append(at)
        return positions

    def _watch_clock(self, arrivals: Any) -> None:
        known = arrivals[~np.isnan(arrivals)]
        if len(known):
            steps = np.diff(known, prepend=self._latest_s)
            self._backward_steps += int((steps < 0).sum())
            self._latest_s = float(known[-1])

    def finish(self) -> None:
        self.source.tasks = len(self._positions)
        if self._backward_steps:
            self.warn("time-goes-back", f"timestamps go back {self._backward_steps} times; the file's order was kept",
                      "sort the file by timestamp if its order is not the order of scheduling")  # fmt: skip
        super().finish()


def _plain_names(record: dict[str, Any]) -> dict[str, Any]:
    """The record under Mooncake's own field names."""
    if record.keys() & _OTHER_NAMES.keys():
        return {_OTHER_NAMES.get(key, key) if _OTHER_NAMES.get(key) not in record else key: value
                for key, value in record.items()}  # fmt: skip
    return record


def _fitting_sizes(tokens: int, listed: int) -> str:
    sizes = [size for size in (16, 32, 64, 128, 256, 512, 1024, 2048) if -(-tokens // size) == listed]
    return f"--block-tokens {sizes[0]} would fit" if sizes else "no common block size fits this line"
