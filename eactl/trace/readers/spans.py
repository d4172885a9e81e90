"""Prompts in the attributes of spans and observations, whose shape depends on the framework that wrote them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from eactl.trace import chatforms
from eactl.trace.chat import RAW_ROLE
from eactl.trace.chatforms import Message

_ROLES = ("system", "developer", "user", "assistant", "tool", "function", "model", "human", "ai", "chatbot")
_SAME = {"human": "user", "ai": "assistant", "model": "assistant", "chatbot": "assistant", "function": "tool"}
_NUMBERED = re.compile(r"(?:gen_ai\.prompt|llm\.input_messages)\.(\d+)\.(?:message\.)?(.+)")


def prompt_of(value: Any) -> tuple[list[Message], list[Message] | None, bool]:
    """Messages and tools of a recorded input, and whether the messages are known one by one.

    A text that holds no JSON, or JSON of another shape, is one raw prompt; nothing is no prompt.
    """
    parsed = value
    if isinstance(value, str):
        try:
            parsed = orjson.loads(value)
        except orjson.JSONDecodeError:
            parsed = None
    tools: list[Message] | None = None
    if isinstance(parsed, dict):
        found = parsed.get("tools")
        tools = found if isinstance(found, list) and all(isinstance(tool, dict) for tool in found) else None
        system = parsed.get("system")
        inner = next((parsed[key] for key in ("messages", "input", "contents", "prompt") if key in parsed), None)
        if inner is not None:
            messages, _, known = prompt_of(inner)
            before = [{"role": "system", "content": system}] if isinstance(system, (str, list)) and system else []
            return [*before, *messages], tools, known
        parsed = [parsed] if "role" in parsed or "type" in parsed else None
    if isinstance(parsed, list) and len(parsed) == 1 and isinstance(parsed[0], list):
        parsed = parsed[0]  # LangChain: a batch of one
    if isinstance(parsed, list):
        made = [_message(message) for message in parsed if isinstance(message, dict)]
        messages = [message for message in made if message is not None]
        if messages and len(messages) == len(parsed):
            schemas = [message for message in messages if _is_schema(message)]
            said = [message for message in messages if not _is_schema(message)]
            return said, tools or [message["content"] for message in schemas] or None, True
    text = value if isinstance(value, str) else orjson.dumps(value).decode() if value is not None else ""
    return ([{"role": RAW_ROLE, "content": text}] if text else []), tools, False


def numbered_messages(attributes: Mapping[str, Any]) -> list[Message]:
    """Messages spread over numbered attributes (OpenLLMetry, OpenInference)."""
    found: dict[int, Message] = {}
    for key, value in attributes.items():
        match = _NUMBERED.fullmatch(key)
        if match and match.group(2) in ("role", "content"):
            found.setdefault(int(match.group(1)), {"role": "user", "content": ""})[match.group(2)] = value
    return [found[at] for at in sorted(found)]


def _message(message: dict[str, Any]) -> Message | None:
    """One message of OpenAI, LangChain, Gemini or the OTel GenAI conventions; None for another shape."""
    if isinstance(message.get("kwargs"), dict) and "lc" in message:
        kind = str((message.get("id") or [""])[-1]).removesuffix("MessageChunk").removesuffix("Message").lower()
        message = {"type": kind, **message["kwargs"]}
    role = message.get("role") or message.get("type")
    if not isinstance(role, str) or role not in _ROLES:
        return None
    role = _SAME.get(role, role)
    parts = message.get("parts")
    if isinstance(parts, list):
        return _of_parts(role, parts)
    extra = message.get("additional_kwargs")
    calls = message.get("tool_calls") or (extra.get("tool_calls") if isinstance(extra, dict) else None)
    made: Message = {"role": role, "content": message.get("content")}
    if isinstance(calls, list) and calls:
        made["tool_calls"] = [_call(call) for call in calls if isinstance(call, dict)]
    if message.get("tool_call_id"):
        made["tool_call_id"] = message["tool_call_id"]
    converted = chatforms.from_openai([made])
    return converted[0] if len(converted) == 1 else made


def _of_parts(role: str, parts: list[Any]) -> Message:
    texts: list[str] = []
    calls: list[Message] = []
    for part in parts:
        if not isinstance(part, dict):
            texts.append(str(part))
            continue
        kind = part.get("type")
        call = part if kind == "tool_call" else part.get("functionCall") or part.get("function_call")
        if isinstance(call, dict):
            calls.append(chatforms.tool_call(call.get("id"), call.get("name"), call.get("arguments", call.get("args"))))
            continue
        text = next((part[key] for key in ("content", "text", "response", "result") if part.get(key) is not None), part)
        texts.append(text if isinstance(text, str) else orjson.dumps(text).decode())
        if kind == "tool_call_response":
            role = "tool"
    made: Message = {"role": role, "content": "\n".join(texts)}
    if calls:
        made["tool_calls"] = calls
    return made


def _call(call: dict[str, Any]) -> Message:
    function = call.get("function")
    if isinstance(function, dict):
        return chatforms.tool_call(call.get("id"), function.get("name"), function.get("arguments"))
    return chatforms.tool_call(call.get("id"), call.get("name"), call.get("args", call.get("arguments")))


def _is_schema(message: Message) -> bool:
    """LangChain's callback lists tool definitions as messages of role tool."""
    content = message.get("content")
    return message["role"] == "tool" and isinstance(content, dict) and content.get("type") == "function"
