"""Sessions of the pi coding agent: a header line, then messages with the provider's usage.

Requests are assistant messages with token counts; aborted ones have zeros and count as none. The system prompt and
tools are not in the file. A branched session copies lines that are older than its header.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import Message, seconds, token_count, tool_call
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head


class PiReader(TextReader):
    """Requests of one session, in file order."""

    name = "pi"
    peeks = True

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            if record.get("type") == "session" and "cwd" in record and "id" in record:
                return None
            message = record.get("message")
            if record.get("type") != "message" or not isinstance(message, dict) or "parentUuid" in record:
                continue
            if message.get("role") in ("toolResult", "bashExecution"):
                return None
        return "no 'session' line"

    def read(self) -> Iterator[ChatRequest]:
        talk = Conversation(self.file.name, hidden=(1, None))
        entries: list[Message | None] = []
        keys: list[Any] = []
        for number, record in self.objects():
            kind = record.get("type")
            keys.append(record.get("id"))
            entries.append(None)
            if kind == "session" and not talk.turns:
                talk.session = str(record.get("id") or self.file.name)
                talk.model = _model(record, "modelId")
            elif kind == "model_change":
                talk.model = _model(record, "modelId")
            elif kind == "compaction":
                kept = _first_kept(record, keys)
                summary = {"role": "user", "content": str(record.get("summary") or "")}
                talk.replace([summary, *(entry for entry in entries[kept:] if entry)], "compaction")
            elif kind == "message" and isinstance(record.get("message"), dict):
                message = record["message"]
                said = _message(message)
                usage = _usage(message.get("usage"))
                if message.get("role") == "assistant" and usage is not None:
                    talk.model = _model(message, "model") or talk.model
                    yield talk.request(
                        self.at(number), response=said, usage=usage, started_s=seconds(message.get("timestamp")),
                        ended_s=seconds(record.get("timestamp")),
                    )  # fmt: skip
                if said is not None:
                    entries[-1] = said
                    talk.say(said)


def _first_kept(record: dict[str, Any], keys: list[Any]) -> int:
    """Where the entries that survive a compaction begin: entries are counted, not messages."""
    at = record.get("firstKeptEntryIndex")
    if type(at) is int and at >= 0:
        return at
    named = record.get("firstKeptEntryId")
    return keys.index(named) if named is not None and named in keys else len(keys)


def _model(record: dict[str, Any], key: str) -> str | None:
    model, provider = record.get(key), record.get("provider")
    return None if not isinstance(model, str) else f"{provider}/{model}" if isinstance(provider, str) else model


def _usage(record: Any) -> Usage | None:
    if not isinstance(record, dict):
        return None
    plain, cached, written = (token_count(record.get(name)) for name in ("input", "cacheRead", "cacheWrite"))
    prompt = (plain or 0) + (cached or 0) + (written or 0)
    return Usage(prompt, cached, written, token_count(record.get("output"))) if prompt else None


def _message(message: dict[str, Any]) -> Message | None:
    role, content = message.get("role"), message.get("content")
    if role == "bashExecution":
        return {"role": "user", "content": f"Ran `{message.get('command')}`\n{message.get('output') or ''}"}
    parts = content if isinstance(content, list) else [{"type": "text", "text": str(content or "")}]
    shown = [part for part in parts if isinstance(part, dict) and part.get("type") in ("text", "image")]
    texts: Any = shown if any(part.get("type") == "image" for part in shown) else _joined(shown, "text")
    if role == "toolResult":
        return {"role": "tool", "tool_call_id": message.get("toolCallId"), "content": texts}
    if role != "assistant":
        return {"role": "user", "content": texts}
    said: Message = {"role": "assistant", "content": texts}
    thoughts = _joined(parts, "thinking")
    if thoughts:
        said["reasoning_content"] = thoughts
    calls = [
        tool_call(part.get("id"), part.get("name"), part.get("arguments"))
        for part in parts
        if isinstance(part, dict) and part.get("type") == "toolCall"
    ]
    if calls:
        said["tool_calls"] = calls
    return said if texts or calls or thoughts else None


def _joined(parts: list[Any], key: str) -> str:
    return "\n".join(part[key] for part in parts if isinstance(part, dict) and isinstance(part.get(key), str))
