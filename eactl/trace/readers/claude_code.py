"""Claude Code transcripts: ``~/.claude/projects/<slug>/<sessionId>.jsonl`` and ``.../subagents/agent-<id>.jsonl``.

A request is a distinct ``message.id``. System prompt and tools are not in the file, so prompts are not exact; their
size is: the provider's usage counts it. Sub-agents (files of their own, or lines with ``isSidechain``) are sessions of
their own. A summarising request (``agent-acompact-*``) continues the session that it summarises. Sessions that were
resumed repeat old lines in a new file: a response is counted once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from eactl.trace.call import Source
from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.options import TraceOptions
from eactl.trace.readers.claude_tree import ConversationTree, Response
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head, TraceFile

SUMMARY_AGENT = "acompact"
COMPACTION, SUMMARY_REQUEST = "compaction", "summary-request"
_ONLY_HERE = ("file-history-snapshot", "queue-operation")


class ClaudeCodeReader(TextReader):
    """Requests of one transcript, in the order in which they were sent."""

    name = "claude-code"
    peeks = True

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        records = first_objects(file.head)
        self.session = next((str(record["sessionId"]) for record in records if record.get("sessionId")), None)
        self.agent = next((str(record["agentId"]) for record in records if record.get("agentId")), None)
        self.first_uuid = next((str(record["uuid"]) for record in records if record.get("uuid")), None)
        self.summaries: list[ClaudeCodeReader] = []  # files of summarising requests in this session
        self.resumed: list[ClaudeCodeReader] = []  # files that repeat this one and go on
        self.led = False  # read by another reader
        self._source_of: dict[str, Source] = {}
        self._copied = 0

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            kind = record.get("type")
            if ("parentUuid" in record and "sessionId" in record) or kind in _ONLY_HERE:
                return None
            if kind == "summary" and "leafUuid" in record:
                return None
        return "no 'parentUuid' and 'sessionId'"

    @classmethod
    def group(cls, members: Sequence[ClaudeCodeReader]) -> None:
        """Read summarising requests with their session, and resumed copies after their original."""
        mains = {member.session: member for member in members if member.agent is None}
        firsts: dict[str, ClaudeCodeReader] = {}
        for member in sorted(members, key=lambda member: member.file.size_bytes):
            main = mains.get(member.session)
            if member.agent is not None and member.agent.startswith(SUMMARY_AGENT) and main is not None:
                main.summaries.append(member)
                member.led = True
            elif member.agent is None and member.first_uuid is not None:
                leader = firsts.setdefault(member.first_uuid, member)
                if leader is not member:
                    leader.resumed.append(member)
                    member.led = True

    def peek_arrival_s(self) -> float | None:
        return None if self.led else super().peek_arrival_s()

    def counted_in(self, request: ChatRequest) -> Source:
        return self._source_of.get(request.where.rpartition(":")[0], self.source)

    def read(self) -> Iterator[ChatRequest]:
        if self.led:
            return
        for member in (self, *self.resumed):
            for part in (member, *member.summaries):
                self._source_of[part.file.name] = part.source
            yield from _Transcript(member).requests()

    def note(self, transcript: _Transcript) -> None:
        """Say what the transcript held besides requests."""
        if transcript.copied:
            first = transcript.copied_from
            text = f"{transcript.copied} responses are copies of earlier ones (a resumed session) and were counted once"
            self.warn("copied-responses", f"{self.file.name}: {text}")
            if not self.source.calls and first is not None:
                self.source.duplicate_of = first
        if self.source.calls:
            self.warn("hidden-prompt", "Claude Code does not log system prompt and tools: they are placed before the "
                      "first message, in the size that the provider's token counts leave",
                      "log the request bodies (claude-trace, a proxy) for exact prompts")  # fmt: skip


class _Transcript:
    """One reading of one file."""

    def __init__(self, reader: ClaudeCodeReader) -> None:
        self._reader = reader
        self._tree = ConversationTree()
        self._responses: dict[str, Response] = {}
        self._latest: dict[str, Response] = {}  # session -> its open response
        self._queue: deque[Response] = deque()  # in the order of their first lines
        self._turns: dict[str, int] = {}
        self._ended_s: dict[str, float] = {}
        self._waiting: list[tuple[ClaudeCodeReader, list[tuple[int, dict[str, Any]]]]] = []
        self._seen = reader.shared.seen
        self.copied = 0
        self.copied_from: str | None = None

    def requests(self) -> Iterator[ChatRequest]:
        reader = self._reader
        self._waiting = [(summary, list(summary.objects())) for summary in reader.summaries]
        for number, record in reader.objects():
            kind = record.get("type")
            if kind == "assistant":
                self._assistant(reader, number, record)
            elif kind == "system" and record.get("subtype") == "compact_boundary":
                self._summaries(record.get("timestamp"))
                self._tree.add_line(record, COMPACTION)
            else:
                self._tree.add_line(record)
            while self._queue and self._queue[0].closed:
                yield from self._finished(self._queue.popleft())
        self._summaries(None)
        for response in self._queue:
            response.closed = True
        while self._queue:
            yield from self._finished(self._queue.popleft())
        for summary in (*reader.summaries, reader):
            summary.note(self)

    def _assistant(self, reader: ClaudeCodeReader, number: int, record: dict[str, Any]) -> None:
        message = record.get("message")
        model = message.get("model") if isinstance(message, dict) else None
        if not isinstance(message, dict) or model == "<synthetic>" or record.get("isApiErrorMessage"):
            self._tree.add_line(record)  # written by the client itself
            return
        key = str(message.get("id") or record.get("requestId") or record.get("uuid"))
        response = self._responses.get(key)
        if response is None:
            session, parent = self._session(reader, record), record.get("parentUuid")
            response = Response(
                key,
                model if isinstance(model, str) else None,
                parent if isinstance(parent, str) else None,
                number,
                session,
            )
            self._responses[key] = response
            self._tree.place(response)
            earlier = self._latest.get(session)
            if earlier is not None:
                earlier.closed = True
            self._latest[session] = response
            response.copied = key in self._seen
            self._seen.add(key)
            self._queue.append(response)
        elif record.get("uuid") in self._tree:
            return  # the same line once more
        response.take(record, message)
        self._tree.add_response_line(record, response)

    def _session(self, reader: ClaudeCodeReader, record: dict[str, Any]) -> str:
        session = str(record.get("sessionId") or reader.session or reader.file.name)
        agent = record.get("agentId") or (reader.agent if record.get("isSidechain") else None)
        if isinstance(agent, str):
            return session if agent.startswith(SUMMARY_AGENT) else f"{session}/agent-{agent}"
        return f"{session}/agent-{self._tree.root_of(record)[:8]}" if record.get("isSidechain") else session

    def _summaries(self, until: Any) -> None:
        """Take the lines of summarising requests up to a time: they hang under lines of this file."""
        left = []
        for reader, lines in self._waiting:
            if isinstance(until, str) and any(str(record.get("timestamp")) > until for _, record in lines):
                left.append((reader, lines))
                continue
            for number, record in lines:
                if record.get("type") == "assistant":
                    self._assistant(reader, number, record)
                    self._of_summary(reader, record)
                else:
                    self._tree.add_line(record)
        self._waiting = left

    def _of_summary(self, reader: ClaudeCodeReader, record: dict[str, Any]) -> None:
        response = (
            self._responses.get(str(record["message"].get("id"))) if isinstance(record.get("message"), dict) else None
        )
        if response is not None and SUMMARY_REQUEST not in response.events:
            response.events.append(SUMMARY_REQUEST)
            response.where = reader.at(response.line)

    def _finished(self, response: Response) -> Iterator[ChatRequest]:
        reader = self._reader
        messages = self._tree.prompt(response)
        arrival, end = response.arrival_s, response.end_s
        arrival = response.first_s if arrival is None else arrival
        if arrival is not None and response.first_s is not None:
            arrival = min(arrival, response.first_s)
        ended = self._ended_s.get(response.session)
        if end is not None:
            self._ended_s[response.session] = end
        if response.copied:
            self.copied += 1
            return
        turn = self._turns.get(response.session, 0)
        self._turns[response.session] = turn + 1
        events = response.events
        if reader.agent is not None and reader.agent.startswith(SUMMARY_AGENT):
            events = [*events, SUMMARY_REQUEST]
        main = response.session.partition("/")[0]
        yield ChatRequest(
            session=response.session, messages=messages, response=response.message, usage=_usage(response),
            turn=turn, model=response.model, arrival_s=arrival,
            gap_s=None if ended is None or arrival is None or arrival < ended else arrival - ended,
            service_s=None if arrival is None or end is None else max(0.0, end - arrival),
            exact=False, hidden_tokens=(1, None), where=response.where or reader.at(response.line), events=events,
            parent=None if main == response.session else main,
        )  # fmt: skip


def _usage(response: Response) -> Usage | None:
    """The provider's counts; the output only where it was complete: lines carry what had been streamed so far."""
    usage = response.usage
    if usage is None:
        return None
    output = response.output_tokens if response.finished else None
    return Usage(usage.prompt_tokens, usage.cached_tokens, usage.written_tokens, output)
