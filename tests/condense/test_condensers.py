"""Models of condensers on append-only histories, and the paper's own example figures."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.condense.answer import Question, answer
from eactl.condense.check import CheckSettings, check
from eactl.condense.condensers import CONDENSERS
from eactl.condense.ledger import Prices, break_even_turns, hysteresis, price_edit
from eactl.condense.result import Strategy
from eactl.condense.strategies import Histories, parse_strategy, run_strategies
from eactl.condense.turns import Event
from eactl.errors import UsageError
from eactl.model.obr import Figure, ObrResult
from eactl.units import GIB, KIB
from tests.condense.chats import Words, assistant, request, system, user

K = 1000


def history(*turns: list[tuple[str, int]]) -> Histories:
    """One session from (role, tokens) per turn; every message has a key of its own."""
    number = 0
    made = []
    for turn in turns:
        events = []
        for role, tokens in turn:
            number += 1
            events.append(Event(role, tokens, number))
        made.append(tuple(events))
    return [("s", tuple(made))]


def run(histories: Histories, *condensers: str, prices: Prices | None = None) -> list[Strategy]:
    specs = [parse_strategy(text, lambda text: len(text.split())) for text in condensers]
    return list(run_strategies(histories, specs, prices or Prices()))


def agent(turns: int, *, result: int = 600, answer_tokens: int = 150) -> Histories:
    """A synthetic agent session: 4,000 tokens of system text and task, then answers and tool results that vary."""
    first = [("system", 3 * K), ("user", K)]
    rest = [[("assistant", answer_tokens), ("tool", result + 37 * (turn % 11))] for turn in range(turns - 1)]
    return history(first, *rest)


# Figure 8: 50K processed; append 1K; or fold 34K of history into a 3K summary at that turn.
FIGURE_8 = history(
    [("system", 2 * K), *[("user", K)] * 48],
    [("user", K)],
)


def test_figure_8_append_submits_51k_of_which_50k_are_stable_and_1k_is_fresh() -> None:
    (row,) = run(FIGURE_8)
    # Two turns: 50K and 51K submitted; only the second has anything before it.
    assert (row.prompt_tokens, row.stable_tokens) == (50 * K + 51 * K, 50 * K)
    assert row.prompt_tokens - 50 * K - row.stable_tokens == 1 * K


def test_figure_8_fold_submits_20k_of_which_2k_are_stable_and_18k_are_fresh() -> None:
    # 51K are more than `at`: all but the head (2K) and the last 15K go into a summary of 3K, so 34K are folded.
    _, row = run(FIGURE_8, "summary:at=50K,keep-first=0,keep-last-tokens=15K,tokens=3K,instruction=0")
    assert row.prompt_tokens == 50 * K + 20 * K
    assert row.stable_tokens == 2 * K
    assert row.prompt_tokens - 50 * K - row.stable_tokens == 18 * K
    # N_inv: of the 18K fresh tokens 1K is the appended message, 17K are computed again because of the fold.
    assert (row.edits, row.removed_tokens, row.refilled_tokens) == (1, 31 * K, 17 * K)
    assert (row.own_calls, row.own_prompt_tokens, row.own_output_tokens) == (1, 34 * K, 3 * K)


def test_figure_8_read_from_a_log_of_messages() -> None:
    # The same with text: a tokenizer that counts words, no tokens around messages.
    def words(count: int, name: str) -> str:
        return " ".join(f"{name}{n}" for n in range(count))

    head, body = system(words(2 * K, "s")), [user(words(K, f"m{n}x")) for n in range(48)]
    appended = user(words(K, "new"))
    folded = [head, user("summary " + words(3 * K - 1, "f")), *body[34:], appended]
    settings = CheckSettings(frame_tokens=0)
    for second, expected in (([head, *body, appended], (51 * K, 50 * K, 1 * K)), (folded, (20 * K, 2 * K, 18 * K))):
        requests = [request({"session": "s", "turn": n, "messages": m}) for n, m in enumerate(([head, *body], second))]
        turn = check(requests, settings, Words()).sessions[0].turns[1]
        assert (turn.prompt_tokens, turn.stable_tokens, turn.fresh_tokens) == expected
    assert (turn.cause, turn.removed_tokens, turn.lost_tokens) == ("summary", 31 * K, 17 * K)


def test_table_13_its_order_of_hit_rate_and_kv_use_on_a_synthetic_agent() -> None:
    rows = run(
        agent(120), "recent-events:max=40,keep-first=1", "observation-masking:window=10",
        "summary:max=160,keep-first=1,tokens=800",
    )  # fmt: skip
    none, recent, masking, summary = rows
    # Hit rate: none 96.5, summary 92.2, recent events 60.9, masking 50.8 %.
    assert none.stable_share > summary.stable_share > max(recent.stable_share, masking.stable_share)
    assert none.stable_share > 0.95 and summary.stable_share > 0.9 and recent.stable_share < 0.7
    # KV use follows the prompt's length: none 52.9, summary 41.1, masking 29.2, recent events 25.6 %.
    assert none.mean_prompt_tokens > summary.mean_prompt_tokens > masking.mean_prompt_tokens
    assert none.mean_prompt_tokens > summary.mean_prompt_tokens > recent.mean_prompt_tokens
    # All three need more prefill than no condenser, which is why all of them lengthened inference.
    assert min(recent.fresh_tokens, masking.fresh_tokens, summary.fresh_tokens) > none.fresh_tokens


def test_cutting_in_steps_computes_far_less_again_than_a_sliding_window_of_the_same_budget() -> None:
    _, sliding, steps = run(agent(300), "sliding-window:budget=40K", "stepwise-cut:budget=40K,high=1.2,low=0.7")
    assert sliding.edits > 10 * steps.edits > 0
    assert sliding.fresh_tokens > 3 * steps.fresh_tokens
    assert steps.stable_share > 0.9


def test_hysteresis_numbers_of_a_125k_budget_that_grows_by_6k() -> None:
    steps = hysteresis(125 * K, 6 * K)
    # Every turn: all but what came in moves, 125,000 - 6,000.
    assert steps.every_turn_tokens_per_turn == 119 * K
    # Between 0.7 and 1.2 times the budget lie 62,500 tokens: 11 turns; 87,500 tokens once in 11 turns.
    assert steps.turns_between_steps == 11
    assert steps.stepwise_tokens_per_turn == round(87_500 / 11, 1)


def test_microcompact_clears_at_once_only_when_it_saves_enough() -> None:
    first = [("system", K), ("user", K)]
    turns = [[("assistant", 100), ("tool", 2 * K)] for _ in range(20)]
    _, row = run(history(first, *turns), "microcompact:at=30K,keep=3,min-saved=20K,placeholder=10")
    # After 14 results the prompt has 2K + 14 * 2.1K = 31.4K: 11 results cleared save 11 * 1,990 = 21,890.
    # After 25 it would be full again; there are only 20, so one edit.
    assert row.edits == 1
    _, never = run(history(first, *turns), "microcompact:at=30K,keep=3,min-saved=50K")
    assert never.edits == 0 and never.prompt_tokens == run(history(first, *turns))[0].prompt_tokens


def test_a_summary_waits_until_the_history_is_long_again_and_counts_each_of_its_own_calls() -> None:
    first = [("system", 100), ("user", 100)]
    turns = [[("assistant", 10), ("tool", 10)] for _ in range(30)]
    _, row = run(history(first, *turns), "summary:max=20,keep-first=1,keep-last=9,tokens=50,instruction=5")
    # 61 body messages; the first fold at 21, to 1 + summary + 9 = 11; then 10 more fit, 5 turns each time.
    assert row.edits == row.own_calls == 5
    assert row.turns_between_edits == 6.0
    # Each own call reads the folded messages and the instruction, from the second on the old summary as well.
    assert row.own_prompt_tokens == 5 * 5 + 4 * 50 + sum(10 for _ in range(11)) + 4 * 100


def test_a_summary_given_as_text_counts_the_tokens_of_the_text() -> None:
    text = "summary:max=4,keep-last=1,text=one, two, three"
    spec = parse_strategy(text, lambda text: len(text.split()))
    assert run_strategies(agent(10), [spec], Prices())[1].own_output_tokens % 3 == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recent", "no condenser 'recent', --condense, choose from recent-events, observation-masking, summary, "
                   "stepwise-cut, sliding-window, microcompact"),
        ("sliding-window", "sliding-window needs budget, --condense, write sliding-window:budget=50000"),
        ("summary:max=zwei", "summary: max=zwei is no number of at least 2, --condense, write 50000 or 50K"),
        ("summary:depth=3", "summary has no parameter 'depth', --condense, it knows at, instruction, keep-first, "
                            "keep-last, keep-last-tokens, max, text, tokens"),
        ("stepwise-cut:budget=10K,high=0.5", "stepwise-cut: low 0.7 is not below high 0.5, --condense, see "
                                             "'eactl condenser-check --help'"),
        ("summary:max", "not a parameter: 'max', --condense summary:max, write NAME:key=value,key=value"),
        ("summary:max=3,max=4", "max is given twice, --condense summary:max=3,max=4, give it once"),
    ],
)  # fmt: skip
def test_a_wrong_condenser_is_refused_with_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_strategy(text, len)
    assert str(caught.value) == message


events = st.lists(
    st.lists(st.tuples(st.sampled_from(["assistant", "tool", "user"]), st.integers(1, 400)), max_size=4), max_size=25
)
SMALL = {
    "recent-events": "max=5,keep-first=2", "observation-masking": "window=3,placeholder=2",
    "summary": "max=6,tokens=20", "stepwise-cut": "budget=900", "sliding-window": "budget=700",
    "microcompact": "at=800,keep=1,min-saved=100",
}  # fmt: skip


@given(events, st.sampled_from(list(CONDENSERS)))
def test_no_condenser_sends_more_than_everything_or_keeps_more_than_it_sends(
    turns: list[list[tuple[str, int]]], name: str
) -> None:
    base, row = run(history([("system", 50), ("user", 30)], *turns), f"{name}:{SMALL[name]}")
    assert row.calls == base.calls
    assert 0 <= row.stable_tokens <= row.prompt_tokens
    # Only a summary or a placeholder can be longer than what it stands for, by its own length.
    assert row.prompt_tokens <= base.prompt_tokens + 20 * row.calls
    assert base.edits == 0 and base.refilled_tokens == 0
    assert (row.edits == 0) <= (row.refilled_tokens == 0)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.floats(0.01, 0.99))
def test_the_break_even_is_the_first_turn_at_which_savings_cover_the_refill(
    removed: int, refilled: int, reused: float
) -> None:
    turns = break_even_turns(removed, refilled, reused)
    assert turns is not None
    cost, saved = refilled * (1 - reused), removed * reused
    assert turns * saved >= cost * (1 - 1e-9)
    assert (turns - 1) * saved < cost * (1 + 1e-9)


def test_the_ledger_of_a_prune_that_shrank_the_prompt_and_lost_the_cache() -> None:
    # 219,771 tokens pruned to 182,410 and nothing reused: 37,361 removed, 182,410 computed again.
    edit = price_edit(37_361, 182_410, 1, Prices(reused_cost=0.1))
    # 182,410 * 0.9 / (37,361 * 0.1) = 43.9.
    assert edit.break_even_turns == 44 and edit.pays is False
    assert price_edit(37_361, 182_410, 50, Prices(reused_cost=0.1)).pays is True
    assert price_edit(0, 100, 5, Prices()).break_even_turns is None


def test_amortised_seconds_are_n_inv_times_t_pf_over_l_cache() -> None:
    # The H20 figures: 24 KiB per token, 26.6 GiB/s, 5.6 µs per token.
    obr = ObrResult(24 * KIB, Figure.exact(26.6 * GIB), Figure.exact(5.6e-6))
    prices = Prices.from_obr(obr)
    edit = price_edit(31_000, 17_000, 10, prices)
    assert edit.amortised_s_per_turn == pytest.approx(17_000 * 5.6e-6 / 10)
    # A reused token costs its restore, 0.86 of 5.6 µs, so removing tokens saves about 0.15 of a prefill each.
    assert prices.reused_cost == pytest.approx(24 * KIB / (26.6 * GIB) / 5.6e-6)
    assert edit.break_even_turns == 4  # 17,000 * 0.846 / (31,000 * 0.154) = 3.02


def test_condensers_run_on_the_messages_that_a_log_shows_were_added() -> None:
    requests = []
    messages = [system(), user("task")]
    for turn in range(12):
        requests.append(request({"session": "s", "turn": turn, "messages": json.loads(json.dumps(messages))}))
        messages += [assistant(f"answer {turn}"), {"role": "tool", "content": f"result {turn} " * 40}]
    spec = parse_strategy("recent-events:max=6", len)
    result = answer(requests, Question(condensers=(spec,)))
    base, recent = result.strategies
    assert base.name == "append-only" and base.calls == recent.calls == 12
    assert base.prompt_tokens == result.summary.prompt_tokens
    assert base.stable_tokens == result.summary.stable_tokens
    assert recent.prompt_tokens < base.prompt_tokens and recent.stable_share < base.stable_share
