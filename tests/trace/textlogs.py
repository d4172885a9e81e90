"""Small logs made by us, and reading them, for the tests of text logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from eactl.trace import Call, TraceOptions, open_trace
from eactl.trace.chat import ChatRequest
from eactl.trace.chatlog import ChatStream, open_chat

SKIP = TraceOptions(skip_bad_lines=True)


def jsonl(path: Path, *lines: object) -> Path:
    """A file of these lines: bytes as they are, other things as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines))
    return path


def document(path: Path, value: object) -> Path:
    """A file that is one JSON document, indented as most tools write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    return path


def chats(*paths: Path, options: TraceOptions | None = None) -> list[ChatRequest]:
    return list(stream(*paths, options=options))


def stream(*paths: Path, options: TraceOptions | None = None) -> ChatStream:
    return open_chat(list(paths), options)


def calls(*paths: Path, options: TraceOptions | None = None) -> list[Call]:
    return list(open_trace(list(paths), options))


def roles(request: ChatRequest) -> list[str]:
    return [message["role"] for message in request.messages]


def texts(request: ChatRequest) -> list[Any]:
    return [message.get("content") for message in request.messages]


def warnings_of(*paths: Path, options: TraceOptions | None = None) -> list[str]:
    """Codes of the warnings of all sources once everything was read."""
    opened = stream(*paths, options=options)
    list(opened)
    return [notice.code for source in opened.sources for notice in source.warnings]


class Transcript:
    """Writes a Claude Code transcript line by line, as version 2 does."""

    def __init__(self, path: Path, session: str = "s-1", agent: str | None = None, prefix: str = "u") -> None:
        self.path = path
        self.lines: list[object] = []
        self.parent: str | None = None
        self._session, self._agent, self._prefix = session, agent, prefix
        self._clock = 0

    def line(self, kind: str, *, parent: str | bool | None = True, at: float | None = None, **fields: Any) -> str:
        """Append a line under ``parent`` (default: the one before) and return its uuid."""
        self._clock += 1
        uuid = f"{self._prefix}{self._clock}"
        seconds = self._clock if at is None else at
        record = {
            "type": kind, "uuid": uuid, "parentUuid": self.parent if parent is True else parent,
            "sessionId": self._session, "isSidechain": self._agent is not None,
            "timestamp": f"2026-01-01T00:{int(seconds) // 60:02}:{int(seconds) % 60:02}.000Z", **fields,
        }  # fmt: skip
        if self._agent is not None:
            record["agentId"] = self._agent
        self.lines.append(record)
        self.parent = uuid
        return uuid

    def user(self, content: Any, **fields: Any) -> str:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def result(self, tool: str, text: str, **fields: Any) -> str:
        return self.user([{"type": "tool_result", "tool_use_id": tool, "content": text}], **fields)

    def assistant(self, message_id: str, block: dict[str, Any], usage: tuple[int, int, int, int], **fields: Any) -> str:
        """One block of a response; ``usage`` is plain, cache-written, cache-read, output tokens."""
        plain, written, read, output = usage
        counts = {"input_tokens": plain, "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
                  "output_tokens": output}  # fmt: skip
        message = {"id": message_id, "role": "assistant", "model": "claude-x", "content": [block], "usage": counts,
                   "stop_reason": None}  # fmt: skip
        return self.line("assistant", message=message, requestId=f"req-{message_id}", **fields)

    def write(self) -> Path:
        return jsonl(self.path, *self.lines)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def tool_use(call: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}
