"""OpenTelemetry GenAI spans: ``{"trace_id","spans":[...]}`` documents and OTLP/JSON (``resourceSpans``), also by line.

Requests are spans that hold a prompt: ``gen_ai.input.messages`` (JSON in a text), or the numbered attributes of older
instrumentations. Content is opt-in, so many exports hold none. Sessions: ``gen_ai.conversation.id``, a vendor's
``session.id``, else the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from eactl.errors import TraceError
from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import Message, seconds, token_count
from eactl.trace.options import TraceOptions
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.document import DocumentReader, beginning, objects_in
from eactl.trace.readers.spans import numbered_messages, prompt_of
from eactl.trace.readers.textbase import first_objects
from eactl.trace.tracefile import Head, TraceFile

_INPUTS = ("gen_ai.input.messages", "gen_ai.prompt", "gen_ai.request.messages", "input.value", "traceloop.entity.input")
_OUTPUTS = ("gen_ai.output.messages", "gen_ai.output.text", "gen_ai.completion", "output.value")
_CALLS = ("chat", "text_completion", "generate_content", "completion")


class OtelReader(DocumentReader):
    """Requests of one export, in the order of their start."""

    name = "otel-genai"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        records = first_objects(file.head)
        self._by_lines = len(records) > 1 and any(_holds_spans(record) for record in records)

    @staticmethod
    def sniff(head: Head) -> str | None:
        document = beginning(head)
        if isinstance(document, dict) and _holds_spans(document):
            return None
        return None if any(_holds_spans(record) for record in first_objects(head)) else "no spans"

    def read(self) -> Iterator[ChatRequest]:
        spans: list[dict[str, Any]] = []
        if self._by_lines:
            for _, record in self.objects():
                spans += _spans(record)
        else:
            document = self.document()
            if isinstance(document, dict):
                spans += _spans(document)
        spans.sort(key=lambda span: _time(span, "start") or 0.0)
        sessions: dict[str, Conversation] = {}
        calls = 0
        for span in spans:
            attributes = span["attributes"]
            calls += attributes.get("gen_ai.operation.name") in _CALLS
            messages, tools = _prompt(attributes)
            if not messages:
                continue
            session = _session(span)
            talk = sessions.setdefault(session, Conversation(session, hidden=(0, None)))
            talk.tools, talk.model = tools, attributes.get("gen_ai.request.model") or attributes.get("llm.model_name")
            yield talk.request(
                f"{self.file.name}:span {span.get('span_id') or span.get('spanId')}", prompt=messages,
                response=_response(attributes), usage=_usage(attributes), started_s=_time(span, "start"),
                ended_s=_time(span, "end"),
            )  # fmt: skip
        if calls and not self.source.calls:
            raise TraceError(
                f"{calls} model calls, but no span holds its prompt", where=self.file.name,
                hint="content is off by default: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true records it",
            )  # fmt: skip


def _holds_spans(record: dict[str, Any]) -> bool:
    if "resourceSpans" in record or "resource_spans" in record:
        return True
    spans = record.get("spans")
    if isinstance(spans, list):
        return not spans or (isinstance(spans[0], dict) and "attributes" in spans[0])
    attributes = record.get("attributes")
    return isinstance(attributes, dict) and any(str(key).startswith(("gen_ai.", "llm.")) for key in attributes)


def _spans(record: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[Any] = []
    if isinstance(record.get("spans"), list):
        found = record["spans"]
    elif "attributes" in record:
        found = [record]
    for resource in objects_in(record.get("resourceSpans") or record.get("resource_spans")):
        for scope in objects_in(resource.get("scopeSpans")):
            found += objects_in(scope.get("spans"))
    return [{**span, "attributes": _attributes(span.get("attributes"))} for span in objects_in(found)]


def _attributes(attributes: Any) -> dict[str, Any]:
    """Attributes as an object; OTLP lists them as pairs with typed values."""
    if isinstance(attributes, dict):
        return attributes
    made: dict[str, Any] = {}
    for pair in attributes if isinstance(attributes, list) else []:
        value = pair.get("value") if isinstance(pair, dict) else None
        if not isinstance(value, dict):
            continue
        inner = next(iter(value.values()), None)
        made[str(pair.get("key"))] = int(str(inner)) if "intValue" in value and str(inner).isdigit() else inner
    return made


def _prompt(attributes: dict[str, Any]) -> tuple[list[Message], list[Message] | None]:
    value = next((attributes[key] for key in _INPUTS if attributes.get(key)), None)
    if value is None:
        return numbered_messages(attributes), None
    messages, tools, _ = prompt_of(value)
    system, _, _ = prompt_of(attributes.get("gen_ai.system_instructions"))
    definitions = attributes.get("gen_ai.tool.definitions")
    if tools is None and isinstance(definitions, str):
        try:
            parsed = orjson.loads(definitions)
        except orjson.JSONDecodeError:
            parsed = None
        tools = [tool for tool in parsed if isinstance(tool, dict)] if isinstance(parsed, list) else None
    return [*({"role": "system", "content": each.get("content")} for each in system), *messages], tools


def _session(span: dict[str, Any]) -> str:
    attributes = span["attributes"]
    named = attributes.get("gen_ai.conversation.id") or attributes.get("session.id")
    if named is None:
        named = next((value for key, value in attributes.items() if key.endswith((".session.id", ".session_id"))), None)
    return str(named or span.get("trace_id") or span.get("traceId") or "trace")


def _time(span: dict[str, Any], which: str) -> float | None:
    nanoseconds = span.get(f"{which}TimeUnixNano")
    if nanoseconds is not None:
        return seconds(int(nanoseconds) / 1e9) if str(nanoseconds).isdigit() else None
    return seconds(span.get(f"{which}_time") or span.get(f"{which}Time"))


def _usage(attributes: dict[str, Any]) -> Usage | None:
    prompt = token_count(attributes.get("gen_ai.usage.input_tokens", attributes.get("gen_ai.usage.prompt_tokens")))
    prompt = token_count(attributes.get("llm.token_count.prompt")) if prompt is None else prompt
    output = token_count(attributes.get("gen_ai.usage.output_tokens", attributes.get("llm.token_count.completion")))
    cached = token_count(attributes.get("gen_ai.usage.cache_read.input_tokens"))
    return Usage(prompt or None, cached, None, output) if prompt or output else None


def _response(attributes: dict[str, Any]) -> Message | None:
    value = next((attributes[key] for key in _OUTPUTS if attributes.get(key)), None)
    if value is None:
        return None
    messages, _, known = prompt_of(value)
    if known:
        return messages[-1]
    return {"role": "assistant", "content": value} if isinstance(value, str) else None
