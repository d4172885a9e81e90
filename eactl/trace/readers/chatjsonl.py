"""Request logs with one JSON object per request: the plain format of condenser-check, OpenAI-style logs, batch
input files and LiteLLM payloads.

The plain line is ``{"session","turn","messages":[...],"tools":[...],"usage":{...},"salt","model"}``. Other names for
the same things are read as well, and the request may lie one level down (``body``, ``request``, ``request.body``).
Lines without text but with token counts are requests too: their usage alone can show a broken prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.trace import chatforms
from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.chatforms import seconds, usage_of
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.readers.timeorder import WINDOW_BYTES, TimeOrder
from eactl.trace.tracefile import Head, TraceFile

_SESSION = ("session", "session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "chat_id",
            "litellm_session_id", "litellm_trace_id", "trace_id")  # fmt: skip
_SALT = ("salt", "cache_salt")
_ADAPTER = ("adapter", "lora", "lora_name", "lora_request")
_START = ("arrival_s", "startTime", "start_time", "request_time", "timestamp", "created_at", "created", "time", "ts")
_END = ("endTime", "end_time")
_BODIES = (("request", "body"), ("body",), ("request",), ("kwargs",), ("data",), ("input",))
_KINDS = ("type", "event", "kind", "level", "url", "endpoint")  # what a line that is no request says it is
_TEXT_KEYS = ("messages", "prompt", "input")
_IDS = ("prompt_token_ids", "input_ids")


class ChatJsonlReader(TextReader):
    """Requests of a JSONL log, in the order of their times where they have some, else in file order."""

    name = "chat-jsonl"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        records = first_objects(file.head)
        first = _field(records[0], request_body(records[0]), _START) if records else None
        relative = isinstance(first, (int, float)) and first < 1e8
        self.absolute_times = not relative
        self.source.common_clock = not relative
        self.source.has_times = first is not None
        self.first_s = None if first is None or relative else seconds(first)
        self._line_bytes = 0
        self._responses: set[int] = set()
        self._repeated = 0

    @staticmethod
    def sniff(head: Head) -> str | None:
        records = first_objects(head)
        if not records:
            return "no JSON object on a line"
        if any("hash_ids" in record for record in records):
            return "it has 'hash_ids'"
        for record in records:
            body = request_body(record)
            if isinstance(body.get("messages"), list):
                return None
            if isinstance(body.get("prompt"), (str, list)) and "trace" not in str(record.get("schema", "")):
                return None
            if "model" in body and isinstance(body.get("input"), (str, list)):
                return None  # the Responses API
            if _counts_only(record, body):
                return None
        return "no 'messages'"

    def read(self) -> Iterator[ChatRequest]:
        order = TimeOrder()
        others = first_other = 0
        for number, record in self.objects():
            try:
                request = self.take(record)
            except BadLineError as error:
                self.bad(number, error)
                continue
            if request is None:
                others, first_other = others + 1, first_other or number
                continue
            if self._again(record):
                continue
            request.where = self.at(number)
            turn = record.get("turn")
            yield from order.take(request, turn if type(turn) is int and turn >= 0 else None, self._line_bytes)
        yield from order.rest()
        if self._repeated:
            self.warn("repeated-responses", f"{self.file.name}: {self._repeated} lines repeat a response seen "
                      "before and were left out")  # fmt: skip
        if others:
            lines = f"{others} line{'s' * (others > 1)}"
            self.warn("other-lines", f"{self.file.name}: {lines} of another kind than requests passed over, the first "
                      f"is line {first_other}")  # fmt: skip
        self._note_order(order)

    def take(self, record: dict[str, Any]) -> ChatRequest | None:
        """The request of one line; None for a line that is none. Raises BadLineError."""
        body = request_body(record)
        try:
            messages = _messages(body)
        except ValueError as error:
            raise BadLineError(str(error)) from None
        reply = record.get("response", body.get("response"))
        usage = _usage(record, body, reply)
        if messages is None and usage is None:
            if any(isinstance(record.get(key), str) for key in _KINDS):
                return None  # an event of another kind, written between the requests
            raise BadLineError("no 'messages'", "the log does not hold the requests' text, or this is no request")
        request = self.describe(record, body, messages or [])
        request.response, request.usage = _response(reply), usage
        request.tools = _tools(body.get("tools"))
        if not messages:
            request.exact, request.hidden_tokens = False, (0, None)
        return request

    def describe(
        self, record: dict[str, Any], body: dict[str, Any], messages: list[dict[str, Any]], session: str | None = None
    ) -> ChatRequest:
        """What surrounds the messages: session, model, salt, times."""
        session = session or _name(_field(record, body, _SESSION))
        for place in (record.get("metadata"), body.get("metadata")):
            if session is None and isinstance(place, dict):
                session = _name(_field(place, place, _SESSION))
        started, ended = seconds(_field(record, body, _START)), seconds(_field(record, record, _END))
        extra: Any = body.get("extra_body")
        extra = extra if isinstance(extra, dict) else {}
        return ChatRequest(
            session=session, messages=messages, model=_name(_field(record, body, ("model",))),
            adapter=_name(_field(record, body, _ADAPTER)),
            salt=_name(_field(record, body, _SALT) or _field(extra, extra, _SALT)),
            arrival_s=started, gap_s=seconds(record.get("gap_s")),
            service_s=None if started is None or ended is None or ended < started else ended - started,
            prompt_token_ids=_ids(_field(record, body, _IDS)), template_options=_options(body, extra),
        )  # fmt: skip

    def _again(self, record: dict[str, Any]) -> bool:
        """Whether the line logs a response, by its id, once more."""
        reply = record.get("response")
        key = reply.get("id") if isinstance(reply, dict) else None
        if not isinstance(key, str) or not key:
            return False
        size = len(self._responses)
        self._responses.add(hash(key))
        repeated = len(self._responses) == size
        self._repeated += repeated
        return repeated

    def _object(self, line: bytes, number: int, *, last: bool) -> dict[str, Any] | None:
        self._line_bytes = len(line)
        return super()._object(line, number, last=last)

    def _note_order(self, order: TimeOrder) -> None:
        if order.turned:
            sessions = f"{order.turned} session{'s' * (order.turned > 1)}"
            self.warn(
                "sorted-by-turn", f"{self.file.name}: the lines of {sessions} were put in the order of their turns"
            )
        text = f"{self.file.name}: times go back at {order.moved} line{'s' * (order.moved > 1)}"
        if order.moved and not order.late:
            self.warn("sorted-by-time", f"{text}, so the requests were put in the order of their times")
        if not order.late:
            return
        self.warn(
            "time-goes-back",
            f"{text}; {order.late} came more than {WINDOW_BYTES >> 20} MiB late and could not be put in their place",
            "sort the log by time; one that is newest first is turned round by tac",
        )


def request_body(record: dict[str, Any]) -> dict[str, Any]:
    """The request's own object: the record, or what it wraps."""
    if any(key in record for key in _TEXT_KEYS if not isinstance(record.get(key), dict)):
        return record
    for path in _BODIES:
        value: Any = record
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, dict) and any(key in value for key in _TEXT_KEYS):
            return value
    return record


