"""The native format, ``eactl.trace/1``: a header line, then one line per call in scheduled order.

Token traces give each prompt as ``{"keep": k, "append": [ids]}``: the first k tokens of the task's previous prompt
followed by its output, then new ones. Block traces give ``{"blocks": [chained ids], "tokens": n}``, full blocks only.
Block ids mean something in their file only, unless its header names an ``id_space``: then they mean the same in every
file that names the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from eactl.errors import TraceError
from eactl.trace.call import Call, Ids, Notice
from eactl.trace.options import TraceOptions
from eactl.trace.readers import blocks, columns
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.columns import Records
from eactl.trace.readers.lines import LineReader
from eactl.trace.token_history import TokenHistory
from eactl.trace.tracefile import Head, TraceFile

SCHEMA = "eactl.trace/1"


class NativeReader(LineReader):
    """Calls of a native trace, in file order."""

    name = "native"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        header = file.head.records[0] if file.head.records else None
        if not isinstance(header, dict) or "schema" not in header:
            raise TraceError("no header line", where=self.at(1), hint=f'the first line must hold "schema":"{SCHEMA}"')
        if header["schema"] != SCHEMA:
            raise TraceError(
                f"schema {columns.describe(header['schema'])} is not {SCHEMA}", where=self.at(1),
                hint="a newer eactl may read it",
            )  # fmt: skip
        kind, block_tokens = header.get("prompt"), header.get("block_tokens")
        if kind not in ("tokens", "blocks"):
            raise TraceError(f"'prompt' is {columns.describe(kind)}", where=self.at(1), hint="tokens or blocks")
        if kind == "blocks" and (type(block_tokens) is not int or block_tokens < 1):
            raise TraceError(
                f"'block_tokens' is {columns.describe(block_tokens)}", where=self.at(1),
                hint="a block trace names its tokens per block",
            )  # fmt: skip
        self.unit = self.block_tokens(block_tokens) if kind == "blocks" else 1
        first = next((record for record in file.head.records[1:] if isinstance(record, dict)), {})
        tokenizer = header.get("tokenizer")
        self.source = self.make_source(
            kind, self.unit, has_times=first.get("arrival_s") is not None, common_clock=False,
            tokenizer=tokenizer if isinstance(tokenizer, str) else None,
        )  # fmt: skip
        self.source.warnings += _recorded_notices(header.get("warnings"))
        self._positions: dict[str, int] = {}
        self._histories: dict[str, TokenHistory] = {}
        self._body_seen = False
        if kind == "tokens":
            self.one_by_one = True
            self.local_ids = False  # token ids are content: the same in every file of one tokenizer
            self.scope = self.source.tokenizer or ""
        elif isinstance(header.get("id_space"), str):
            self.local_ids = False
            self.scope = self.source.id_space = header["id_space"]

    @staticmethod
    def sniff(head: Head) -> str | None:
        schema = head.record.get("schema")
        if isinstance(schema, str) and schema.startswith("eactl.trace/"):
            return None
        return "no eactl.trace header"

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        if not self._body_seen:
            if "schema" in records[0]:
                records, numbers = records[1:], numbers[1:]
            if not records:
                self._body_seen = True
                return []
        calls = self._token_rows(records, numbers) if self.one_by_one else self._block_rows(records, numbers)
        self._body_seen = True
        return calls

    def _block_rows(self, records: Records, numbers: Sequence[int]) -> list[Call]:
        common = _Common(records)
        prompts = columns.objects(records, "prompt")
        prompt_tokens = columns.token_counts(prompts, "tokens")
        flat, listed = columns.id_lists(prompts, "blocks")
        full = blocks.full_blocks(prompt_tokens, listed, self.unit, "blocks", partial_listed=False)
        outputs = _output_counts(records)
        self._take_positions(common)
        ids = blocks.cut(flat, listed, full)
        self.count(prompt_tokens, outputs)
        tokens = prompt_tokens.tolist()
        return common.calls(tokens, ids, self.unit, outputs, repeat(None), self.scope, repeat(0), numbers)

    def _token_rows(self, records: Records, numbers: Sequence[int]) -> list[Call]:
        common = _Common(records)
        (prompt,) = columns.objects(records, "prompt")
        (task,), (call,) = common.tasks, common.positions
        keep = int(columns.token_counts([{"keep": 0, **prompt}], "keep", at_least=0)[0])
        added, _ = columns.id_lists([prompt], "append")
        output_tokens, output_ids = _output(records[0].get("output"))
        history = self._histories.get(task)
        if keep and (history is None or history.call != call - 1):
            raise BadLineError(
                f"call {call} of task {task!r} keeps {keep} tokens of call {call - 1}, which is not in the file"
            )
        if keep + len(added) < 1:
            raise BadLineError("the prompt is empty")
        if history is not None and keep > history.tokens:
            raise BadLineError(
                f"'keep' is {keep}: the task's previous prompt and output hold {history.tokens} known tokens"
            )
        self._take_positions(common)
        if history is None:
            history = self._histories[task] = TokenHistory()
        ids = history.next_prompt(keep, added, output_ids, call)
        self.count(np.array([len(ids)]), [output_tokens])
        return common.calls([len(ids)], [ids], 1, [output_tokens], [output_ids], self.scope, [keep], numbers)

    def _take_positions(self, common: _Common) -> None:
        """Remember each task's latest call; the same or an earlier one again is refused, nothing remembered."""
        latest: dict[str, int] = {}
        for task, call in zip(common.tasks, common.positions, strict=True):
            before = latest.get(task, self._positions.get(task, -1))
            if call == before:
                raise BadLineError(f"call {call} of task {task!r} is there twice")
            if call < before:
                raise BadLineError(f"call {call} of task {task!r} comes after call {before}")
            latest[task] = call
        self._positions.update(latest)

    def finish(self) -> None:
        self.source.tasks = len(self._positions)
        super().finish()


