"""A conversation that is rebuilt from events: what was said so far is the next request's prompt."""

from __future__ import annotations

from typing import Any

from eactl.trace.chat import ChatRequest, Usage
from eactl.trace.chatforms import Message, token_count, usage_of
from eactl.trace.growing import Grown


class _Messages(list[Message]):
    """Messages that may be replaced one by one; how many of the first are as they were when ``kept`` was set."""

    kept = 0

    def __setitem__(self, index: Any, message: Any) -> None:
        at = index if isinstance(index, int) else 0
        self.kept = min(self.kept, at if at >= 0 else len(self) + at)
        super().__setitem__(index, message)


class Conversation:
    """The messages of one session, and requests made of them."""

    def __init__(self, session: str | None, *, hidden: tuple[int, int | None] = (0, 0), exact: bool = False) -> None:
        self.session = session
        self._messages = _Messages()
        self.tools: list[Message] | None = None
        self.model: str | None = None
        self.turns = 0
        self._hidden = hidden
        self._exact = exact
        self._ended_s: float | None = None
        self._events: list[str] = []
        self._shown: Grown[Message] = Grown()  # the latest request's

    @property
    def messages(self) -> list[Message]:
        """What was said so far; append to it, or replace a message."""
        return self._messages

    @messages.setter
    def messages(self, messages: list[Message]) -> None:
        self._messages = _Messages(messages)

    def say(self, *messages: Message) -> None:
        """Append to the conversation."""
        self._messages.extend(messages)

    def replace(self, messages: list[Message], event: str) -> None:
        """Put other messages in place of all: a compaction, named in the next request's events."""
        self.messages = messages
        self._events.append(event)

    def request(
        self, where: str, *, upto: int | None = None, prompt: list[Message] | None = None,
        response: Message | None = None, usage: Usage | None = None, started_s: float | None = None,
        ended_s: float | None = None, token_ids: list[int] | None = None, exact: bool | None = None, peek: bool = False,
    ) -> ChatRequest:  # fmt: skip
        """The next request: its prompt is ``prompt``, else the first ``upto`` messages, else all.

        With ``peek`` the conversation stays as it is: the request may turn out to be none.
        """
        gap = None
        if started_s is not None and self._ended_s is not None and started_s >= self._ended_s:
            gap = started_s - self._ended_s
        service = None
        if ended_s is not None and started_s is not None and ended_s >= started_s:
            service = ended_s - started_s
        events = list(self._events)
        if not peek:
            self._ended_s = ended_s if ended_s is not None else self._ended_s
            self._events.clear()
        exact = self._exact if exact is None else exact
        made = ChatRequest(
            session=self.session, messages=self._prompt(upto) if prompt is None else prompt, tools=self.tools,
            response=response, usage=usage, turn=self.turns,
            model=self.model if isinstance(self.model, str) else None, arrival_s=started_s, gap_s=gap,
            service_s=service, exact=exact, hidden_tokens=(0, 0) if exact else self._hidden,
            prompt_token_ids=token_ids, where=where, events=events,
        )  # fmt: skip
        self.turns += not peek
        return made

    def _prompt(self, upto: int | None) -> Grown[Message]:
        """The first ``upto`` messages, grown from what the latest request showed."""
        end = len(self._messages) if upto is None else upto
        same = min(self._messages.kept, end)
        self._shown = self._shown.upto(same).grown(self._messages[same:end])
        self._messages.kept = end
        return self._shown


def inclusive_usage(record: Any) -> Usage | None:
    """Usage whose total tells the prompt, whether or not its input count holds what came from the cache."""
    if not isinstance(record, dict):
        return None
    total = _first(record, "total_tokens", "total", "totalTokens")
    prompt = _first(record, "input_tokens", "prompt_tokens", "input")
    output = _first(record, "output_tokens", "completion_tokens", "output")
    if total is not None and output is not None and total - output >= (prompt or 0):
        prompt = total - output
    cached = _first(record, "input_tokens_cache_read", "input_cache_read", "input_cached_tokens", "cached_tokens",
                    "cache_read_input_tokens")  # fmt: skip
    written = _first(record, "input_tokens_cache_write", "input_cache_creation", "cache_creation_input_tokens")
    if prompt or output:
        return Usage(prompt or None, cached, written, output)
    return usage_of(record)


def _first(record: dict[str, Any], *names: str) -> int | None:
    found = (token_count(record.get(name)) for name in names)
    return next((count for count in found if count is not None), None)
