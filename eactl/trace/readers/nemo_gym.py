"""NeMo-Gym rollouts (the shape of OpenAI's Responses API): one line per rollout of a task.

A request begins where model items follow input or a tool's output. There are no times and no counts per request;
the usage of a rollout is the sum of its calls, so it is taken only where there is one call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.trace import chatforms
from eactl.trace.chat import ChatRequest
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head, TraceFile


class NemoGymReader(TextReader):
    """Requests of one file, rollout by rollout."""

    name = "nemo-gym"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source.has_times = self.source.common_clock = False

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            if isinstance(record.get("responses_create_params"), dict):
                return None
        return "no 'responses_create_params'"

    def read(self) -> Iterator[ChatRequest]:
        for number, record in self.objects():
            asked, reply = record.get("responses_create_params"), record.get("response")
            output = reply.get("output") if isinstance(reply, dict) else None
            if not isinstance(asked, dict) or not isinstance(output, list):
                self.bad(number, BadLineError("no 'responses_create_params' and 'response.output'"))
                continue
            try:
                messages = chatforms.from_responses(asked.get("input"), asked.get("instructions"))
            except ValueError as error:
                self.bad(number, BadLineError(str(error)))
                continue
            task = record.get("instance_id")
            task = record.get("_ng_task_index", number) if task is None else task
            talk = Conversation(f"{task}/{record.get('_ng_rollout_index', 0)}")
            talk.say(*messages)
            talk.tools = _tools(asked.get("tools"))
            model = reply.get("model") or asked.get("model") if isinstance(reply, dict) else None
            talk.model = model if isinstance(model, str) else None
            requests = list(self._rollout(number, talk, output))
            if len(requests) == 1 and isinstance(reply, dict):
                requests[0].usage = chatforms.usage_of(reply.get("usage"))
            yield from requests

    def _rollout(self, number: int, talk: Conversation, output: list[Any]) -> Iterator[ChatRequest]:
        answering = False
        for item in output:
            if not isinstance(item, dict):
                continue
            if _is_model_item(item) and not answering:
                yield talk.request(self.at(number))
            answering = _is_model_item(item)
            chatforms.add_response_item(talk.messages, item)


def _is_model_item(item: dict[str, Any]) -> bool:
    kind = item.get("type") or "message"
    return item.get("role") == "assistant" if kind == "message" else not str(kind).endswith("_output")


def _tools(tools: Any) -> list[dict[str, Any]] | None:
    """Responses lists a function's fields beside its type; chat completions one level down."""
    if not isinstance(tools, list):
        return None
    found = []
    for tool in tools:
        if isinstance(tool, dict) and "function" not in tool and tool.get("type") == "function":
            inner = {key: value for key, value in tool.items() if key not in ("type", "strict")}
            found.append({"type": "function", "function": inner})
        elif isinstance(tool, dict):
            found.append(tool)
    return found or None
