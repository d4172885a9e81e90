"""Sessions of Kimi Code (``wire.jsonl``): events of a context that grows, and a line per request to the model.

A request is an ``llm.request`` line; its usage comes with the ``step.end`` after it, or for a compaction with the
``usage.record``. The system prompt is in the file, tools are where their snapshot is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import Message, seconds, token_count, tool_call
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head


class KimiReader(TextReader):
    """Requests of one session, in file order."""

    name = "kimi"
    peeks = True

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            kind = str(record.get("type"))
            if kind.startswith(("context.append_", "llm.")) or (kind == "metadata" and "protocol_version" in record):
                return None
        return "no 'context.append_message'"

    def read(self) -> Iterator[ChatRequest]:
        path = self.file.path
        talk = Conversation(f"{path.parent.name}/{path.stem}" if path.parent.name else path.stem, hidden=(0, None))
        pending: ChatRequest | None = None
        said: Message | None = None  # what the model answers in the open step
        system: Message | None = None
        for number, record in self.objects():
            kind = record.get("type")
            event = record.get("event") if kind == "context.append_loop_event" else None
            if kind == "config.update" and isinstance(record.get("systemPrompt"), str):
                system = {"role": "system", "content": record["systemPrompt"]}
                talk.messages = [system, *(message for message in talk.messages if message["role"] != "system")]
            elif kind == "llm.tools_snapshot":
                talk.tools = _tools(record.get("tools"))
            elif kind == "context.append_message" and isinstance(record.get("message"), dict):
                message = record["message"]
                talk.say({"role": message.get("role") or "user", "content": message.get("content")})
            elif kind == "context.apply_compaction":
                summary = record.get("contextSummary") or record.get("summary")
                kept = [system] if system else []
                talk.replace([*kept, {"role": "user", "content": str(summary or "")}], "compaction")
            elif kind == "llm.request":
                if pending is not None:
                    yield pending
                talk.model = str(record.get("model") or "") or talk.model
                pending, said = talk.request(self.at(number), started_s=seconds(record.get("time"))), None
                if record.get("kind") == "compaction":
                    pending.events.append("summary-request")
            elif kind == "usage.record" and pending is not None:  # a step's own comes after its end
                yield _finished(pending, record, None, seconds(record.get("time")))
                pending = None
            elif isinstance(event, dict):
                if event.get("type") == "step.end" and pending is not None:
                    yield _finished(pending, event, said, seconds(record.get("time")))
                    pending = None
                elif event.get("type") == "step.begin":
                    said = None
                else:
                    said = _add(talk, event, said)
        if pending is not None:
            yield pending


def _finished(request: ChatRequest, event: dict[str, Any], said: Message | None, ended_s: float | None) -> ChatRequest:
    request.usage = _usage(event.get("usage"))
    request.response = said
    if request.arrival_s is not None and ended_s is not None and ended_s >= request.arrival_s:
        request.service_s = ended_s - request.arrival_s
    return request


def _add(talk: Conversation, event: dict[str, Any], said: Message | None) -> Message | None:
    """Take one event of a step; returns the step's answer so far.

    The answer becomes a message with its first part: results of parallel calls may stand after it when it grows.
    """
    kind = event.get("type")
    if kind == "content.part" and isinstance(event.get("part"), dict):
        part = event["part"]
        key = "reasoning_content" if part.get("type") == "think" else "content"
        text = str((said or {}).get(key) or "") + str(part.get("think") or part.get("text") or "")
        return _grown(talk, said, key, text)
    if kind == "tool.call":
        call = tool_call(event.get("toolCallId"), event.get("name"), event.get("args"))
        return _grown(talk, said, "tool_calls", [*(said or {}).get("tool_calls", []), call])
    if kind == "tool.result":
        result = event.get("result")
        output = result.get("output") if isinstance(result, dict) else result
        talk.say({"role": "tool", "tool_call_id": event.get("toolCallId"), "content": output})
    return said


def _grown(talk: Conversation, said: Message | None, key: str, value: Any) -> Message:
    """The answer with ``value`` in it, in the place that it has; a new message, as requests hold the old one."""
    if said is None:
        said = {"role": "assistant", "content": ""}
        talk.say(said)
    at = next(at for at in range(len(talk.messages) - 1, -1, -1) if talk.messages[at] is said)
    talk.messages[at] = {**said, key: value}
    return talk.messages[at]


def _tools(tools: Any) -> list[Message] | None:
    if not isinstance(tools, list):
        return None
    return [{"type": "function", "function": tool} for tool in tools if isinstance(tool, dict)]


def _usage(record: Any) -> Usage | None:
    if not isinstance(record, dict):
        return None
    names = ("inputOther", "inputCacheRead", "inputCacheCreation")
    plain, cached, written = (token_count(record.get(name)) for name in names)
    prompt = (plain or 0) + (cached or 0) + (written or 0)
    return Usage(prompt, cached, written, token_count(record.get("output"))) if prompt else None
