"""Mooncake lines that hold only what a turn adds: Dynamo's ``mooncake-delta`` and AIPerf's session data sets.

A session's first line is a whole prompt. Each later line gives the tokens that are new after the previous prompt and
its output, so the prompt of turn k is everything before it plus ``input_length``. The first prompt's blocks keep their
ids (sessions may share them); what follows belongs to the session alone. The ids of added blocks are not used: they
start at offsets that differ from session to session, where no cache could share them. Never chosen by detection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np

from eactl.trace.call import Call, Ids
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.mooncake import MooncakeReader

_OWN_IDS_FROM = 1 << 62


class MooncakeDeltaReader(MooncakeReader):
    """Calls with whole prompts, made of a session's increments."""

    name = "mooncake-delta"
    on_request = True
    one_by_one = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.source.large_ids = True
        self._grown: dict[str, _Grown] = {}
        self._next_id = count(_OWN_IDS_FROM)

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        session = self._grown.get(str(records[0].get("session_id")))
        if session is not None and session.output_tokens is None:
            raise BadLineError("the session's previous line has no 'output_length', so this prompt is unknown")
        before = self.source.prompt_tokens
        (call,) = super().rows(records, numbers)
        if call.task is None:
            return [call]
        if session is not None and session.output_tokens is not None:
            call.prompt_tokens += session.prompt_tokens + session.output_tokens
            more = call.prompt_tokens // self.unit - len(session.ids)
            own = np.array([next(self._next_id) for _ in range(more)], dtype=np.int64)
            call.ids = np.concatenate((session.ids, own))
        self.source.prompt_tokens = before + call.prompt_tokens
        self._grown[call.task] = _Grown(call.ids, call.prompt_tokens, call.output_tokens)
        return [call]

    def finish(self) -> None:
        self._followed = 0  # increments are what this reader expects
        super().finish()


class _Grown:
    __slots__ = ("ids", "output_tokens", "prompt_tokens")

    def __init__(self, ids: Ids, prompt_tokens: int, output_tokens: int | None) -> None:
        self.ids = ids
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
