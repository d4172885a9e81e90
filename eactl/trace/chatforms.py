"""From the shapes in which providers and frameworks record chats to the one used here (OpenAI's chat format)."""

from __future__ import annotations

from datetime import datetime, timezone
from operator import methodcaller
from typing import Any

import orjson

from eactl.trace.chat import Usage

Message = dict[str, Any]

MAX_TIME_S = 1e11
MAX_TOKENS = 1 << 24
_MICROSECONDS_FROM, _MILLISECONDS_FROM = 1e14, 1e11  # epoch times: no clock of a log shows seconds that large
_CONTENT = methodcaller("get", "content")
_FORGOTTEN = ("cache_control", "prompt_cache_key")  # steer the provider's cache, are no part of the prompt


def seconds(value: Any) -> float | None:
    """A time as seconds: numbers by their size (s, ms, µs since 1970), ISO text (UTC where no zone is named)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        if value >= _MICROSECONDS_FROM:
            value = value / 1e6
        elif value >= _MILLISECONDS_FROM:
            value = value / 1e3
        return float(value) if 0 <= value <= MAX_TIME_S else None
    if not isinstance(value, str) or len(value) < 10:
        return None
    text = value.strip().replace("Z", "+00:00").replace("z", "+00:00")
    point = text.find(".", 19)
    if point == 19:  # Python 3.10 reads 3 or 6 fractional digits only
        end = next((at for at in range(20, len(text)) if not text[at].isdigit()), len(text))
        text = f"{text[:20]}{text[20:end][:6]:0<6}{text[end:]}"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        return moment.timestamp()
    except (OverflowError, ValueError):
        return None


def token_count(value: Any) -> int | None:
    """A token count, or None for anything else: no prompt has more than MAX_TOKENS tokens."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def usage_of(record: Any) -> Usage | None:
    """Token counts under the names of OpenAI (both APIs), Anthropic, Bedrock, Gemini and LiteLLM.

    OpenAI's prompt counts include what came from the cache, Anthropic's do not; here they always do. All zeros
    (an aborted request) are no measurement: None.
    """
    if not isinstance(record, dict):
        return None
    details = record.get("prompt_tokens_details") or record.get("input_tokens_details")
    cached = token_count(details.get("cached_tokens")) if isinstance(details, dict) else None
    for name in ("cached_tokens", "cache_read_input_tokens", "cacheReadInputTokens", "cachedContentTokenCount"):
        cached = token_count(record.get(name)) if cached is None else cached
    written = token_count(record.get("cache_creation_input_tokens"))
    written = token_count(record.get("cacheWriteInputTokens")) if written is None else written
    prompt = token_count(record.get("prompt_tokens"))
    prompt = token_count(record.get("promptTokenCount")) if prompt is None else prompt
    if prompt is None:
        prompt = token_count(record.get("input_tokens"))
        prompt = token_count(record.get("inputTokens")) if prompt is None else prompt
        beside = "cache_read_input_tokens" in record or "cache_creation_input_tokens" in record
        if prompt is not None and (beside or "cacheReadInputTokens" in record):
            prompt += (cached or 0) + (written or 0)
    output = None
    for name in ("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount"):
        output = token_count(record.get(name)) if output is None else output
    if not prompt and not output:
        return None
    return Usage(prompt or None, cached, written, output)


