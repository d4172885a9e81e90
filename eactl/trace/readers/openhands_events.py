"""OpenHands evaluation output (``output.jsonl``): one line per task, its prompts rebuilt from the history of events.

A request is a distinct ``tool_call_metadata.model_response.id`` of action events (observations repeat it, several
actions may share one). Prompts are rebuilt: the system prompt is there in newer versions only, and a condensation
rewrites what came before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eactl.errors import TraceError
from eactl.trace.chat import ChatRequest
from eactl.trace.chatforms import first_choice, seconds, usage_of
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.textbase import TextReader, first_objects
from eactl.trace.tracefile import Head, TraceFile


class OpenHandsEventsReader(TextReader):
    """Requests of one output file, task by task."""

    name = "openhands-output"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source.common_clock = False  # times have no zone

    @staticmethod
    def sniff(head: Head) -> str | None:
        for record in first_objects(head):
            if isinstance(record.get("history"), list) and ("instance_id" in record or "issue" in record):
                return None
        return "no 'instance_id' and 'history'"

    def read(self) -> Iterator[ChatRequest]:
        eventless = 0
        for number, record in self.objects():
            history = record.get("history")
            if not isinstance(history, list):
                self.bad(number, BadLineError("no 'history'"))
                continue
            requests = list(self._task(number, record, history))
            eventless += not requests
            yield from requests
        if eventless and not self.source.calls:
            raise TraceError(
                "the events hold no model responses, so where requests begin is not known", where=self.file.name,
                hint="resolver outputs are like that; set log_completions and read the completion logs",
            )  # fmt: skip
        if self.source.calls:
            self.warn("rebuilt-prompts", "OpenHands output holds events, not prompts: they are rebuilt, without tools",
                      "set log_completions and read the completion logs for exact prompts")  # fmt: skip

    def _task(self, number: int, record: dict[str, Any], history: list[Any]) -> Iterator[ChatRequest]:
        issue = record.get("issue")
        named = record.get("instance_id") or (issue.get("number") if isinstance(issue, dict) else None) or number
        talk = Conversation(str(named), hidden=(1, None))
        metadata = record.get("metadata")
        settings = metadata.get("llm_config") if isinstance(metadata, dict) else None
        talk.model = settings.get("model") if isinstance(settings, dict) else None
        seen: set[str] = set()
        started_s: float | None = None
        for event in history:
            if not isinstance(event, dict):
                continue
            action, call = event.get("action"), event.get("tool_call_metadata")
            reply = call.get("model_response") if isinstance(call, dict) else None
            at_s = seconds(event.get("timestamp"))
            if action is not None and isinstance(reply, dict) and reply.get("id"):
                if reply["id"] in seen:
                    continue
                seen.add(str(reply["id"]))
                said = first_choice(reply)
                yield talk.request(
                    self.at(number), response=said, usage=usage_of(reply.get("usage")), started_s=started_s,
                    ended_s=at_s,
                )  # fmt: skip
                if said is not None:
                    talk.say(said)
            elif action == "condensation":
                talk.replace(_condensed(talk, event), "condensation")
            else:
                message = _message(event, call)
                if message is not None:
                    talk.say(message)
                    started_s = at_s


def _message(event: dict[str, Any], call: Any) -> dict[str, Any] | None:
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    if event.get("action") in ("message", "system"):
        role = "system" if event["action"] == "system" else "assistant" if event.get("source") == "agent" else "user"
        return {"role": role, "content": arguments.get("content") or event.get("message") or ""}
    if event.get("observation") is not None and "content" in event:
        if isinstance(call, dict) and call.get("tool_call_id"):
            return {"role": "tool", "tool_call_id": call["tool_call_id"], "content": event["content"]}
        if event["observation"] not in ("null", "agent_state_changed"):
            return {"role": "user", "content": event["content"]}
    return None


def _condensed(talk: Conversation, event: dict[str, Any]) -> list[dict[str, Any]]:
    """What a condensation leaves: the first messages and a summary; which events went is not told by message."""
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    kept = [message for message in talk.messages[:2] if message["role"] in ("system", "user")]
    summary = arguments.get("summary")
    return [*kept, {"role": "user", "content": summary}] if isinstance(summary, str) else kept
