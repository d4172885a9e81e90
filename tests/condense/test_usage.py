"""From usage numbers alone: where the provider's cache stopped."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.condense.check import CheckSettings, check
from eactl.trace.chat import ChatRequest
from tests.condense.chats import growing, request, session, turns_of


def counted(rows: list[tuple[int, int | None]], output: int = 0) -> list[ChatRequest]:
    return [
        request({"session": "s", "turn": n, "prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output})
        for n, (prompt, cached) in enumerate(rows)
    ]


def test_a_cache_that_stops_at_the_same_token_while_the_prompt_grows() -> None:
    turns = turns_of(counted([(50_160, 28_160), (57_160, 28_160), (67_160, 28_160), (76_160, 28_160)]))
    assert [turn.cause for turn in turns] == ["first-call", *["changing-value"] * 3]
    assert turns[1].kind == "prefix cut at token 28,160 every turn"
    assert turns[1].where is not None and turns[1].where.token == 28_160
    assert [turn.stable_tokens for turn in turns] == [0, 28_160, 28_160, 28_160]
    # At least the rest of the previous prompt is computed again: 50,160 - 28,160 and so on.
    assert [turn.lost_tokens for turn in turns[1:]] == [22_000, 29_000, 39_000]


def test_the_plateau_may_begin_after_a_first_call_that_found_nothing() -> None:
    turns = turns_of(counted([(50_000, 0), (57_000, 28_160), (67_000, 28_160)]))
    assert [turn.cause for turn in turns[1:]] == ["changing-value", "changing-value"]


def test_a_cache_that_follows_the_prompt_is_no_break() -> None:
    turns = turns_of(counted([(20_000, 0), (21_000, 19_968), (24_000, 20_992), (24_500, 23_936)]))
    assert [turn.cause for turn in turns] == ["first-call", "append", "append", "append"]


def test_a_prompt_that_shrank_and_lost_its_cache_is_priced() -> None:
    turns = turns_of(counted([(219_771, 219_140), (182_410, 0)]))
    last = turns[1]
    assert last.cause == "edited" and (last.removed_tokens, last.lost_tokens) == (37_361, 182_410)
    assert last.edit is not None and last.edit.break_even_turns == 44 and last.edit.pays is False


@pytest.mark.parametrize(("cached", "kind"), [(0, "nothing was reused"), (8_192, "prefix cut at token 8,192")])
def test_a_single_loss_is_unknown(cached: int, kind: str) -> None:
    turns = turns_of(counted([(20_000, 0), (21_000, 19_968), (24_000, cached), (24_500, 23_936)]))
    assert [turn.cause for turn in turns] == ["first-call", "append", "unknown", "append"]
    assert turns[2].kind.startswith(kind)


def test_counts_without_cached_tokens_are_left_out_and_said() -> None:
    checked = check(counted([(20_000, None), (21_000, None)]), CheckSettings())
    assert checked.sessions == ()
    assert [notice.code for notice in checked.notices] == ["no-text-no-cache-count"]


def test_measured_prompts_scale_the_positions_of_a_text_log() -> None:
    requests = session(growing(4))
    plain = turns_of(requests)
    for made, turn in zip(requests, plain, strict=True):
        made.usage = request({"prompt_tokens": 2 * turn.prompt_tokens, "cached_tokens": 0}).usage
    doubled = turns_of(requests)
    assert [t.prompt_tokens for t in doubled] == [2 * t.prompt_tokens for t in plain]
    for before, after in pairwise(doubled):
        assert after.stable_tokens_lower == before.prompt_tokens
        assert before.prompt_tokens <= after.stable_tokens <= after.prompt_tokens


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6)), min_size=1, max_size=30))
def test_any_counts_give_sound_turns(rows: list[tuple[int, int]]) -> None:
    for turn in turns_of(counted(list(rows))):
        assert 0 <= turn.stable_tokens <= turn.prompt_tokens
        assert turn.fresh_tokens >= 0 and turn.lost_tokens >= 0 and turn.removed_tokens >= 0
        assert turn.lost_tokens <= turn.prompt_tokens
        assert turn.is_break == (turn.where is not None)


def test_generated_ids_make_the_bounds_meet() -> None:
    # 5,000 prompt tokens, 700 generated; the next prompt has 5,753. Whole blocks of 64: 4,992 and 5,696.
    first, generated = list(range(5_000)), list(range(10_000, 10_700))
    second = [*first, *range(20_000, 20_753)]
    requests = [
        request({"session": "s", "turn": 0, "prompt": "", "prompt_token_ids": first, "prompt_tokens": 5_000,
                 "output_tokens": 700}),
        request({"session": "s", "turn": 1, "prompt": "", "prompt_token_ids": second}),
    ]  # fmt: skip
    turn = turns_of(requests)[1]
    assert (turn.cause, turn.stable_tokens_lower, turn.stable_tokens) == ("append", 5_000, 5_700)
    assert (turn.stable_tokens_lower // 64 * 64, turn.stable_tokens // 64 * 64) == (4_992, 5_696)
    requests[0].response_token_ids = generated
    turn = turns_of(requests)[1]
    assert (turn.stable_tokens_lower, turn.stable_tokens) == (5_000, 5_000)  # other ids: nothing generated is reused
    requests[1].prompt_token_ids = [*first, *generated, *range(53)]
    turn = turns_of(requests)[1]
    assert (turn.stable_tokens_lower, turn.stable_tokens) == (5_700, 5_700)