def first_choice(reply: Any) -> Message | None:
    """The message of a chat-completions response, if it holds one."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    return message if isinstance(message, dict) else None


def from_openai(messages: Any) -> list[Message]:
    """Messages of the chat-completions API as they are; Anthropic's blocks among them are rewritten.

    Raises ValueError for what is no list of messages.
    """
    if not isinstance(messages, list):
        raise ValueError("'messages' is no list")
    if not set(map(type, messages)) <= {dict}:
        raise ValueError("a message is no JSON object")
    if list not in set(map(type, map(_CONTENT, messages))):  # the most, told without a step for each
        return list(messages)
    found: list[Message] = []
    for message in messages:
        if _has_anthropic_blocks(message.get("content")):
            found += from_anthropic([message])
        else:
            found.append(message)
    return found


def from_anthropic(messages: Any, system: Any = None) -> list[Message]:
    """The body of Anthropic's messages API: system blocks first, tool results as messages of role tool.

    ``cache_control`` marks move from turn to turn and are no part of the prompt, so they are dropped.
    """
    found: list[Message] = []
    if system:
        found.append({"role": "system", "content": _clean_blocks(system)})
    if not isinstance(messages, list):
        raise ValueError("'messages' is no list")
    for message in messages:
        if not isinstance(message, dict):
            raise ValueError("a message is no JSON object")
        role, content = message.get("role"), message.get("content")
        if not isinstance(content, list):
            found.append({"role": role, "content": content})
        elif role == "assistant":
            found.append(assistant_message(content))
        else:
            found += _user_messages(str(role or "user"), content)
    return found


def assistant_message(blocks: list[Any]) -> Message:
    """One assistant message of Anthropic content blocks: text, thinking, tool calls."""
    texts: list[Message] = []
    thoughts: list[str] = []
    calls: list[Message] = []
    for block in blocks:
        if not isinstance(block, dict):
            texts.append({"type": "text", "text": str(block)})
            continue
        kind = block.get("type")
        if kind == "tool_use" or kind == "server_tool_use":
            calls.append(tool_call(block.get("id"), block.get("name"), block.get("input")))
        elif kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind != "redacted_thinking":
            texts.append(_clean(block))
    message: Message = {"role": "assistant", "content": _plain(texts)}
    if any(thoughts):
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def tool_call(call_id: Any, name: Any, arguments: Any) -> Message:
    """A tool call; arguments that the log holds as an object become text in their recorded order."""
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def from_anthropic_tools(tools: Any) -> list[Message] | None:
    """Tool definitions as functions; server tools, which have no schema, stay as they are."""
    if not isinstance(tools, list):
        return None
    found = []
    for tool in tools:
        if isinstance(tool, dict) and "input_schema" in tool:
            function = {"name": tool.get("name"), "description": tool.get("description") or ""}
            found.append({"type": "function", "function": {**function, "parameters": tool["input_schema"]}})
        elif isinstance(tool, dict):
            found.append(_clean(tool))
    return found


def from_responses(items: Any, instructions: Any = None) -> list[Message]:
    """Input items of OpenAI's Responses API; consecutive reasoning, text and calls are one assistant message."""
    found: list[Message] = []
    if isinstance(instructions, str) and instructions:
        found.append({"role": "system", "content": instructions})
    if isinstance(items, str):
        return [*found, {"role": "user", "content": items}]
    if not isinstance(items, list):
        raise ValueError("'input' is neither text nor a list")
    for item in items:
        if isinstance(item, dict):
            add_response_item(found, item)
    return found


def add_response_item(messages: list[Message], item: Message) -> None:
    """Append one Responses item to ``messages`` (a new list entry, or part of the last assistant message)."""
    kind = str(item.get("type") or "message")
    if kind == "message" and item.get("role") != "assistant":
        messages.append({"role": item.get("role") or "user", "content": _response_content(item.get("content"))})
    elif kind.endswith("_output"):
        output = item.get("output")
        text = output if isinstance(output, (str, list)) else orjson.dumps(output).decode()
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
    elif kind == "message":
        _open_assistant(messages, "content", _response_content(item.get("content")))
    elif kind == "reasoning":
        parts = item.get("content") or item.get("summary")
        parts = parts if isinstance(parts, list) else []
        text = "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
        _open_assistant(messages, "reasoning_content", text or None, hidden=item.get("encrypted_content"))
    elif kind.endswith("_call"):
        name = item.get("name") or kind
        arguments = item.get("arguments", item.get("input", item.get("action")))
        _open_assistant(messages, "tool_calls", [tool_call(item.get("call_id"), name, arguments)])


def _open_assistant(messages: list[Message], key: str, value: Any, hidden: Any = None) -> None:
    last = messages[-1] if messages else {}
    fits = last.get("role") == "assistant" and (key == "tool_calls" or key not in last) and "tool_calls" not in last
    if last.get("role") == "assistant" and key == "tool_calls" and "tool_calls" in last:
        messages[-1] = {**last, "tool_calls": [*last["tool_calls"], *value]}
        return
    if not fits:
        messages.append({"role": "assistant"})
    if value is not None:
        messages[-1] = {**messages[-1], key: value}
    if isinstance(hidden, str):
        messages[-1] = {**messages[-1], "encrypted_reasoning_chars": len(hidden)}


def _response_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts: list[Message] = []
    for part in content:
        if isinstance(part, dict):
            named = part.get("type") in ("input_text", "output_text", "text")
            parts.append({"type": "text", "text": part.get("text")} if named else part)
        else:
            parts.append({"type": "text", "text": str(part)})
    return _plain(parts)


def _has_anthropic_blocks(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result", "thinking") for part in content
    )


def _user_messages(role: str, blocks: list[Any]) -> list[Message]:
    found: list[Message] = []
    rest: list[Message] = []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            content = _clean_blocks(block.get("content"))
            found.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
        else:
            rest.append(_clean(block) if isinstance(block, dict) else {"type": "text", "text": str(block)})
    if rest or not found:
        found.append({"role": role, "content": _plain(rest)})
    return found


def _clean_blocks(content: Any) -> Any:
    if not isinstance(content, list):
        return content if content is not None else ""
    return _plain([_clean(block) if isinstance(block, dict) else {"type": "text", "text": str(block)}
                   for block in content])  # fmt: skip


def _clean(block: Message) -> Message:
    if any(name in block for name in _FORGOTTEN):
        return {name: value for name, value in block.items() if name not in _FORGOTTEN}
    return block


def _plain(parts: list[Message]) -> Any:
    """One text part as plain text, nothing as empty text, else the list."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"} and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts
