"""ATIF trajectories (Harbor): one JSON document per run, its prompts rebuilt from the steps.

An agent's step is a request. Counts are the provider's, cached tokens included; where ``prompt_token_ids`` were
recorded, the prompt is exact. Files of summarisation runs and continuations are sessions of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import Message, seconds, token_count, tool_call
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.document import DocumentReader, beginning
from eactl.trace.tracefile import Head


class AtifReader(DocumentReader):
    """Requests of one trajectory, in the order of its steps."""

    name = "atif"

    @staticmethod
    def sniff(head: Head) -> str | None:
        document = beginning(head)
        if not isinstance(document, dict):
            return "no JSON object"
        named = str(document.get("schema_version", "")).upper().startswith("ATIF")
        return None if named and "steps" in document else "no ATIF 'schema_version'"

    def read(self) -> Iterator[ChatRequest]:
        document = self.document()
        if document is None:
            return
        steps = document.get("steps") if isinstance(document, dict) else None
        if not isinstance(steps, list):
            self.bad(1, BadLineError("no 'steps'"))
            return
        session = f"{document.get('session_id') or self.file.path.stem}/{self.file.path.stem}"
        agent = document.get("agent")
        agent = agent if isinstance(agent, dict) else {}
        talk = Conversation(session, hidden=(0, None))
        talk.model = agent.get("model_name")
        talk.tools = agent["tool_definitions"] if isinstance(agent.get("tool_definitions"), list) else None
        timed = all(isinstance(step, dict) and seconds(step.get("timestamp")) is not None for step in steps)
        self.source.has_times = self.source.common_clock = timed
        started_s: float | None = None
        for step in steps:
            if not isinstance(step, dict):
                continue
            at_s, said = seconds(step.get("timestamp")), _said(step)
            if step.get("source") == "agent":
                metrics = step.get("metrics")
                metrics = metrics if isinstance(metrics, dict) else {}
                ids = metrics.get("prompt_token_ids")
                known = isinstance(ids, list) and bool(ids) and all(type(each) is int for each in ids)
                yield talk.request(
                    f"{self.file.name}:step {step.get('step_id')}", response=said, usage=_usage(metrics),
                    started_s=started_s if started_s is not None else at_s, ended_s=at_s,
                    token_ids=ids if known else None, exact=True if known else None,
                )  # fmt: skip
            talk.say(said, *_results(step))
            started_s = at_s


def _said(step: dict[str, Any]) -> Message:
    role = {"agent": "assistant", "system": "system"}.get(str(step.get("source")), "user")
    said: Message = {"role": role, "content": step.get("message") or ""}
    if isinstance(step.get("reasoning_content"), str):
        said["reasoning_content"] = step["reasoning_content"]
    calls = step.get("tool_calls")
    if isinstance(calls, list) and calls:
        said["tool_calls"] = [
            tool_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments"))
            for call in calls
            if isinstance(call, dict)
        ]
    return said


def _results(step: dict[str, Any]) -> list[Message]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    found: list[Message] = []
    for result in results if isinstance(results, list) else []:
        if isinstance(result, dict):
            content = result.get("content")
            text = content if isinstance(content, (str, list)) else orjson.dumps(content).decode()
            role = "tool" if result.get("source_call_id") else "user"
            found.append({"role": role, "tool_call_id": result.get("source_call_id"), "content": text})
    return found


def _usage(metrics: dict[str, Any]) -> Usage | None:
    prompt = token_count(metrics.get("prompt_tokens"))
    output = token_count(metrics.get("completion_tokens"))
    if not prompt and not output:
        return None
    return Usage(prompt or None, token_count(metrics.get("cached_tokens")), None, output)
