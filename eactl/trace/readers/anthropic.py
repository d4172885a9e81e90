"""Bodies of Anthropic's messages API, one JSON object per line: what proxies and claude-trace write.

Read are lines that are a body, claude-trace pairs (``{"request":{"body"},"response":{...}}``) and rows of
claude-code-proxy (``{"body","response"}``). This is the best prompt that a Claude Code user can log: whole, with tools
and system. Requests to other addresses (counting tokens, telemetry) are passed over. Headers are never looked at.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from eactl.trace import chatforms
from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.chatjsonl import ChatJsonlReader, request_body
from eactl.trace.readers.textbase import first_objects
from eactl.trace.tracefile import Head

_SESSION_IN_USER = re.compile(r"session_([0-9a-fA-F-]{8,})")


class AnthropicReader(ChatJsonlReader):
    """Requests of Anthropic's API, in the order in which they were sent."""

    name = "anthropic"

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            if _is_anthropic(record, request_body(record)):
                return None
        return "no body of Anthropic's messages API"

    def take(self, record: dict[str, Any]) -> ChatRequest | None:
        body = request_body(record)
        if not isinstance(body.get("messages"), list):
            if "request" in record or "url" in record or "endpoint" in record:
                return None  # another address
            raise BadLineError("no 'messages'")
        try:
            messages = chatforms.from_anthropic(body["messages"], body.get("system"))
        except ValueError as error:
            raise BadLineError(str(error)) from None
        reply, usage = _reply(record.get("response"))
        session = _session(body)
        request = self.describe(record, body, messages, session)
        if _address(record).endswith("count_tokens"):
            return None
        request.tools = chatforms.from_anthropic_tools(body.get("tools"))
        request.response, request.usage = reply, usage or request.usage
        request.arrival_s, request.service_s = _times(record)
        return request


def _is_anthropic(record: dict[str, Any], body: dict[str, Any]) -> bool:
    if not isinstance(body.get("messages"), list):
        return False
    if "/v1/messages" in _address(record):
        return True
    tools = body.get("tools")
    typed = isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools)
    return typed or ("system" in body and isinstance(body["system"], (str, list)))


def _address(record: dict[str, Any]) -> str:
    request = record.get("request")
    place = request if isinstance(request, dict) else record
    return str(place.get("url") or place.get("endpoint") or "").partition("?")[0]


def _session(body: dict[str, Any]) -> str | None:
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if not isinstance(user, str):
        return None
    found = _SESSION_IN_USER.search(user)
    if found is None and '"session_id"' in user:
        try:
            named = orjson.loads(user).get("session_id")
        except (orjson.JSONDecodeError, AttributeError):
            named = None
        return named if isinstance(named, str) else None
    return found.group(1) if found else None


def _times(record: dict[str, Any]) -> tuple[float | None, float | None]:
    request, reply = record.get("request"), record.get("response")
    started = chatforms.seconds((request if isinstance(request, dict) else record).get("timestamp"))
    if not isinstance(reply, dict) or started is None:
        return started, None
    taken = reply.get("responseTime")
    if isinstance(taken, (int, float)) and taken >= 0:
        return started, taken / 1e3
    ended = chatforms.seconds(reply.get("timestamp") or reply.get("completedAt"))
    return started, ended - started if ended is not None and ended >= started else None


def _reply(reply: Any) -> tuple[dict[str, Any] | None, Usage | None]:
    """The response as a message and its usage, from a whole body or the events of a stream."""
    if not isinstance(reply, dict):
        return None, None
    body: Any = reply.get("body") or reply.get("bodyText") or (reply if "content" in reply else None)
    if isinstance(body, str):
        try:
            body = orjson.loads(body)
        except orjson.JSONDecodeError:
            return _streamed(_server_events(body))
    if isinstance(body, dict) and isinstance(body.get("content"), list):
        return chatforms.assistant_message(body["content"]), chatforms.usage_of(body.get("usage"))
    if isinstance(reply.get("events"), list):
        return _streamed([event.get("data", event) if isinstance(event, dict) else None for event in reply["events"]])
    raw = reply.get("body_raw")
    if isinstance(raw, str):
        return _streamed(_server_events(raw))
    chunks = reply.get("streamingChunks")
    if isinstance(chunks, list):
        return _streamed(_server_events("\n".join(map(str, chunks))))
    return None, None


def _server_events(text: str) -> list[Any]:
    events: list[Any] = []
    for line in text.splitlines():
        if line.startswith("data:"):
            try:
                events.append(orjson.loads(line[5:]))
            except orjson.JSONDecodeError:
                continue
    return events


def _streamed(events: list[Any]) -> tuple[dict[str, Any] | None, Usage | None]:
    blocks: dict[int, dict[str, Any]] = {}
    partial: dict[int, list[str]] = {}
    counts: dict[str, Any] = {}
    for event in events:
        if not isinstance(event, dict):
            continue
        kind, at = event.get("type"), event.get("index")
        message = event.get("message")
        if kind == "message_start" and isinstance(message, dict):
            counts.update(message.get("usage") or {})
        elif kind == "message_delta":
            counts.update({key: value for key, value in (event.get("usage") or {}).items() if value})
        elif kind == "content_block_start" and isinstance(at, int) and isinstance(event.get("content_block"), dict):
            blocks[at] = dict(event["content_block"])
        elif kind == "content_block_delta" and at in blocks and isinstance(event.get("delta"), dict):
            for key in ("text", "thinking"):
                if isinstance(event["delta"].get(key), str):
                    blocks[at][key] = str(blocks[at].get(key) or "") + event["delta"][key]
            if isinstance(event["delta"].get("partial_json"), str):
                partial.setdefault(at, []).append(event["delta"]["partial_json"])
    for at, pieces in partial.items():
        blocks[at]["input"] = "".join(pieces)
    message = chatforms.assistant_message([blocks[at] for at in sorted(blocks)]) if blocks else None
    return message, chatforms.usage_of(counts)
