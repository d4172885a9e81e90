"""A sketch instead of a log: one small JSON object with two texts or a few numbers, for asking before logging.

- ``{"render_turn1", "render_turn2"}``: two prompts as rendered; does the first one begin the second?
- ``{"generated", "history"}``: an answer as the model wrote it, and as it stands in the next prompt.
- ``{"prefix_tokens", "generated_tokens", "turn2_prompt_tokens", "block"}``: what of a turn can be reused, at most and
  at least.
- ``{"budget", "growth_per_turn", "policies": ["every_turn", {"high", "low"}]}``: cutting a history at every turn
  against cutting it in steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from eactl.condense.ledger import hysteresis
from eactl.condense.result import Hysteresis
from eactl.errors import UsageError
from eactl.trace.chat import RAW_ROLE, ChatRequest, Usage

_MOST_BYTES = 1 << 20
_MOST_TOKENS = 10_000_000


@dataclass(frozen=True)
class Sketch:
    """Requests that stand for the sketch, the block it counts in, and the trimming it asks about."""

    requests: tuple[ChatRequest, ...] = ()
    block_tokens: int | None = None
    trim: Hysteresis | None = None


def read_sketch(path: Path) -> Sketch | None:
    """The sketch in ``path``, or None when the file is anything else. Raises UsageError for senseless numbers."""
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    try:
        record = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict):
        return None
    name = str(path)
    if isinstance(record.get("render_turn1"), str) and isinstance(record.get("render_turn2"), str):
        texts = (record["render_turn1"], record["render_turn2"])
        return Sketch(tuple(_request(name, n, [{"role": RAW_ROLE, "content": t}]) for n, t in enumerate(texts)))
    if isinstance(record.get("generated"), str) and isinstance(record.get("history"), str):
        return _answer(name, record["generated"], record["history"])
    if {"prefix_tokens", "generated_tokens", "turn2_prompt_tokens"} <= record.keys():
        return _counts(name, record)
    if {"budget", "growth_per_turn"} <= record.keys():
        return _trim(name, record)
    return None


def _answer(name: str, generated: str, history: str) -> Sketch:
    question = {"role": "user", "content": "(question)"}
    first = _request(name, 0, [question])
    first.response = {"role": "assistant", "content": generated}
    second = _request(name, 1, [question, {"role": "assistant", "content": history}, question])
    return Sketch((first, second))


def _counts(name: str, record: Mapping[str, Any]) -> Sketch:
    prefix, generated = _whole(record, "prefix_tokens", name), _whole(record, "generated_tokens", name)
    second = _whole(record, "turn2_prompt_tokens", name)
    block = _whole(record, "block", name, least=1) if "block" in record else None
    if second < prefix:
        raise UsageError("turn2_prompt_tokens is below prefix_tokens", where=name, hint="the second prompt holds both")
    raw = [{"role": RAW_ROLE, "content": ""}]
    one, two = _request(name, 0, raw), _request(name, 1, raw)
    one.prompt_token_ids = list(range(prefix))
    one.usage = Usage(prefix, None, None, generated)
    two.prompt_token_ids = list(range(second))
    return Sketch((one, two), block_tokens=block)


def _trim(name: str, record: Mapping[str, Any]) -> Sketch:
    policies = record.get("policies")
    steps: Mapping[str, Any] = {}
    for policy in policies if isinstance(policies, list) else ():
        steps = policy if isinstance(policy, dict) else steps
    high, low = steps.get("high", 1.2), steps.get("low", 0.7)
    if not (isinstance(high, int | float) and isinstance(low, int | float) and 0 < low < high):
        raise UsageError(f"high {high!r} and low {low!r} are no steps", where=name, hint="give high above low above 0")
    budget, growth = _whole(record, "budget", name, least=1), _whole(record, "growth_per_turn", name, least=1)
    head = _whole(record, "head", name) if "head" in record else 0
    return Sketch(trim=hysteresis(budget, growth, head_tokens=head, high=float(high), low=float(low)))


def _whole(record: Mapping[str, Any], key: str, name: str, *, least: int = 0) -> int:
    value = record.get(key)
    if type(value) is not int or not least <= value <= _MOST_TOKENS:
        raise UsageError(
            f"{key} is {value!r}", where=name, hint=f"give a whole number from {least} to {_MOST_TOKENS:,}"
        )
    return value


def _request(name: str, turn: int, messages: list[dict[str, Any]]) -> ChatRequest:
    return ChatRequest(session="sketch", messages=messages, turn=turn, where=f"{name}:1")
