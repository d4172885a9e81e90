"""Writing the native format, ``eactl.trace/1`` (its reader is eactl.trace.readers.native).

Block ids are whole numbers below 2^63: tools that keep numbers as floating point (JavaScript, old versions of jq) lose
digits of those beyond 2^53.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import orjson

from eactl.trace.call import NO_IDS, Call, Ids, Notice, PromptKind
from eactl.trace.token_blocks import common_prefix

SCHEMA = "eactl.trace/1"
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


class NativeWriter:
    """Writes a header, then one line per call; calls come in scheduled order and have a task.

    A token trace stores what each prompt adds to the task's previous prompt and output. ``keeps_known`` True
    takes the calls' word for how much they keep; else it is found by comparing, for which the latest prompt of
    every task is held.
    """

    def __init__(
        self,
        stream: IO[bytes],
        kind: PromptKind,
        *,
        block_tokens: int | None = None,
        tokenizer: str | None = None,
        source: str = "",
        warnings: Sequence[Notice] = (),
        keeps_known: bool = False,
        id_space: str | None = None,
    ) -> None:
        self._stream = stream
        self._kind = kind
        self._keeps_known = keeps_known
        self._history: dict[str | None, Ids] = {}
        header: dict[str, Any] = {
            "schema": SCHEMA,
            "prompt": kind,
            "block_tokens": block_tokens if kind == "blocks" else None,
            "tokenizer": tokenizer,
            "source": source,
            "warnings": [notice.as_dict() for notice in warnings],
        }
        if id_space is not None:
            header["id_space"] = id_space
        stream.write(orjson.dumps(header, option=_OPTIONS))

    def write(self, call: Call) -> None:
        """Write one call."""
        record = {
            "task": call.task,
            "call": call.call,
            "arrival_s": call.arrival_s,
            "gap_s": call.gap_s,
            "prompt": self._prompt(call),
            "output": self._output(call),
            "service_s": call.service_s,
            "salt": call.salt,
            "model": call.model,
        }
        self._stream.write(orjson.dumps(record, option=_OPTIONS))

    def _prompt(self, call: Call) -> dict[str, Any]:
        if self._kind == "blocks":
            return {"blocks": call.ids, "tokens": call.prompt_tokens}
        keep = call.keep
        if not self._keeps_known:
            keep = common_prefix(self._history.get(call.task, NO_IDS), call.ids)
            known = call.ids if call.output_ids is None else np.concatenate((call.ids, call.output_ids))
            self._history[call.task] = known
        return {"keep": keep, "append": call.ids[keep:]}

    def _output(self, call: Call) -> dict[str, Any] | None:
        if self._kind == "tokens" and call.output_ids is not None:
            return {"append": call.output_ids}
        return None if call.output_tokens is None else {"tokens": call.output_tokens}
