"""A conversation's requests: each holds what was said until then, whatever is said or replaced afterwards."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eactl.trace.growing import Grown
from eactl.trace.readers.conversation import Conversation

STEPS = st.lists(
    st.tuples(st.sampled_from(("say", "append", "replace one", "replace all", "ask", "peek")), st.integers(-3, 5)),
    max_size=25,
)


@given(STEPS)
def test_each_request_holds_what_had_been_said(steps: list[tuple[str, int]]) -> None:
    talk = Conversation("s")
    said: list[dict[str, Any]] = []
    asked = []
    for number, (step, at) in enumerate(steps):
        message = {"role": "user", "content": str(number)}
        if step == "say":
            talk.say(message)
            said.append(message)
        elif step == "append":
            talk.messages.append(message)
            said.append(message)
        elif step == "replace one" and -len(said) <= at < len(said):
            talk.messages[at] = said[at] = message
        elif step == "replace all":
            said = [*said[: max(at, 0)], message]
            talk.replace(list(said), "compaction")
        elif step in ("ask", "peek"):
            upto = max(0, len(said) + at) if at < 0 else None
            request = talk.request("file:1", upto=upto, peek=step == "peek")
            asked.append((request.messages, said[:upto]))
    for held, expected in asked:
        assert held == expected


def test_a_request_that_adds_shares_the_messages_of_the_one_before() -> None:
    talk = Conversation("s")
    talk.say({"role": "user", "content": "one"})
    first = talk.request("file:1").messages
    talk.say({"role": "assistant", "content": "two"})
    second = talk.request("file:2").messages
    assert isinstance(first, Grown) and first.shares_with(second)
