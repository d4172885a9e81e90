"""One recorded chat request of a text log, before it is turned into tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

RAW_ROLE = "prompt"  # the role of a message whose text went to the engine as it is, without a chat template


@dataclass(frozen=True, slots=True)
class Usage:
    """What the provider measured: ``prompt_tokens`` is the whole prompt, cached parts included."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # read from the provider's cache
    written_tokens: int | None = None  # newly written to the provider's cache
    output_tokens: int | None = None


@dataclass(slots=True)
class ChatRequest:
    """A request as the client sent it, as far as the log holds it.

    ``messages`` and ``tools`` are the JSON objects of the log, in the order sent, roles as in the OpenAI chat
    format (system, developer, user, assistant, tool), or one message of role ``prompt`` (RAW_ROLE) where the log
    holds the text after templating; ``response`` is the assistant message that came back. Objects are shared
    between the requests of a session: read them, do not change them. Readers that append to a history give it as
    eactl.trace.growing.Grown, so that a turn costs what it adds.
    ``exact`` is False where the log does not hold the true prompt (hidden system prompt, edited history); what
    is known to be missing is bounded by ``hidden_tokens``. Times as in eactl.trace.call.Call.
    """

    session: str | None
    messages: Sequence[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    response: dict[str, Any] | None = None
    usage: Usage | None = None
    turn: int = 0
    model: str | None = None
    adapter: str | None = None
    salt: str | None = None
    arrival_s: float | None = None
    gap_s: float | None = None
    service_s: float | None = None
    exact: bool = True
    hidden_tokens: tuple[int, int | None] = (0, 0)
    prompt_token_ids: list[int] | None = None
    where: str = ""  # file:line
    events: list[str] = field(default_factory=list)  # e.g. "compaction", when the log itself says so
    parent: str | None = None  # the session that started this one (sub-agents)
    response_token_ids: list[int] | None = None
    template_options: dict[str, Any] | None = None  # what the request hands to the chat template
