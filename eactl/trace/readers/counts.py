"""Traces that hold counts only: recognised so that they can be refused with the reason.

Azure's 2023 and 2024 CSV files, BurstGPT, and JSON lines with token counts. Nothing in them says which prompts begin
alike, and what a tier can restore depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from eactl.errors import TraceError
from eactl.trace.call import Call
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import Reader
from eactl.trace.tracefile import Head, TraceFile

_CSV_COLUMNS = {"contexttokens": "Azure", "generatedtokens": "Azure", "request tokens": "BurstGPT"}
_COUNT_FIELDS = {"prompt_tokens", "input_tokens", "input_length", "context_tokens", "num_prefill_tokens"}
_IDENTITY_FIELDS = {"messages", "prompt", "input", "text_input", "text", "prompt_token_ids", "usage", "content"}


class CountsOnlyReader(Reader):
    """Refuses a file of counts."""

    name = "counts-only"
    refuses = True

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        what = _csv_kind(file.head) or "this file"
        raise TraceError(
            f"{what} holds token counts only, no prefix identity: which prompts begin alike decides what a tier can "
            "restore, and counts do not tell",
            where=file.name,
            hint="record block hashes (lmcache server --lookup-hash-log-dir DIR) or the requests themselves",
        )

    @staticmethod
    def sniff(head: Head) -> str | None:
        if _csv_kind(head):
            return None
        record = head.record
        counted = bool(_COUNT_FIELDS & record.keys()) and not _IDENTITY_FIELDS & record.keys()
        return None if counted else "no token counts"

    def batches(self) -> Iterator[list[Call]]:
        self._unused()

    def _unused(self) -> NoReturn:
        raise AssertionError("the constructor refuses")


def _csv_kind(head: Head) -> str | None:
    first = head.data.split(b"\n", 1)[0].decode("utf-8", "replace").lower()
    columns = {column.strip(' \t\r"') for column in first.split(",")}
    for column, publisher in _CSV_COLUMNS.items():
        if column in columns:
            return f"the {publisher} trace"
    return None
