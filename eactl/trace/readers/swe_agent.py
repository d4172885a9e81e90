"""Trajectories of SWE-agent (``.traj``) and mini-swe-agent (``.traj.json``): one file is one task.

SWE-agent: a step is a request. Steps that hold their prompt (``messages`` or ``query``) are exact; else it is rebuilt
from ``history``, which is wrong in the middle where a history processor left old observations out of the prompt.
mini-swe-agent appends only: a request's prompt is what stands before the assistant message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eactl.trace.chat import ChatRequest
from eactl.trace.chatforms import Message, seconds, usage_of
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.conversation import Conversation
from eactl.trace.readers.document import DocumentReader, beginning, objects_in
from eactl.trace.tracefile import Head, TraceFile

_NOT_IN_PROMPT = (
    "agent",
    "message_type",
    "is_demo",
    "thought",
    "action",
    "extra",
    "cache_control",
    "tags",
    "timestamp",
)


class SweAgentReader(DocumentReader):
    """Requests of one SWE-agent trajectory; it records no times."""

    name = "swe-agent"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source.has_times = self.source.common_clock = False

    @staticmethod
    def sniff(head: Head) -> str | None:
        document = beginning(head)
        if not isinstance(document, dict):
            return "no JSON object"
        steps = document.get("trajectory")
        if isinstance(steps, list) and (not steps or (isinstance(steps[0], dict) and "action" in steps[0])):
            return None
        history = document.get("history")
        ours = isinstance(history, list) and bool(history) and isinstance(history[0], dict) and "agent" in history[0]
        return None if ours else "no 'trajectory' of steps"

    def read(self) -> Iterator[ChatRequest]:
        document = self.document()
        if document is None:
            return
        if not isinstance(document, dict):
            self.bad(1, BadLineError("no JSON object"))
            return
        history = objects_in(document.get("history"))
        steps = objects_in(document.get("trajectory"))
        messages = [_clean(message) for message in history]
        answers = [at for at, message in enumerate(history) if _is_answer(message)]
        talk = Conversation(_task(self.file.path), hidden=(0, None))
        talk.say(*messages)
        rebuilt = 0
        for number in range(len(steps) or len(answers)):
            step = steps[number] if steps else {}
            prompt = step.get("messages") or step.get("query")
            where = f"{self.file.name}:step {number + 1}"
            answer = step.get("response")
            if isinstance(prompt, list) and all(isinstance(message, dict) for message in prompt):
                sent = [_clean(message) for message in prompt]
                has_tools = any("tool_calls" in message for message in sent)
                yield talk.request(where, prompt=sent, response=_text(answer), exact=not has_tools)
                continue
            rebuilt += 1
            upto = answers[number] if number < len(answers) else len(messages)
            response = messages[upto] if upto < len(messages) else _text(answer)
            yield talk.request(where, upto=upto, response=response)
        if rebuilt:
            self.warn(
                "rebuilt-prompts",
                "SWE-agent logged no prompts, so they are rebuilt from the history: where a history processor leaves "
                "out old observations, the true prompt changes in its middle",
                "bound what is reused from above by this; newer versions log 'query' with each step",
            )


class MiniSweAgentReader(DocumentReader):
    """Requests of one mini-swe-agent trajectory."""

    name = "mini-swe-agent"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source.has_times = self.source.common_clock = isinstance(beginning(file.head), dict)

    @staticmethod
    def sniff(head: Head) -> str | None:
        document = beginning(head)
        if isinstance(document, dict):
            named = str(document.get("trajectory_format", "")).startswith("mini-swe-agent")
            info = document.get("info")
            ours = named or (isinstance(info, dict) and ("mini_version" in info or "model_stats" in info))
            return None if ours and isinstance(document.get("messages"), list) else "no 'trajectory_format'"
        if isinstance(document, list) and document and all(_is_message(message) for message in document[:8]):
            return None
        return "no list of messages"

    def read(self) -> Iterator[ChatRequest]:
        document = self.document()
        if document is None:
            return
        messages = document.get("messages") if isinstance(document, dict) else document
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            self.bad(1, BadLineError("no list of messages"))
            return
        has_tools = any("tool_calls" in message for message in messages)
        talk = Conversation(_task(self.file.path), hidden=(0, None if has_tools else 0), exact=not has_tools)
        talk.model = _model(document)
        started_s: float | None = None
        for number, message in enumerate(messages, 1):
            extra = message.get("extra")
            extra = extra if isinstance(extra, dict) else {}
            at_s, said = seconds(extra.get("timestamp")), _clean(message)
            if message.get("role") == "assistant":
                reply = extra.get("response")
                usage = usage_of(reply.get("usage")) if isinstance(reply, dict) else None
                yield talk.request(
                    f"{self.file.name}:message {number}", response=said, usage=usage,
                    started_s=at_s if started_s is None else started_s, ended_s=at_s,
                )  # fmt: skip
            started_s = at_s
            if message.get("role") != "exit":
                talk.say(said)


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict) and value.get("role") in ("system", "user", "assistant", "tool") and "content" in value
    )


def _is_answer(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" and not message.get("is_demo")


def _clean(message: dict[str, Any]) -> Message:
    """The message without what the agent noted beside it."""
    kept = {key: value for key, value in message.items() if key not in _NOT_IN_PROMPT}
    ids = kept.pop("tool_call_ids", None)
    if isinstance(ids, list) and ids:
        kept["tool_call_id"] = ids[0]
    if kept.get("tool_calls") is None:
        kept.pop("tool_calls", None)
    return kept


def _text(answer: Any) -> Message | None:
    return {"role": "assistant", "content": answer} if isinstance(answer, str) and answer else None


def _task(path: Path) -> str:
    return path.name.removesuffix(".json").removesuffix(".traj")


def _model(document: Any) -> str | None:
    for key in ("info", "config", "model", "model_name"):
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, str) else None
