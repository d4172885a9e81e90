"""The tree of events in a Claude Code transcript, and the prompt that each response answered.

Lines point to their parent. One response (``message.id``) is spread over several assistant lines, one per content
block, and each tool result hangs under the line of its own tool call: a request's prompt is the conversation up to
the response above it, that whole response, every result of its tool calls, and what else lies on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eactl.trace import chatforms
from eactl.trace.chat import Usage
from eactl.trace.chatforms import Message, seconds, usage_of
from eactl.trace.growing import Grown

_MAX_STEPS = 1_000_000


@dataclass(slots=True)
class Response:
    """One response: its content blocks so far, and the conversation before it."""

    key: str
    model: str | None
    parent: str | None  # uuid of the line above
    line: int
    session: str
    before: Response | None = None
    added: list[Message] = field(default_factory=list)  # what the prompt adds to ``before``
    blocks: list[Any] = field(default_factory=list)
    usage: Usage | None = None
    output_tokens: int | None = None
    finished: bool = False  # a stop reason was recorded, so that the output count is final
    arrival_s: float | None = None
    first_s: float | None = None
    end_s: float | None = None
    events: list[str] = field(default_factory=list)
    closed: bool = False
    copied: bool = False  # seen in another file before
    where: str = ""  # file:line, if it is in another file than the rest
    _message: Message | None = None
    _blocks_in_message: int = -1

    @property
    def message(self) -> Message:
        """The response as a message; the same object as long as nothing was added."""
        if self._message is None or self._blocks_in_message != len(self.blocks):
            self._message = chatforms.assistant_message(self.blocks)
            self._blocks_in_message = len(self.blocks)
        return self._message

    def take(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        """Add one line of the response; token counts repeat on every line and only grow."""
        content = message.get("content")
        self.blocks += content if isinstance(content, list) else [{"type": "text", "text": str(content or "")}]
        usage = usage_of(message.get("usage"))
        if usage is not None:
            if usage.prompt_tokens is not None:
                self.usage = usage
            if usage.output_tokens is not None:
                self.output_tokens = max(self.output_tokens or 0, usage.output_tokens)
        self.finished = self.finished or message.get("stop_reason") is not None
        at = seconds(record.get("timestamp"))
        if at is not None:
            self.first_s = at if self.first_s is None else self.first_s
            self.end_s = at if self.end_s is None else max(self.end_s, at)


@dataclass(slots=True)
class _Node:
    parent: str | None
    above: Response | None  # the response it hangs under, or is a line of
    root: str
    own: bool = False  # a line of ``above`` itself
    messages: list[Message] | None = None  # of a user line
    answers: bool = False  # holds tool results
    at_s: float | None = None
    event: str | None = None


class ConversationTree:
    """All lines of one transcript; responses come out with their prompts."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._results: dict[str, list[str]] = {}  # response -> user lines with results of its tool calls
        self._built: dict[str, tuple[Response, Grown[Message]]] = {}

    def __contains__(self, uuid: object) -> bool:
        return isinstance(uuid, str) and uuid in self._nodes

    def root_of(self, record: dict[str, Any]) -> str:
        """The uuid of the first line of the branch on which ``record`` lies: what tells sub-agents apart."""
        parent = self._nodes.get(str(record.get("parentUuid")))
        return str(record.get("uuid")) if parent is None else parent.root

    def add_line(self, record: dict[str, Any], event: str | None = None) -> None:
        """Any line that is no response: it may carry user content, and others may hang under it."""
        uuid = record.get("uuid")
        if not isinstance(uuid, str) or uuid in self._nodes:
            return
        node = self._node(record, uuid)
        node.event = event
        message = record.get("message")
        if record.get("type") == "user" and isinstance(message, dict):
            node.messages = chatforms.from_anthropic([{"role": "user", "content": message.get("content")}])
            node.at_s = seconds(record.get("timestamp"))
            if node.messages and node.messages[0]["role"] == "tool":
                node.answers = True
                if node.above is not None:
                    self._results.setdefault(node.above.key, []).append(uuid)
        self._nodes[uuid] = node

    def add_response_line(self, record: dict[str, Any], response: Response) -> None:
        """One line of ``response``."""
        uuid = record.get("uuid")
        if isinstance(uuid, str) and uuid not in self._nodes:
            node = self._node(record, uuid)
            node.above, node.own = response, True
            self._nodes[uuid] = node

    def place(self, response: Response) -> None:
        """Find what the prompt of a new response added to the conversation before it."""
        chain: list[str] = []
        at, above = response.parent, None
        while isinstance(at, str) and len(chain) < _MAX_STEPS:
            node = self._nodes.get(at)
            if node is None:
                break
            if node.own:
                above = node.above
                break
            chain.append(at)
            at = node.parent if node.parent != at else None
        if above is response:
            above = None
        on_way = set(chain)
        before = chain[::-1]
        if above is not None:
            beside = [uuid for uuid in self._results.get(above.key, ()) if uuid not in on_way]
            before = beside + before
        response.before = above
        for uuid in before:
            node = self._nodes[uuid]
            if node.event is not None and uuid in on_way:
                response.events.append(node.event)
            if node.messages:
                response.added += node.messages
                if node.at_s is not None:
                    response.arrival_s = max(response.arrival_s or 0.0, node.at_s)

    def prompt(self, response: Response) -> Grown[Message]:
        """All messages before ``response``, grown from the session's latest prompt where it goes on from there."""
        built = self._built.get(response.session)
        if built is not None and built[0] is response.before:
            messages = built[1].grown((built[0].message, *response.added))
        else:
            steps: list[Response] = []
            at: Response | None = response
            while at is not None:
                steps.append(at)
                at = at.before
            found: list[Message] = []
            for step in reversed(steps):
                found += step.added
                if step is not response:
                    found.append(step.message)
            messages = Grown(found)
        self._built[response.session] = (response, messages)
        return messages

    def _node(self, record: dict[str, Any], uuid: str) -> _Node:
        parent = record.get("parentUuid")
        parent = parent if isinstance(parent, str) else None
        above = self._nodes.get(parent) if parent is not None else None
        return _Node(parent, None if above is None else above.above, uuid if above is None else above.root)
