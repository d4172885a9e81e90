"""Chat requests for tests, made from plain dictionaries, and the shortest way to a checked session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eactl.condense.check import CheckSettings, check
from eactl.condense.result import Turn
from eactl.trace.chat import RAW_ROLE, ChatRequest, Usage
from eactl.trace.tokens import Tokenizer

Message = dict[str, Any]

SYSTEM = "You are a build helper.\n" + "\n".join(f"Rule {n}: keep answer number {n} short." for n in range(40))


def system(text: str = SYSTEM) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, **extra: Any) -> Message:
    return {"role": "assistant", "content": text, **extra}


def tool(text: str) -> Message:
    return {"role": "tool", "tool_call_id": "c", "content": text}


def exchange(turn: int) -> list[Message]:
    """What one turn adds to the history: an answer, a long tool result, the next question."""
    result = "\n".join(f"line {line} of result {turn}" for line in range(60))
    return [assistant(f"answer {turn}"), tool(result), user(f"question {turn}")]


def growing(turns: int, head: Sequence[Message] = ()) -> list[list[Message]]:
    """The prompts of an append-only session of ``turns`` requests."""
    messages = [*(head or [system()]), user("task")]
    prompts = [list(messages)]
    for turn in range(1, turns):
        messages += exchange(turn)
        prompts.append(list(messages))
    return prompts


def request(record: Mapping[str, Any], number: int = 0) -> ChatRequest:
    """One line of the plain format as a request."""
    prompt = record.get("prompt")
    messages = record.get("messages") or ([{"role": RAW_ROLE, "content": prompt}] if prompt is not None else [])
    usage = None
    if record.get("prompt_tokens") is not None:
        usage = Usage(record["prompt_tokens"], record.get("cached_tokens"), None, record.get("output_tokens"))
    return ChatRequest(
        session=record.get("session"), messages=messages, tools=record.get("tools"), response=record.get("response"),
        usage=usage, turn=record.get("turn", number), model=record.get("model"),
        adapter=record.get("adapter", record.get("lora")), salt=record.get("salt", record.get("cache_salt")),
        prompt_token_ids=record.get("prompt_token_ids"), where=f"log.jsonl:{number + 1}",
        exact=record.get("exact", True), events=record.get("events", []),
    )  # fmt: skip


def session(prompts: Iterable[Any], **extra: Any) -> list[ChatRequest]:
    """One session's requests from lists of messages; ``extra`` goes into every one. Messages are fresh copies, as if
    each had been parsed from a line of its own."""
    records = [{"session": "s", "turn": n, "messages": m, **extra} for n, m in enumerate(prompts)]
    return [request(json.loads(json.dumps(record)), n) for n, record in enumerate(records)]


def turns_of(
    requests: Iterable[ChatRequest], settings: CheckSettings | None = None, tokenizer: Tokenizer | None = None
) -> list[Turn]:
    """The turns of the one session in ``requests``."""
    checked = check(requests, settings or CheckSettings(), tokenizer)
    assert len(checked.sessions) == 1, [s.session for s in checked.sessions]
    return list(checked.sessions[0].turns)


class Words:
    """A tokenizer whose tokens are the words between spaces: counts can be done by hand."""

    name = "words"
    exact = True
    begin_ids = ()

    def encode(self, text: str) -> Any:
        import numpy as np

        return np.array([hash(word) % (1 << 31) for word in text.split()], dtype=np.int32)
