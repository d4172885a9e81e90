"""The Qwen-Bailian usage traces (Alibaba): JSONL, times in **seconds**, blocks of 16 tokens.

``hash_ids`` are hashes of single blocks, so two prompts share a prefix where their lists agree from the start; an
equal id further back means nothing. Every request has its own ``chat_id`` and names the one it continues in
``parent_chat_id`` (-1: none), which may lie outside the recorded window. A task is a conversation: the root of the
chain of parents. Whether the partial last block is listed is not said by the publishers, so both are read, and a
partial block is dropped. Lines without ``hash_ids`` (they exist in excerpts) say nothing about prefixes and are bad.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from eactl.trace.call import Call
from eactl.trace.options import TraceOptions
from eactl.trace.readers import blocks, columns
from eactl.trace.readers.base import SKIP_HINT, BadLineError
from eactl.trace.readers.clock import ClockWatch
from eactl.trace.readers.lines import LineReader
from eactl.trace.tracefile import Head, TraceFile

DEFAULT_BLOCK_TOKENS = 16
NO_PARENT = -1


class BailianReader(LineReader):
    """Calls of a Bailian file, in file order."""

    name = "bailian"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.unit = self.block_tokens(None, DEFAULT_BLOCK_TOKENS)
        self.source = self.make_source("blocks", self.unit, common_clock=False, chained=False)
        self._root_of: dict[int, int] = {}
        self._calls_of: dict[int, int] = {}  # root -> calls so far
        self._clock = ClockWatch()

    @staticmethod
    def sniff(head: Head) -> str | None:
        if "chat_id" not in head.record:
            return "no 'chat_id'"
        return None if {"hash_ids", "parent_chat_id"} & head.record.keys() else "no 'hash_ids'"

    def rows(self, records: Sequence[dict[str, Any]], numbers: Sequence[int]) -> list[Call]:
        chats = columns.whole_numbers(columns.required(records, "chat_id"), "chat_id", least=0)
        named = [record.get("parent_chat_id", NO_PARENT) for record in records]
        parents = columns.whole_numbers(named, "parent_chat_id", least=NO_PARENT)
        if any("hash_ids" not in record for record in records):
            raise BadLineError(
                "no 'hash_ids': the line has lengths only, and a hit depends on which prefix comes back", SKIP_HINT
            )
        prompt_tokens = columns.token_counts(records, "input_length")
        flat, listed = columns.id_lists(records, "hash_ids")
        full = blocks.full_blocks(prompt_tokens, listed, self.unit, "hash_ids", partial_listed=None)
        outputs = columns.optional_token_counts(records, "output_length")
        arrivals = columns.times_s(columns.required(records, "timestamp"), "timestamp", null=False)
        self._refuse_repeats(chats)

        tasks, positions = [], []
        for chat, parent in zip(chats, parents, strict=True):
            root = chat if parent == NO_PARENT else self._root_of.get(parent, parent)
            self._root_of[chat] = root
            position = self._calls_of.get(root, 0)
            self._calls_of[root] = position + 1
            tasks.append(str(root))
            positions.append(position)
        self._clock.watch(arrivals)
        self.count(prompt_tokens, outputs)
        return list(
            map(
                Call, tasks, prompt_tokens.tolist(), blocks.cut(flat, listed, full), repeat(self.unit), outputs,
                repeat(None), positions, arrivals.tolist(), repeat(None), repeat(None), repeat(None), repeat(None),
                repeat(self.scope), repeat(0), numbers,
            )
        )  # fmt: skip

    def _refuse_repeats(self, chats: list[int]) -> None:
        if len(set(chats)) < len(chats) or not self._root_of.keys().isdisjoint(chats):
            again = next((chat for chat in chats if chat in self._root_of), chats[0])
            raise BadLineError(f"'chat_id' {again} is there twice")

    def finish(self) -> None:
        self.source.tasks = len(self._calls_of)
        notice = self._clock.notice()
        if notice:
            self.warn(*notice)
        super().finish()