class _Common:
    """The fields that both kinds of prompt have in common, as columns."""

    def __init__(self, records: Records) -> None:
        tasks = columns.required(records, "task")
        if not set(map(type, tasks)) <= {str}:
            wrong = next(task for task in tasks if type(task) is not str)
            raise BadLineError(f"'task' is {columns.describe(wrong)}, not a name")
        self.tasks: list[str] = tasks
        self.positions: list[int] = columns.token_counts(records, "call", at_least=0).tolist()
        self._arrivals = columns.optional_seconds(records, "arrival_s")
        self._gaps = columns.optional_seconds(records, "gap_s")
        self._services = columns.optional_seconds(records, "service_s")
        self._salts = columns.optional_texts(records, "salt")
        self._models = columns.optional_texts(records, "model")

    def calls(
        self, prompt_tokens: list[int], ids: list[Ids], unit: int, outputs: list[int | None],
        output_ids: Iterable[Ids | None], scope: str, keeps: Iterable[int], numbers: Sequence[int],
    ) -> list[Call]:  # fmt: skip
        """The batch as calls."""
        return list(
            map(
                Call, self.tasks, prompt_tokens, ids, repeat(unit), outputs, output_ids, self.positions,
                self._arrivals, self._gaps, self._services, self._salts, self._models, repeat(scope), keeps, numbers,
            )
        )  # fmt: skip


def _output_counts(records: Records) -> list[int | None]:
    """How many output tokens each record has, None where nothing is known."""
    outputs = [record.get("output") for record in records]
    known = [output for output in outputs if output is not None]
    if not set(map(type, known)) <= {dict} or any("append" in output for output in known):
        return [_output(output)[0] for output in outputs]
    columns.token_counts(known, "tokens", at_least=0)
    return [None if output is None else output["tokens"] for output in outputs]


def _output(value: Any) -> tuple[int | None, Ids | None]:
    """How many output tokens, and their ids where known."""
    if value is None:
        return None, None
    if type(value) is not dict:
        raise BadLineError(f"'output' is {columns.describe(value)}, not an object or null")
    if "append" in value:
        ids, (count,) = columns.id_lists([value], "append")
        return count, ids
    return int(columns.token_counts([value], "tokens", at_least=0)[0]), None


def _recorded_notices(warnings: Any) -> list[Notice]:
    """The header's warnings; whatever has another shape is left out."""
    return [
        Notice(str(warning.get("code", "recorded")), warning["text"], str(warning.get("hint", "")))
        for warning in (warnings if isinstance(warnings, list) else [])
        if isinstance(warning, dict) and isinstance(warning.get("text"), str)
    ]
