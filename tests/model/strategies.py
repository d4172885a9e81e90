"""Hypothesis strategies for agent workloads: appends, forks, rewinds, shared system prompts, salts."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.model.oracle import Request

tokens = st.lists(st.integers(0, 3), min_size=0, max_size=40)


@st.composite
def workloads(draw: st.DrawFn, max_requests: int = 14) -> list[Request]:
    """Requests of a few tasks whose prompts extend, rewind or fork what the tasks processed before."""
    system = draw(tokens)
    history: dict[int, list[int]] = {}
    salt: dict[int, str] = {}
    requests: list[Request] = []
    for _ in range(draw(st.integers(1, max_requests))):
        task = draw(st.integers(0, 3))
        if task not in history:
            history[task] = list(system)
            salt[task] = draw(st.sampled_from(["", "", "", "tenant"]))
        kind = draw(st.sampled_from(["append", "append", "append", "same", "rewind", "rewrite"]))
        before = history[task]
        if kind == "rewind":
            before = before[: draw(st.integers(0, len(before)))]
        elif kind == "rewrite" and before:
            at = draw(st.integers(0, len(before) - 1))
            before = [*before[:at], before[at] + 4, *before[at + 1 :]]
        fresh = [] if kind == "same" else draw(tokens)
        prompt = (*before, *fresh) or (9,)
        output = tuple(draw(tokens))
        history[task] = [*prompt, *output]
        requests.append(Request(task, prompt, output, salt[task]))
    return requests
