"""Sessions of Kimi Code (``wire.jsonl``): events of a context that grows, and a line per request to the model.

A request is an ``llm.request`` line; its usage comes with the ``step.end`` after it. The system prompt is in the
file, tools are where their snapshot is.
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
                pending = talk.request(self.at(number), started_s=seconds(record.get("time")))
            elif isinstance(event, dict):
                if event.get("type") == "step.end" and pending is not None:
                    yield _finished(pending, event, talk, seconds(record.get("time")))
                    pending = None
                else:
                    _add(talk, event)
        if pending is not None:
            yield pending


def _finished(request: ChatRequest, event: dict[str, Any], talk: Conversation, ended_s: float | None) -> ChatRequest:
    request.usage = _usage(event.get("usage"))
    last = talk.messages[-1] if talk.messages else {}
    request.response = last if last.get("role") == "assistant" else None
    if request.arrival_s is not None and ended_s is not None and ended_s >= request.arrival_s:
        request.service_s = ended_s - request.arrival_s
    return request


def _add(talk: Conversation, event: dict[str, Any]) -> None:
    kind = event.get("type")
    if kind == "step.begin":
        talk.say({"role": "assistant", "content": ""})
    elif kind == "content.part" and isinstance(event.get("part"), dict):
        part, said = event["part"], _assistant(talk)
        key = "reasoning_content" if part.get("type") == "think" else "content"
        _change(talk, said, key, str(said.get(key) or "") + str(part.get("think") or part.get("text") or ""))
    elif kind == "tool.call":
        said = _assistant(talk)
        call = tool_call(event.get("toolCallId"), event.get("name"), event.get("args"))
        _change(talk, said, "tool_calls", [*said.get("tool_calls", []), call])
    elif kind == "tool.result":
        result = event.get("result")
        output = result.get("output") if isinstance(result, dict) else result
        talk.say({"role": "tool", "tool_call_id": event.get("toolCallId"), "content": output})


def _assistant(talk: Conversation) -> Message:
    """The latest assistant message: results of parallel calls may already stand after it."""
    for message in reversed(talk.messages):
        if message["role"] == "assistant":
            return message
    talk.say({"role": "assistant", "content": ""})
    return talk.messages[-1]


def _change(talk: Conversation, said: Message, key: str, value: Any) -> None:
    at = next(at for at in range(len(talk.messages) - 1, -1, -1) if talk.messages[at] is said)
    talk.messages[at] = {**said, key: value}


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
