"""OpenHands completion logs: one file per request, ``<model>-<epoch>.json``, as written by LOG_COMPLETIONS.

The best text there is: the whole prompt with system and tools. ``timestamp`` is when the response arrived. Files of
one folder are one conversation, read in the order of their times; condenser requests among them are what they are.
Old (V0) logs call the fields ``fncall_messages``, ``fncall_response`` and ``args``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from eactl.errors import TraceError
from eactl.trace import chatforms
from eactl.trace.call import Source
from eactl.trace.chat import ChatRequest
from eactl.trace.chatforms import seconds, usage_of
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.document import DocumentReader, beginning
from eactl.trace.tracefile import Head, TraceFile

_TIME_IN_NAME = re.compile(r"-(\d{9,}(?:\.\d+)?)\.json")


class OpenHandsReader(DocumentReader):
    """Requests of a folder, taken file by file; the reader of its first file leads."""

    name = "openhands"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self._members: list[OpenHandsReader] = [self]
        self._source_of: dict[str, Source] = {}

    @staticmethod
    def sniff(head: Head) -> str | None:
        document = beginning(head)
        if not isinstance(document, dict):
            return "no JSON object"
        if not any(isinstance(document.get(key), list) for key in ("messages", "fncall_messages")):
            return "no 'messages'"
        if _TIME_IN_NAME.search(head.path.name) or not head.whole:
            return None  # what else is in the document comes after the prompt, maybe far behind
        known = any(key in document for key in ("context_window", "cost", "latency_sec", "fncall_messages", "kwargs"))
        return None if known else "no 'kwargs', 'cost' or 'latency_sec'"

    @classmethod
    def group(cls, members: Sequence[OpenHandsReader]) -> None:
        folders: dict[Path, list[OpenHandsReader]] = defaultdict(list)
        for member in members:
            folders[member.file.path.parent].append(member)
        for folder in folders.values():
            folder[0]._members = sorted(folder, key=lambda member: _time_in_name(member.file.path))
            for member in folder[1:]:
                member._members = []

    def counted_in(self, request: ChatRequest) -> Source:
        return self._source_of.get(request.where.rpartition(":")[0], self.source)

    def read(self) -> Iterator[ChatRequest]:
        session = str(self.file.path.parent.resolve().name or self.file.name)
        ended_s: float | None = None
        turn = 0
        for member in self._members:
            self._source_of[member.file.name] = member.source
            request = member.request(session, turn)
            if request is None:
                continue
            if ended_s is not None and request.arrival_s is not None and request.arrival_s >= ended_s:
                request.gap_s = request.arrival_s - ended_s
            if request.arrival_s is not None and request.service_s is not None:
                ended_s = request.arrival_s + request.service_s
            turn += 1
            yield request

    def finish(self) -> None:
        """As for every reader, but for the folder as a whole: a file is one request."""
        bad = [member for member in self._members if member.source.skipped]
        read = sum(member.source.calls for member in self._members)
        if len(bad) > read:
            raise TraceError(f"{len(bad)} of {len(bad) + read} files cannot be read: {bad[0].skipped_because}",
                             where=str(self.file.path.parent), hint="this may be another format")  # fmt: skip
        for member in bad:
            self.warn("skipped-file", f"{member.skipped_because}, left out")
        self.note_tokens()

    def request(self, session: str, turn: int) -> ChatRequest | None:
        """The one request of this file; None when it was skipped as bad."""
        document = self.document()
        if document is None:
            return None
        try:
            return self._request(document, session, turn)
        except (BadLineError, ValueError) as error:
            self.bad(1, error if isinstance(error, BadLineError) else BadLineError(str(error)))
            return None

    def _request(self, document: Any, session: str, turn: int) -> ChatRequest:
        if not isinstance(document, dict):
            raise BadLineError("no JSON object")
        messages = document.get("messages", document.get("fncall_messages"))
        if not isinstance(messages, list) or not messages:
            raise BadLineError("no 'messages'")
        reply = document.get("response") or document.get("fncall_response") or {}
        reply = reply if isinstance(reply, dict) else {}
        settings = document.get("kwargs") or document.get("args") or {}
        settings = settings if isinstance(settings, dict) else {}
        tools = document.get("tools") or settings.get("tools")
        ended = seconds(document.get("timestamp"))
        taken = document.get("latency_sec")
        service = float(taken) if isinstance(taken, (int, float)) and 0 <= taken < 1e6 else None
        return ChatRequest(
            session=session, messages=chatforms.from_openai(messages),
            tools=tools if isinstance(tools, list) else None,
            response=chatforms.first_choice(reply), usage=usage_of(reply.get("usage")), turn=turn,
            model=str(reply.get("model") or settings.get("model") or "") or None,
            arrival_s=ended - (service or 0.0) if ended is not None else None, service_s=service, where=self.at(1),
        )  # fmt: skip


def _time_in_name(path: Path) -> tuple[float, str]:
    match = _TIME_IN_NAME.search(path.name)
    return (float(match.group(1)) if match else 0.0, path.name)
