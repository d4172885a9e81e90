"""Which request continues which: interleaved conversations, calls beside them, logs without sessions, raw prompts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eactl.condense.check import Checked, CheckSettings, check
from eactl.condense.diff import find_change
from eactl.condense.segments import Segmenter, SegmentPool
from eactl.trace.chat import ChatRequest
from eactl.trace.tokens import ApproximateTokenizer
from tests.condense.chats import SYSTEM, Message, assistant, exchange, growing, request, session, system, turns_of, user


def causes(checked: Checked) -> dict[str, list[str]]:
    return {s.session: [turn.cause for turn in s.turns] for s in checked.sessions}


def test_a_condensers_own_call_is_a_stream_beside_the_conversation() -> None:
    full = growing(8)
    text = "\n".join(str(message["content"]) for message in full[5])
    own: list[Message] = [system("You write summaries of conversations."), user(f"Summarise:\n{text}")]
    folded = [full[6][0], user("Summary so far: the build works."), *full[6][-3:]]
    requests = session([*full[:6], own, folded, [*folded, *exchange(9)]])
    checked = check(requests, CheckSettings())
    turns = checked.sessions[0].turns
    assert [turn.cause for turn in turns] == [
        "first-call", *["append"] * 5, "first-call", "summary", "append",
    ]  # fmt: skip
    assert [turn.side for turn in turns] == [False] * 6 + [True, False, False]
    assert turns[6].lost_tokens == 0 and turns[6].stable_tokens == 0


def test_a_sub_agent_interleaved_in_its_parents_session_breaks_neither() -> None:
    main = growing(4)
    agent = [[{**m, "content": f"explorer: {str(m['content'])[::-1]}"} for m in prompt] for prompt in growing(4)]
    mixed = [main[0], agent[0], main[1], agent[1], agent[2], main[2], agent[3], main[3]]
    turns = turns_of(session(mixed))
    assert not [turn for turn in turns if turn.is_break]
    assert [turn.side for turn in turns] == [False, True, False, True, True, False, True, False]


def test_a_conversation_replaced_for_good_is_a_break_not_a_call_beside() -> None:
    full = growing(5, head=[user("preamble")])
    folded = [user("This session is being continued from a previous conversation that ran out of context."),
              user("go on")]  # fmt: skip
    turns = turns_of(session([*full, folded, [*folded, *exchange(7)]]))
    assert [turn.cause for turn in turns[-2:]] == ["summary", "append"]
    assert not any(turn.side for turn in turns)


def interleaved(count: int, turns: int, *, seed: int = 3) -> list[ChatRequest]:
    """Requests of several agents without session ids; they share the system prompt and the first user message."""
    rng = random.Random(seed)
    agents = []
    for agent in range(count):
        messages = [system(), user("solve the task")]
        prompts = []
        for turn in range(turns):
            prompts.append(list(messages))
            messages += [assistant(f"agent {agent} answers {turn}"), user(f"result {rng.random()} of {agent}")]
        agents.append(prompts)
    order = [agent for agent in range(count) for _ in range(turns)]
    rng.shuffle(order)
    requests = []
    for agent in order:
        requests.append(request({"messages": agents[agent].pop(0)}, len(requests)))
    return requests


def test_a_log_without_sessions_is_put_together_by_shared_messages() -> None:
    checked = check(interleaved(6, 8), CheckSettings())
    assert not checked.named and [n.code for n in checked.notices][:1] == ["no-sessions"]
    broken = [turn for s in checked.sessions for turn in s.turns if turn.is_break]
    assert broken == []
    # A first call stands alone only if nothing shows whose it is: the first two requests of an agent share no answer.
    assert sum(len(s.turns) for s in checked.sessions) == 48
    assert len(checked.sessions) <= 12


def test_a_changing_header_is_found_in_a_log_without_sessions() -> None:
    requests = [
        request({"messages": [system(f"nonce {n}a{7 * n}f3c\n{SYSTEM}"), user("go"),
                              *(m for t in range(1, n + 1) for m in exchange(t))]}, n)
        for n in range(4)
    ]  # fmt: skip
    checked = check(requests, CheckSettings())
    assert list(causes(checked).values()) == [["first-call", *["changing-value"] * 3]]


def test_different_questions_behind_one_head_are_different_conversations() -> None:
    requests = [request({"prompt": "S" * 900 + f" q{n}"}, n) for n in range(5)]
    checked = check(requests, CheckSettings(chunk_tokens=16))
    assert list(causes(checked).values()) == [["first-call"]] * 5
    first, *others = [s.turns[0] for s in checked.sessions]
    assert first.shared_tokens == 0
    for turn in others:
        assert turn.shared_tokens == turn.stable_tokens >= 0.95 * turn.prompt_tokens


def raw(texts: list[str], named: bool = True) -> list[ChatRequest]:
    return [request({"session": "s" if named else None, "turn": n, "prompt": text}, n) for n, text in enumerate(texts)]


@pytest.mark.parametrize("named", [True, False])
def test_a_raw_prompt_that_grows_is_append_only(named: bool) -> None:
    text = f"<s>{SYSTEM}\nuser: go\nassistant:"
    texts = [text, text + " ok\nuser: more\nassistant:", text + " ok\nuser: more\nassistant: fine\nuser: x\nassistant:"]
    assert [turn.cause for turn in turns_of(raw(texts, named))] == ["first-call", "append", "append"]


def test_raw_prompts_show_the_generation_prompt_the_cut_and_the_clock() -> None:
    think = "<think></think>"
    texts = [f"<u>Hi<a>{think}", f"<u>Hi<a>Hello<u>Next<a>{think}"]
    turn = turns_of(raw(texts))[1]
    assert turn.cause == "generation-prompt" and turn.where is not None and turn.where.offset == len("<u>Hi<a>")
    lines = [f"line {n} of the prompt with some words" for n in range(60)]
    cut = ["\n".join(lines) + "\n", "\n".join([*lines[:3], *lines[20:], "more"]) + "\n"]
    turn = turns_of(raw(cut))[1]
    assert turn.cause in ("truncated", "sliding-window") and turn.kind == "17 lines dropped"
    clock = ["at 12:00:01\n" + "\n".join(lines), "at 12:00:09\n" + "\n".join(lines) + "\nmore"]
    turn = turns_of(raw(clock))[1]
    assert (turn.cause, turn.kind) == ("changing-value", "clock with second granularity")
    assert turn.where is not None and turn.where.offset == len("at 12:00:0")


def test_two_agents_raw_prompts_in_one_session_break_neither() -> None:
    task = "\n".join(f"line {n} of the task" for n in range(30))
    one = [f"system: You plan.\n{task}\n" + "".join(f"plan {n}\n" for n in range(k)) for k in range(4)]
    other = [f"user: You browse.\n{task}\n" + "".join(f"page {n}\n" for n in range(k)) for k in range(4)]
    turns = turns_of(raw([one[0], one[1], other[0], one[2], "", other[1], one[3], other[2], other[3]]))
    assert not [turn for turn in turns if turn.is_break]


def test_token_ids_alone_show_growth_cuts_and_other_changes() -> None:
    ids = list(range(1_000))

    def one(second: list[int]) -> str:
        requests = [request({"session": "s", "turn": n, "prompt": "", "prompt_token_ids": made}, n)
                    for n, made in enumerate((ids, second))]  # fmt: skip
        turn = turns_of(requests)[1]
        return f"{turn.cause} {turn.stable_tokens}"

    assert one([*ids, 5, 6]) == "append 1000"
    assert one([*ids[:100], *ids[400:], 5]) == "truncated 100"
    assert one([*ids[:100], *range(5_000, 5_050), *ids[100:]]) == "edited 100"
    assert one([*ids[:100], *range(7_000, 7_900)]) == "unknown 100"


def test_a_repeat_and_a_step_back_lose_nothing() -> None:
    full = growing(4)
    turns = turns_of(session([full[0], full[1], full[1], full[0], full[2]]))
    assert [turn.cause for turn in turns][1:4] == ["append"] * 3
    assert turns[2].stable_tokens == turns[2].prompt_tokens
    assert turns[3].stable_tokens == turns[3].prompt_tokens


texts = st.text(alphabet="ab \n", min_size=0, max_size=12)
message = st.builds(lambda role, text: {"role": role, "content": text},
                    st.sampled_from(["system", "user", "assistant", "tool"]), texts)  # fmt: skip
prompts = st.lists(st.lists(message, min_size=1, max_size=6), min_size=1, max_size=6)


@given(prompts, st.booleans())
@settings(max_examples=200)
def test_any_session_gives_sound_turns(made: list[list[Message]], named: bool) -> None:
    requests = session(made)
    if not named:
        for r in requests:
            r.session = None
    checked = check(requests, CheckSettings(chunk_tokens=4))
    turns = [turn for s in checked.sessions for turn in s.turns]
    assert len(turns) == len(made)
    for turn in turns:
        assert 0 <= turn.stable_tokens_lower <= turn.stable_tokens <= turn.prompt_tokens
        assert 0 <= turn.lost_tokens <= turn.fresh_tokens
        assert turn.chunks_lost >= 0 and turn.removed_tokens >= 0
        assert turn.cause in ("first-call", "append") or turn.where is not None
        if turn.where is not None and turn.where.message is not None:
            assert 0 <= turn.where.message <= len(made[turn.turn]) if named else True


spoken = message.filter(lambda made: bool(made["content"]))


@given(st.lists(spoken, min_size=1, max_size=8), st.lists(spoken, min_size=1, max_size=8))
@settings(max_examples=300)
def test_the_first_difference_is_where_a_plain_comparison_finds_it(old: list[Message], new: list[Message]) -> None:
    pool = SegmentPool()
    segmenter = Segmenter(ApproximateTokenizer())
    before, after = (segmenter.prompt(request({"session": "s", "messages": made}), pool) for made in (old, new))
    change = find_change(before, after)
    plain = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    if plain is None:
        assert change is None
        return
    assert change is not None and change.index == plain
    if old[plain]["role"] == new[plain]["role"] and old[plain]["content"] and new[plain]["content"]:
        a, b = str(old[plain]["content"]), str(new[plain]["content"])
        differs = (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
        assert change.offset == next(differs, min(len(a), len(b)))
    # Removed, kept and the differing rest cover all old messages behind the difference up to the last kept one.
    assert all(old[o] == new[n] for o, n in change.kept)
