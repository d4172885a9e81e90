"""Langfuse exports: a trace with its observations (UI, API), or one observation per line (blob export).

Requests are generations; one that only wraps another is not counted twice. Inputs are JSON in a text, in the shape
of the framework that was traced, so the true prompt is seldom whole. Files without a session id go by their trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from eactl.trace.chat import ChatRequest
from eactl.trace.chatforms import seconds
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.conversation import Conversation, inclusive_usage
from eactl.trace.readers.document import DocumentReader, beginning
from eactl.trace.readers.spans import prompt_of
from eactl.trace.readers.textbase import first_objects
from eactl.trace.tracefile import Head, TraceFile

_KINDS = ("GENERATION", "SPAN", "EVENT", "TOOL", "AGENT", "CHAIN", "RETRIEVER", "EMBEDDING", "EVALUATOR", "GUARDRAIL")


class LangfuseReader(DocumentReader):
    """Requests of one export, in the order of their start."""

    name = "langfuse"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        records = first_objects(file.head)
        self._by_lines = bool(records) and _is_observation(records[0])

    @staticmethod
    def sniff(head: Head) -> str | None:
        document = beginning(head)
        if isinstance(document, dict) and isinstance(document.get("trace"), dict) and "observations" in document:
            return None
        records = first_objects(head)
        if records and _is_observation(records[0]):
            return None
        return "no 'trace' with 'observations'"

    def read(self) -> Iterator[ChatRequest]:
        observations, trace = self._observations()
        generations = [(at, each) for at, each in observations if each.get("type") == "GENERATION"]
        wrapping = {str(_get(each, "parentObservationId")) for _, each in generations}
        sessions: dict[str, Conversation] = {}
        ordered: list[tuple[float, int, dict[str, Any]]] = []
        for number, observation in generations:
            if str(observation.get("id")) in wrapping:
                continue
            ordered.append((seconds(_get(observation, "startTime")) or 0.0, number, observation))
        unclear = 0
        for _, number, observation in sorted(ordered, key=lambda entry: entry[:2]):
            session = str(
                trace.get("sessionId") or _get(observation, "sessionId") or _get(observation, "traceId")
                or trace.get("id") or self.file.name
            )  # fmt: skip
            talk = sessions.setdefault(session, Conversation(session, hidden=(0, None)))
            messages, talk.tools, known = prompt_of(observation.get("input"))
            unclear += not known
            talk.model = str(_get(observation, "model") or _get(observation, "providedModelName") or "") or None
            yield talk.request(
                f"{self.file.name}:{number}", prompt=messages, response=_response(observation.get("output")),
                usage=inclusive_usage(_usage(observation)), started_s=seconds(_get(observation, "startTime")),
                ended_s=seconds(_get(observation, "endTime")),
            )  # fmt: skip
        if unclear:
            self.warn("unclear-prompts", f"{self.file.name}: {unclear} generations hold no list of messages, so their "
                      "prompts are what text there is, or nothing")  # fmt: skip

    def _observations(self) -> tuple[list[tuple[int, dict[str, Any]]], dict[str, Any]]:
        """Observations with their place in the file, and the trace they belong to where the file is of one."""
        if self._by_lines:
            return [(number, record) for number, record in self.objects() if _is_observation(record)], {}
        document = self.document()
        if document is None:
            return [], {}
        document = document if isinstance(document, dict) else {}
        trace, observations = document.get("trace"), document.get("observations")
        if not isinstance(trace, dict) or not isinstance(observations, list):
            self.bad(1, BadLineError("no 'trace' with 'observations'"))
            return [], {}
        return [(at, each) for at, each in enumerate(observations, 1) if isinstance(each, dict)], trace


def _is_observation(record: dict[str, Any]) -> bool:
    return record.get("type") in _KINDS and ("traceId" in record or "trace_id" in record)


def _get(observation: dict[str, Any], key: str) -> Any:
    """A field under its API name, or as the blob export writes it."""
    if key in observation:
        return observation[key]
    return observation.get("".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key))


def _usage(observation: dict[str, Any]) -> Any:
    usage = _get(observation, "usageDetails") or observation.get("usage")
    if isinstance(usage, str):
        try:
            return orjson.loads(usage)
        except orjson.JSONDecodeError:
            return None
    return usage


def _response(output: Any) -> dict[str, Any] | None:
    if isinstance(output, str):
        try:
            output = orjson.loads(output)
        except orjson.JSONDecodeError:
            return {"role": "assistant", "content": output} if output else None
    if isinstance(output, dict):
        choices = output.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            output = choices[0].get("message")
    messages, _, known = prompt_of(output) if output is not None else ([], None, False)
    return messages[-1] if known and messages else None