def _messages(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    if body.get("messages") is not None:
        return chatforms.from_openai(body["messages"])
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(part, dict) for part in prompt):
        return chatforms.from_openai(prompt)
    if isinstance(prompt, list) and all(type(part) is int for part in prompt):
        return [{"role": RAW_ROLE, "content": ""}] if prompt else None
    if isinstance(prompt, str):
        return [{"role": RAW_ROLE, "content": prompt}]
    if body.get("input") is not None:
        return chatforms.from_responses(body["input"], body.get("instructions"))
    return None


def _field(record: dict[str, Any], body: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        for place in (record, body):
            if place.get(name) is not None:
                return place[name]
    return None


def _name(value: Any) -> str | None:
    if isinstance(value, dict):
        value = value.get("name") or value.get("lora_name")
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "" else None


def _usage(record: dict[str, Any], body: dict[str, Any], reply: Any) -> Any:
    inner = reply.get("body") if isinstance(reply, dict) and isinstance(reply.get("body"), dict) else reply
    for place in (record.get("usage"), body.get("usage"), inner.get("usage") if isinstance(inner, dict) else None):
        usage = usage_of(place)
        if usage is not None:
            return usage
    return usage_of(record)


def _response(reply: Any) -> dict[str, Any] | None:
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    if not isinstance(reply, dict):
        return None
    if isinstance(reply.get("body"), dict):
        reply = reply["body"]
    choices = reply.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        if isinstance(message, dict):
            return message
        return {"role": "assistant", "content": choices[0].get("text")}
    if reply.get("type") == "message" and isinstance(reply.get("content"), list):
        return chatforms.assistant_message(reply["content"])
    return reply if "role" in reply or "content" in reply else None


def _tools(tools: Any) -> list[dict[str, Any]] | None:
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return None
    return chatforms.from_anthropic_tools(tools) if any("input_schema" in tool for tool in tools) else tools


def _options(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any] | None:
    """vLLM's and SGLang's ``chat_template_kwargs`` (``enable_thinking``), where they are."""
    value = body.get("chat_template_kwargs") or extra.get("chat_template_kwargs")
    return value if isinstance(value, dict) else None


def _ids(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and value and all(type(part) is int for part in value) else None


def _counts_only(record: dict[str, Any], body: dict[str, Any]) -> bool:
    named = any(key in record for key in _SESSION[:2])
    return named and _usage(record, body, record.get("response")) is not None
