"""Sessions of the Copilot CLI (``events.jsonl``): messages and tool results, without prompt token counts.

A request is a distinct ``apiCallId`` of ``assistant.message`` events (a ``messageId`` where there is none). Tool
definitions are not in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import Message, seconds, token_count, tool_call
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head


class CopilotReader(TextReader):
    """Requests of one session, in file order."""

    name = "copilot"
    peeks = True

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            kind, data = str(record.get("type")), record.get("data")
            if isinstance(data, dict) and (kind in ("session.start", "assistant.message", "user.message")):
                return None
        return "no 'session.start'"

    def read(self) -> Iterator[ChatRequest]:
        talk = Conversation(self.file.path.stem, hidden=(1, None))
        seen: set[str] = set()
        started_s: float | None = None
        for number, record in self.objects():
            kind, data = record.get("type"), record.get("data")
            if not isinstance(data, dict):
                continue
            at_s = seconds(record.get("timestamp"))
            if kind == "session.start":
                talk.session = str(data.get("sessionId") or talk.session)
                talk.model = str(data.get("selectedModel") or "") or None
            elif kind == "session.model_change":
                talk.model = str(data.get("newModel") or "") or talk.model
            elif kind == "assistant.message":
                said = _assistant(data)
                talk.model = str(data.get("model") or "") or talk.model
                call = str(data.get("apiCallId") or data.get("messageId") or record.get("id"))
                if call not in seen:
                    seen.add(call)
                    output = token_count(data.get("outputTokens"))
                    yield talk.request(
                        self.at(number), response=said, started_s=started_s, ended_s=at_s,
                        usage=None if output is None else Usage(output_tokens=output),
                    )  # fmt: skip
                talk.say(said)
            elif kind in ("system.message", "user.message"):
                text = data.get("transformedContent") or data.get("content")
                talk.say({"role": kind.partition(".")[0], "content": text})
                started_s = at_s
            elif kind == "tool.execution_complete":
                result: Any = data.get("result")
                text = result.get("content") if isinstance(result, dict) else result
                talk.say({"role": "tool", "tool_call_id": data.get("toolCallId"), "content": text or ""})
                started_s = at_s


def _assistant(data: dict[str, Any]) -> Message:
    said: Message = {"role": "assistant", "content": data.get("content") or ""}
    if isinstance(data.get("reasoningText"), str):
        said["reasoning_content"] = data["reasoningText"]
    requests = data.get("toolRequests")
    calls = [
        tool_call(request.get("toolCallId"), request.get("name"), request.get("arguments"))
        for request in (requests if isinstance(requests, list) else [])
        if isinstance(request, dict)
    ]
    if calls:
        said["tool_calls"] = calls
    return said
