"""What of a chat message reaches the prompt: text, reasoning, tool calls, attachments, in the order of rendering.

Keys that no template renders (ids, times, cache markers, annotations) are left out: they cannot break a prefix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

PieceKind = Literal["text", "reasoning", "call", "attachment", "definition"]

ATTACHMENT_TOKENS = 1024  # an image of about one megapixel; providers differ, so the result is marked
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "summary_text")
_REASONING_TYPES = ("thinking", "reasoning", "reasoning_text", "redacted_thinking")
_CALL_TYPES = ("tool_use", "toolCall", "tool_call", "function_call", "server_tool_use")
_RESULT_TYPES = ("tool_result", "function_call_output", "toolResult")
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a message: what it is, its text as rendered, and its path inside the message's JSON."""

    kind: PieceKind
    text: str
    path: str
    name: str = ""  # the function of a call or definition, the type of an attachment


def message_pieces(message: Mapping[str, Any]) -> tuple[Piece, ...]:
    """The pieces of one message in the OpenAI or the Anthropic shape."""
    pieces: list[Piece] = []
    for key in _REASONING_KEYS:
        value = message.get(key)
        if isinstance(value, str) and value:
            pieces.append(Piece("reasoning", value, key))
            break
    pieces.extend(_content(message.get("content"), "content"))
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for number, call in enumerate(calls):
            if isinstance(call, dict):
                pieces.append(_call(call, f"tool_calls[{number}]"))
    call = message.get("function_call")
    if isinstance(call, dict):
        pieces.append(_call({"function": call}, "function_call"))
    return tuple(pieces)


def tool_pieces(tools: Sequence[Any]) -> tuple[Piece, ...]:
    """One piece per tool definition, in the order given."""
    return tuple(
        Piece("definition", json_text(tool), f"tools[{number}]", tool_name(tool)) for number, tool in enumerate(tools)
    )


def tool_name(tool: Any) -> str:
    """The function's name, in either shape; the text itself when there is none."""
    if isinstance(tool, dict):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else tool.get("name")
        if isinstance(name, str):
            return name
    return json_text(tool)[:40]


def order_is_no_matter(message: Mapping[str, Any]) -> bool:
    """Whether an equal message is rendered alike: no JSON object in it is written out in the order of its keys."""
    content = message.get("content")
    if type(content) is list:
        if not all(type(part) is dict and type(part.get("text")) is str for part in content):
            return False
    elif content is not None and type(content) is not str:
        return False
    calls = message.get("tool_calls")
    if calls is None:
        return "function_call" not in message
    return type(calls) is list and all(
        type(call) is dict and type(call.get("function")) is dict and type(call["function"].get("arguments")) is str
        for call in calls
    )


def json_text(value: Any) -> str:
    """JSON in the order of the log's own keys; a string stays as it is."""
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def _content(content: Any, path: str) -> Iterator[Piece]:
    if isinstance(content, str):
        yield from _text(content, path)
    elif isinstance(content, list):
        for number, part in enumerate(content):
            yield from _part(part, f"{path}[{number}]")
    elif isinstance(content, dict):
        yield from _part(content, path)


def _part(part: Any, path: str) -> Iterator[Piece]:
    if isinstance(part, str):
        yield from _text(part, path)
        return
    if not isinstance(part, dict):
        return
    kind = part.get("type", "text")
    if kind in _TEXT_TYPES or (kind not in _CALL_TYPES and isinstance(part.get("text"), str)):
        yield from _text(str(part.get("text") or part.get("refusal") or ""), f"{path}.text")
    elif kind in _REASONING_TYPES:
        yield Piece("reasoning", str(part.get("thinking") or part.get("text") or part.get("data") or ""), path)
    elif kind in _CALL_TYPES:
        yield _call(part, path)
    elif kind in _RESULT_TYPES:
        result = part.get("content", part.get("output"))
        if isinstance(result, str | list):
            yield from _content(result, f"{path}.content")
        elif result is not None:
            yield Piece("text", json_text(result), f"{path}.content")
    else:
        yield Piece("attachment", f"[{kind} {_digest(part)}]", path, str(kind))


def _text(text: str, path: str) -> Iterator[Piece]:
    """Text, with a leading think block told apart: templates drop it from history."""
    start = text.find(_THINK_OPEN, 0, 64)
    end = text.find(_THINK_CLOSE, start) if start >= 0 else -1
    if end < 0 or text[:start].strip():
        if text:
            yield Piece("text", text, path)
        return
    end += len(_THINK_CLOSE)
    yield Piece("reasoning", text[:end], path)
    if text[end:]:
        yield Piece("text", text[end:], path)


def _call(call: Mapping[str, Any], path: str) -> Piece:
    function = call.get("function")
    body: Mapping[str, Any] = function if isinstance(function, dict) else call
    within = f"{path}.function" if isinstance(function, dict) else path
    key = next((key for key in ("arguments", "input", "args") if key in body), "arguments")
    return Piece("call", json_text(body.get(key, "")), f"{within}.{key}", str(body.get("name", "")))


def _digest(part: Mapping[str, Any]) -> str:
    """What identifies the attachment's bytes: a recorded digest, else a hash of everything but presentation."""
    for key in ("digest", "sha256", "hash"):
        if isinstance(part.get(key), str):
            return str(part[key])
    skipped = {"type", "detail", "cache_control"}
    body = {key: value for key, value in part.items() if key not in skipped}
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)).hexdigest()[:16]
