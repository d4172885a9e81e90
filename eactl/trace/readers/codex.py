"""Codex CLI rollouts: ``~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl``.

A request is a ``token_count`` event whose total changed (events are repeated, and may hold nothing). The text stands
in ``response_item`` lines (``event_msg`` repeats it); reasoning is encrypted, so only its length is known, and base
instructions and tools are mostly absent. ``compacted`` replaces the history. A rollout without any token count
yields its responses without usage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.trace import chatforms
from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import seconds, usage_of
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head

_KINDS = ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state")


class CodexReader(TextReader):
    """Requests of one rollout, in file order."""

    name = "codex"
    peeks = True

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            if record.get("type") in _KINDS and isinstance(record.get("payload"), dict):
                return None
        return "no 'payload' of a known type"

    def read(self) -> Iterator[ChatRequest]:
        rollout = _Rollout(self)
        measured = False
        for number, record in self.objects():
            request = rollout.take(number, record)
            if request is not None:
                if not measured:
                    rollout.unmeasured.clear()
                measured = True
                yield request
        if not measured:
            for turn, request in enumerate(rollout.unmeasured):
                request.turn = turn
                yield request


class _Rollout:
    """The state of one rollout while its lines are read."""

    def __init__(self, reader: CodexReader) -> None:
        self._reader = reader
        self._talk = Conversation(None, hidden=(1, None))
        self._total: Any = None
        self._open: int | None = None  # messages before the response that is being written
        self._input_since = True
        self._started_s: float | None = None
        self._input_s: float | None = None
        self.unmeasured: list[ChatRequest] = []

    def take(self, number: int, record: dict[str, Any]) -> ChatRequest | None:
        """The request that this line completes, if any."""
        kind, payload = record.get("type"), record.get("payload")
        if not isinstance(payload, dict):
            return None
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "turn_context" and isinstance(payload.get("model"), str):
            self._talk.model = payload["model"]
        elif kind == "response_item":
            self._item(number, payload, seconds(record.get("timestamp")))
        elif kind == "compacted":
            self._compacted(payload)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            return self._counted(number, payload.get("info"), seconds(record.get("timestamp")))
        return None

    def _meta(self, payload: dict[str, Any]) -> None:
        if self._talk.session is not None:
            return
        self._talk.session = str(payload.get("id") or self._reader.file.name)
        base: Any = payload.get("base_instructions") or payload.get("instructions")
        base = base.get("text") if isinstance(base, dict) else base
        if isinstance(base, str) and base:
            self._talk.say({"role": "system", "content": base})

    def _item(self, number: int, item: dict[str, Any], at_s: float | None) -> None:
        talk, kind = self._talk, str(item.get("type") or "message")
        if kind == "tool_call":  # old rollouts
            function = item.get("function")
            name = function.get("name") if isinstance(function, dict) else item.get("name")
            item = {**item, "type": "function_call", "name": name}
        elif kind == "tool_result":
            item = {**item, "type": "function_call_output", "output": item.get("result")}
        kind = str(item.get("type") or "message")
        outputs = kind.endswith("_output") or (kind == "message" and item.get("role") != "assistant")
        if outputs:
            self._input_since = True
            self._input_s = at_s if at_s is not None else self._input_s
        elif self._input_since:
            self._open, self._input_since, self._started_s = len(talk.messages), False, self._input_s
            if self._total is None:
                self.unmeasured.append(talk.request(self._reader.at(number), started_s=self._started_s, peek=True))
        chatforms.add_response_item(talk.messages, item)

    def _compacted(self, payload: dict[str, Any]) -> None:
        history = payload.get("replacement_history")
        if isinstance(history, list) and history:
            messages = chatforms.from_responses(history)
        else:
            messages = [{"role": "user", "content": str(payload.get("message") or "")}]
        self._talk.replace(messages, "compaction")
        self._open, self._input_since = None, True

    def _counted(self, number: int, info: Any, at_s: float | None) -> ChatRequest | None:
        if not isinstance(info, dict) or info.get("total_token_usage") == self._total:
            return None
        usage = _usage(info.get("last_token_usage"))
        if usage is None:
            return None
        self._total = info.get("total_token_usage")
        upto = len(self._talk.messages) if self._open is None else self._open
        response = self._talk.messages[upto] if upto < len(self._talk.messages) else None
        self._open = None
        return self._talk.request(
            self._reader.at(number), upto=upto, response=response, usage=usage, started_s=self._started_s, ended_s=at_s
        )


def _usage(record: Any) -> Usage | None:
    """Codex counts the whole prompt as input; what came from the cache is part of it."""
    if not isinstance(record, dict):
        return None
    usage = usage_of({"prompt_tokens": record.get("input_tokens"), "cached_tokens": record.get("cached_input_tokens"),
                      "completion_tokens": record.get("output_tokens")})  # fmt: skip
    return usage if usage is not None and usage.prompt_tokens else None
