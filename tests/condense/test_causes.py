"""Every cause by self-made variants: what changed is planted, so what must be found is known."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest

from eactl.condense.check import CheckSettings, check
from eactl.condense.remedies import remedy
from eactl.condense.result import Turn
from tests.condense.chats import (
    SYSTEM,
    Message,
    assistant,
    exchange,
    growing,
    request,
    session,
    system,
    tool,
    turns_of,
    user,
)

TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": {"type": "object",
     "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}}}
    for name in ("edit", "list", "read", "run")
]  # fmt: skip


def only_break(turns: list[Turn]) -> Turn:
    broken = [turn for turn in turns if turn.is_break]
    assert len(broken) == 1, [(turn.turn, turn.cause, turn.kind) for turn in turns]
    return broken[0]


def test_an_append_only_session_has_no_break_and_every_earlier_token_is_stable() -> None:
    turns = turns_of(session(growing(5)))
    assert [turn.cause for turn in turns] == ["first-call", *["append"] * 4]
    for before, after in pairwise(turns):
        assert after.stable_tokens_lower == before.prompt_tokens
        assert before.prompt_tokens <= after.stable_tokens <= after.prompt_tokens


@pytest.mark.parametrize(
    ("template", "first", "second", "kind"),
    [
        ("Now: {}", "2026-09-30T12:00:01Z", "2026-09-30T12:00:41Z", "clock with second granularity"),
        ("Now: {}", "2026-09-30T12:00:01.123Z", "2026-09-30T12:00:41.002Z", "clock with millisecond granularity"),
        ("Now: {}", "2026-09-30T12:00:01.123456", "2026-09-30T12:00:01.923456", "clock with microsecond granularity"),
        ("Current time: {}", "2026-09-30 12:00", "2026-09-30 12:01", "clock with minute granularity"),
        ("Current time: {}", "9:59 AM", "10:00 AM", "clock with minute granularity"),
        ("Time {} here", "Tue Sep 29 23:59:59 2026", "Wed Sep 30 00:00:07 2026", "clock with second granularity"),
        ("Time {} here", "Tue, 29 Sep 2026 23:59:59 GMT", "Wed, 30 Sep 2026 00:00:07 GMT",
         "clock with second granularity"),
        ("Today is {}.", "2026-09-30", "2026-10-01", "clock with day granularity"),
        ("Today is {}.", "Tuesday, September 29, 2026", "Wednesday, September 30, 2026", "clock with day granularity"),
        ("Today is {}.", "9/30/2026", "10/1/2026", "clock with day granularity"),
        ("ts={}", "1790769601", "1790769641", "clock with second granularity"),
        ("ts={}", "1790769601123", "1790769641007", "clock with millisecond granularity"),
        ("ts={}", "1790769601.123", "1790769641.007", "clock with sub-second granularity"),
        ("Request {}", "3f2a91c4-5b1d-4e7a-9c55-0a1b2c3d4e5f", "9c2a91c4-5b1d-4e7a-9c55-0a1b2c3d4e5f", "id (UUID)"),
        ("Request {}", "req_8fk2a9dk3", "req_1mm2z0ak9", "id (random)"),
        ("Trace {}", "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7a3ce929d0e0e4736", "id (random)"),
        ("Turn {} of the session", "9", "10", "counter (+1)"),
        ("Step {}", "3/40", "4/40", "counter (+1)"),
        ("Tokens left: {}", "12,345", "9,345", "counter (-3000)"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["first line of system", "last line of system", "first user message"])
def test_a_changing_value_is_named_with_its_kind_and_place(
    template: str, first: str, second: str, kind: str, place: str
) -> None:
    def head(value: str) -> list[Message]:
        line = template.format(value)
        if place == "first line of system":
            return [system(f"{line}\n{SYSTEM}"), user("start")]
        if place == "last line of system":
            return [system(f"{SYSTEM}\n{line}"), user("start")]
        return [system(), user(f"{line}\nPlease build the project and tell me what fails.")]

    prompts = [[*head(first)], [*head(second), *exchange(1)]]
    turn = only_break(turns_of(session(prompts)))
    assert (turn.cause, turn.kind) == ("changing-value", kind)
    assert turn.where is not None
    message = 1 if place == "first user message" else 0
    assert turn.where.message == message
    old = prompts[0][message]["content"]
    new = prompts[1][message]["content"]
    offset = turn.where.offset
    assert offset is not None and old[:offset] == new[:offset] and old[offset] != new[offset]
    assert first[-4:] in (turn.where.before or "") and second[-4:] in (turn.where.after or "")
    # All that follows the value is computed again, but for what the turn adds anyway.
    assert turn.lost_tokens > 0 and turn.stable_tokens + turn.lost_tokens < turn.prompt_tokens
    assert turn.remedy


def test_a_billing_header_names_the_switch_that_turns_it_off() -> None:
    prompts = [
        [system(f"x-anthropic-billing-header: cc_version=2.1.{n}; cch={nonce};\n{SYSTEM}"), user("task")]
        + [m for turn in range(1, n + 1) for m in exchange(turn)]
        for n, nonce in enumerate(("0a1b2", "93c4d", "77e5f"))
    ]
    turns = turns_of(session(prompts))
    assert [turn.cause for turn in turns[1:]] == ["changing-value"] * 2
    assert turns[1].kind == "billing header (x-anthropic-billing-header)"
    assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in turns[1].remedy and "36829" in turns[1].remedy


def test_a_clock_in_a_memory_block_is_a_clock_and_a_rewritten_block_is_a_memory_block() -> None:
    def head(memory: str) -> list[Message]:
        return [system(f"{SYSTEM}\n<agent_memory>\n{memory}\n</agent_memory>\nBe brief."), user("start")]

    clock = [head("saved 2026-09-30 10:00:00.123"), [*head("saved 2026-09-30 10:00:09.456"), *exchange(1)]]
    turn = only_break(turns_of(session(clock)))
    assert turn.cause == "changing-value" and turn.kind == "clock with millisecond granularity in <agent_memory>"
    facts = [
        head("- likes tea"),
        [*head("- likes tea\n- works on the parser, which fails on empty input"), *exchange(1)],
    ]
    turn = only_break(turns_of(session(facts)))
    assert (turn.cause, turn.kind) == ("memory-block", "<agent_memory> rewritten in the system message")


def test_a_heading_is_enough_to_recognise_a_memory_section() -> None:
    def head(memory: str) -> list[Message]:
        return [system(f"{SYSTEM}\n\n## Memory\n{memory}\n\n## Style\nBe brief."), user("start")]

    turn = only_break(turns_of(session([head("none yet"), [*head("the user works on a parser"), *exchange(1)]])))
    assert turn.cause == "memory-block"


ENVIRONMENT = "<environment_details>\n# Files\n{}\n</environment_details>"


@pytest.mark.parametrize(
    ("first", "second", "cause", "kind"),
    [
        ([system(), user(f"fix it\n{ENVIRONMENT.format('a.py')}")],
         [system(), user("fix it"), assistant("a"), user(f"next\n{ENVIRONMENT.format('b.py')}")],
         "memory-block", "<environment_details> is taken out of the message once it is history"),
        ([system(f"{SYSTEM}\ngitStatus: main\nM a.py"), user("q")],
         [system(f"{SYSTEM}\ngitStatus: main\nM a.py\nM b.py\n?? c.py"), user("q"), *exchange(1)],
         "memory-block", "the section 'gitStatus' rewritten in the system message"),
        ([system(), user("q")], [system(), system("Memory:\n- likes tea"), user("q"), *exchange(1)],
         "memory-block", "a system message with the section 'Memory' put in"),
        ([system(), user("q"), *exchange(1)],
         [system(), user("q"), user("<system-reminder>the todo list changed</system-reminder>"), *exchange(1)],
         "memory-block", "a user message with <system-reminder> put in"),
        ([system(), user("q")], [system(f"{SYSTEM}\nAlso answer in French."), user("q"), *exchange(1)],
         "edited", "the system message was rewritten (+23 characters)"),
        ([system("You plan. " + SYSTEM), user("q")], [system(SYSTEM[::-1]), user("q"), *exchange(1)],
         "edited", "the system message was rewritten (-10 characters)"),
        ([system("host 10.0.0.12\n" + SYSTEM), user("q")],
         [system("host 10.0.0.13\n" + SYSTEM), user("q"), *exchange(1)], "changing-value", "counter (+1)"),
        ([system("今天是2026年9月30日。\n" + SYSTEM), user("q")],
         [system("今天是2026年10月1日。\n" + SYSTEM), user("q"), *exchange(1)],
         "changing-value", "clock with day granularity"),
        (growing(5)[4], [*growing(6)[5][:3], *growing(6)[5][5:]], "truncated", "2 messages dropped"),
        (growing(5)[4], [system(), user("a brand new task")],
         "truncated", "all 13 messages dropped, a new conversation begins"),
        ([system(), user("q"), assistant("x"), user("r")],
         [system(), user("q"), assistant("something else entirely"), user("r")],
         "edited", "the assistant message was rewritten (+22 characters)"),
    ],
)  # fmt: skip
def test_changes_that_look_like_others_keep_their_own_names(
    first: list[Message], second: list[Message], cause: str, kind: str
) -> None:
    turn = only_break(turns_of(session([first, second])))
    assert (turn.cause, turn.kind) == (cause, kind)


def test_reordered_tools_are_not_changed_tools_and_lose_the_whole_prompt() -> None:
    prompts = growing(2)
    requests = session(prompts, tools=TOOLS)
    requests[1].tools = [TOOLS[3], *TOOLS[:3]]
    turn = only_break(turns_of(requests))
    assert turn.cause == "tools-reordered" and "edit" in turn.kind and "run" in turn.kind
    assert turn.where is not None and (turn.where.message, turn.where.role) == (None, "tools")
    assert turn.stable_tokens < 30 < turn.lost_tokens


def test_where_the_server_renders_the_system_text_first_a_change_of_tools_spares_it() -> None:
    requests = session(growing(2), tools=TOOLS)
    requests[1].tools = TOOLS[::-1]
    tools_first = only_break(turns_of(copy.deepcopy(requests)))
    system_first = only_break(turns_of(requests, CheckSettings(tools_first=False)))
    assert system_first.cause == tools_first.cause == "tools-reordered"
    assert system_first.stable_tokens > tools_first.stable_tokens + 300  # the system text has about 400 tokens


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda tools: [*tools, {"name": "search", "description": "Searches."}], "added search"),
        (lambda tools: tools[:-1], "removed run"),
        (lambda tools: None, "tools are no longer sent"),
        (lambda tools: [{**tools[0], "function": {**tools[0]["function"], "description": "Edits."}}, *tools[1:]],
         "rewritten edit"),
    ],
)  # fmt: skip
def test_changed_tools_are_named(change: Any, kind: str) -> None:
    requests = session(growing(2), tools=TOOLS)
    requests[1].tools = change(TOOLS)
    turn = only_break(turns_of(requests))
    assert (turn.cause, turn.kind) == ("tools-changed", kind)


def test_tools_with_their_keys_in_another_order_are_the_same_json() -> None:
    requests = session(growing(2), tools=TOOLS)
    requests[1].tools = json.loads(json.dumps(TOOLS, sort_keys=True))
    assert json.dumps(requests[1].tools) != json.dumps(TOOLS)
    assert only_break(turns_of(requests)).cause == "same-json"


ARGUMENTS = {"path": "a.py", "new": "x = 1", "at": 3, "note": "größer"}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, sort_keys=True), "keys sorted"),
        (json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, separators=(",", ":")), "other white space"),
        (json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, ensure_ascii=False), "escaped characters written out"),
        (json.dumps(ARGUMENTS), json.dumps(dict(reversed(ARGUMENTS.items()))), "keys in another order"),
        (json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, indent=2), "other white space"),
    ],
)
def test_tool_arguments_that_parse_alike_and_read_otherwise_are_the_same_json(old: str, new: str, kind: str) -> None:
    def prompt(arguments: str, more: list[Message]) -> list[Message]:
        call = {"id": "c1", "type": "function", "function": {"name": "edit", "arguments": arguments}}
        return [system(), user("go"), assistant("", tool_calls=[call]), tool("ok"), *more]

    turn = only_break(turns_of(session([prompt(old, []), prompt(new, exchange(1))])))
    assert (turn.cause, turn.kind) == ("same-json", f"arguments of edit: {kind}")
    assert turn.where is not None and turn.where.path == "tool_calls[0].function.arguments"


def test_arguments_sorted_at_every_turn_still_differ_from_what_the_model_wrote() -> None:
    def call(arguments: str) -> Message:
        return assistant("", tool_calls=[{"id": "c", "function": {"name": "edit", "arguments": arguments}}])

    raw, sent = json.dumps(ARGUMENTS), json.dumps(ARGUMENTS, sort_keys=True)
    requests = session([[system(), user("go")], [system(), user("go"), call(sent), tool("ok")],
                        [system(), user("go"), call(sent), tool("ok"), *exchange(1)]])  # fmt: skip
    requests[0].response = call(raw)
    turns = turns_of(requests)
    assert [turn.cause for turn in turns] == ["first-call", "same-json", "append"]
    assert turns[1].kind == "arguments of edit sent back: keys sorted"
    assert turns[1].stable_tokens >= turns[0].prompt_tokens  # only the output is lost


def test_reasoning_dropped_at_a_user_message_is_told_from_reasoning_dropped_in_the_tool_loop() -> None:
    thought = "The loop starts at one. " * 40
    loop = [system(), user("task"), assistant("", reasoning_content=thought), tool("a.py")]
    stripped = [system(), user("task"), assistant(""), tool("a.py")]
    at_user = [*stripped, assistant("done"), user("next task")]
    turn = only_break(turns_of(session([loop, at_user])))
    assert (turn.cause, turn.kind) == ("reasoning-stripped", "dropped at a new user message")
    in_loop = [*stripped, assistant("more"), tool("b.py")]
    turn = only_break(turns_of(session([loop, in_loop])))
    assert (turn.cause, turn.kind) == ("reasoning-stripped", "dropped at every turn")


@pytest.mark.parametrize("inline", [False, True])
def test_reasoning_that_the_client_does_not_send_back_is_missed_from_the_output_on(inline: bool) -> None:
    thought = "Let me see. " * 30
    answer = (
        assistant(f"<think>{thought}</think>\n\nDone.") if inline else assistant("Done.", reasoning_content=thought)
    )
    requests = session([[system(), user("go")], [system(), user("go"), assistant("Done."), user("more")]])
    requests[0].response = answer
    turn = only_break(turns_of(requests))
    assert (turn.cause, turn.kind) == ("reasoning-stripped", "dropped at a new user message")
    assert turn.stable_tokens >= turn.stable_tokens_lower  # the prompt itself held
    assert turn.lost_tokens < 20


@pytest.mark.parametrize(
    ("generated", "sent", "kind"),
    [
        ("Done.\n\n", "Done.", "trailing white space trimmed"),
        ("  Done.", "Done.", "leading white space trimmed"),
        ("\nDone.\n", "Done.", "white space at both ends trimmed"),
        ("Done", "Done\n", "trailing white space added"),
        ("a\r\nb", "a\nb", "line ends rewritten"),
        ("a  b\n\n\nc", "a b\n\nc", "white space rewritten"),
    ],
)
def test_an_answer_that_differs_in_white_space_is_a_boundary_merge(generated: str, sent: str, kind: str) -> None:
    requests = session([[system(), user("go")], [system(), user("go"), assistant(sent), user("more")]])
    requests[0].response = assistant(generated)
    turn = only_break(turns_of(requests))
    assert (turn.cause, turn.kind) == ("boundary-merge", kind)
    assert "hybrid" in turn.remedy
    in_history = [
        [system(), user("go"), assistant(generated), user("more")],
        [system(), user("go"), assistant(sent), user("more"), *exchange(2)],
    ]
    assert only_break(turns_of(session(in_history))).cause == "boundary-merge"


def test_merged_messages_are_a_boundary_merge() -> None:
    apart = [system(), user("first"), user("second"), *exchange(1)]
    merged = [system(), user("first\n\nsecond"), *exchange(1), *exchange(2)]
    turn = only_break(turns_of(session([apart, merged])))
    assert (turn.cause, turn.kind) == ("boundary-merge", "two user messages merged into one")
    written_into = [[system(), user("first")], [system(), user("first\n\nsecond"), *exchange(1)]]
    turn = only_break(turns_of(session(written_into)))
    assert turn.cause == "boundary-merge"


def test_messages_in_another_order_are_a_render_order() -> None:
    one = [system("Rules.\n" + SYSTEM), {"role": "developer", "content": "House style."}, user("go")]
    other = [one[1], one[0], one[2], *exchange(1)]
    turn = only_break(turns_of(session([one, other])))
    assert turn.cause == "render-order"
    late = [user("go"), one[0], *exchange(1)]
    assert only_break(turns_of(session([[one[0], user("go")], late]))).cause == "render-order"


def test_a_window_that_slides_at_every_turn_is_told_from_a_single_cut() -> None:
    full = growing(9)
    sliding = [prompt if n < 4 else [prompt[0], *prompt[1 + 3 * (n - 3) :]] for n, prompt in enumerate(full)]
    turns = turns_of(session(sliding))
    assert [turn.cause for turn in turns] == ["first-call", *["append"] * 3, *["sliding-window"] * 5]
    assert "1.2 times the budget" in turns[-1].remedy
    stepwise = [prompt if n < 6 else [prompt[0], *prompt[13:]] for n, prompt in enumerate(full)]
    turns = turns_of(session(stepwise))
    assert [turn.cause for turn in turns] == ["first-call", *["append"] * 5, "truncated", *["append"] * 2]
    assert turns[6].kind == "12 messages dropped"


def test_a_cut_with_a_notice_is_still_a_cut() -> None:
    full = growing(6)
    notice = user("[12 earlier messages were removed to save space]")
    turns = turns_of(session([*full[:5], [full[5][0], notice, *full[5][13:]]]))
    assert turns[-1].cause in ("truncated", "sliding-window") and "notice" in turns[-1].kind


@pytest.mark.parametrize(
    "placeholder", ["[Old tool result content cleared]", "<MASKED>", "[output omitted]", "... (truncated)"]
)
def test_a_result_masked_in_place_is_named_with_its_message(placeholder: str) -> None:
    full = growing(4)
    masked = copy.deepcopy(full[3])
    masked[3]["content"] = placeholder  # system, user, assistant, tool
    turn = only_break(turns_of(session([*full[:3], masked])))
    assert turn.cause == "masked" and turn.where is not None and turn.where.message == 3
    assert turn.removed_tokens > 100 and turn.edit is not None


def test_masking_one_more_result_at_every_turn_says_so_and_masking_all_at_once_counts_them() -> None:
    full = growing(8)

    def masked(prompt: list[Message], upto: int) -> list[Message]:
        return [tool("[masked]") if m["role"] == "tool" and n < upto else m for n, m in enumerate(prompt)]

    moving = [masked(prompt, len(prompt) - 7) for prompt in full]
    turns = turns_of(session(moving))
    assert [turn.cause for turn in turns[4:]] == ["masked"] * 4
    assert turns[-1].kind.endswith("again at nearly every turn")
    at_once = [*full[:7], masked(full[7], 14)]
    turn = only_break(turns_of(session(at_once)))
    assert turn.cause == "masked" and "with 3 more" in turn.kind


def test_a_shortened_result_and_a_dropped_image_are_masked() -> None:
    full = growing(3)
    short = copy.deepcopy(full[2])
    short[3]["content"] = short[3]["content"][:300] + "\n[...]\n" + short[3]["content"][-200:]
    assert only_break(turns_of(session([*full[:2], short]))).cause == "masked"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    shown = [system(), user("look"), {"role": "user", "content": [picture]}]
    hidden = [system(), user("look"), {"role": "user", "content": [{"type": "text", "text": "[image]"}]}, *exchange(1)]
    assert only_break(turns_of(session([shown, hidden]))).cause == "masked"


@pytest.mark.parametrize("keep", [0, 3])
def test_a_summary_in_place_of_messages_is_named_and_priced(keep: int) -> None:
    full = growing(8)
    folded = [full[7][0], user("Summary of the conversation so far: the build works."), *full[7][len(full[6]) - keep :]]
    turn = only_break(turns_of(session([*full[:7], folded])))
    assert turn.cause == "summary" and turn.where is not None and turn.where.message == 1
    assert turn.edit is not None and turn.edit.removed_tokens > turn.edit.refilled_tokens
    assert turn.edit.pays is not None


def test_a_log_that_says_compaction_is_believed() -> None:
    full = growing(6)
    folded = [full[5][0], user("The user builds a parser; files a.py and b.py were read."), *full[5][-1:]]
    requests = session([*full[:5], folded])
    requests[-1].events = ["compaction"]
    assert only_break(turns_of(requests)).cause == "summary"


def test_other_bytes_of_an_attachment_are_named_and_the_same_bytes_are_not() -> None:
    def prompt(data: str, more: list[Message]) -> list[Message]:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return [system(), {"role": "user", "content": [{"type": "text", "text": "look"}, picture]}, *more]

    turn = only_break(turns_of(session([prompt("AAAA", []), prompt("AAAB", exchange(1))])))
    assert turn.cause == "attachment" and turn.where is not None and turn.where.path == "content[1]"
    assert not [t for t in turns_of(session([prompt("AAAA", []), prompt("AAAA", exchange(1))])) if t.is_break]


@pytest.mark.parametrize(
    ("field", "cause"), [("salt", "salt"), ("adapter", "adapter-switch"), ("model", "model-switch")]
)
def test_what_separates_kv_breaks_the_prefix_though_the_text_grew(field: str, cause: str) -> None:
    requests = session(growing(4))
    for number, value in enumerate(("a", "a", "b", "b")):
        setattr(requests[number], field, value)
    turns = turns_of(requests)
    assert [turn.cause for turn in turns] == ["first-call", "append", cause, "append"]
    assert turns[2].stable_tokens == 0 and turns[2].lost_tokens >= turns[1].prompt_tokens


def test_going_back_to_a_model_finds_what_it_had_processed() -> None:
    requests = session(growing(3))
    for number, value in enumerate(("a", "b", "a")):
        requests[number].model = value
    turns = turns_of(requests)
    assert turns[2].cause == "model-switch"
    assert turns[2].stable_tokens_lower == turns[0].prompt_tokens


def test_salted_sessions_show_what_the_shared_head_costs_and_mixed_adapters_warn_first() -> None:
    requests = []
    for tenant in ("t0", "t1", "t2"):
        made = session([[system(), user("hi")]], cache_salt=tenant)
        made[0].session = tenant
        requests += made
    checked = check(requests, CheckSettings())
    causes = [s.turns[0].cause for s in checked.sessions]
    assert causes == ["first-call", "salt", "salt"]
    assert checked.sessions[1].turns[0].lost_tokens == checked.sessions[0].turns[0].prompt_tokens
    for number, each in enumerate(requests):
        each.salt, each.adapter = None, f"ad{number % 2}"
    checked = check(requests, CheckSettings())
    assert [s.turns[0].cause for s in checked.sessions] == ["first-call", "adapter-switch", "first-call"]
    assert any(notice.code == "adapters-mixed" for notice in checked.notices)


def test_a_message_rewritten_for_no_visible_reason_is_edited_and_nothing_in_common_is_unknown() -> None:
    full = growing(3)
    rewritten = copy.deepcopy(full[2])
    rewritten[1]["content"] = "please look at the other thing instead, and then at the tests as well"
    assert only_break(turns_of(session([*full[:2], rewritten]))).cause == "edited"
    other = [user("alpha " * 50), assistant("beta " * 50)]
    assert only_break(turns_of(session([[system(), user("one two three")], other]))).cause == "unknown"


def test_quotes_are_short_hide_keys_and_can_be_switched_off() -> None:
    key = "sk-ant-0123456789abcdefghijklmnop"
    prompts = [
        [system(f"Key {key} id {n}a7f3\n{SYSTEM}"), user("go"), *([] if n == 1 else exchange(1))] for n in (1, 2)
    ]
    where = only_break(turns_of(session(prompts))).where
    assert where is not None and where.before is not None and len(where.before) <= 70
    assert "0123456789" not in where.before
    off = only_break(turns_of(session(prompts), CheckSettings(quotes=False))).where
    assert off is not None and off.before is None and off.after is None and off.offset == where.offset


def test_whole_chunks_lost_are_counted_at_the_tiers_chunk_size() -> None:
    prompts = growing(3)
    broken = [*prompts[:2], [system("X" + SYSTEM), *prompts[2][1:]]]
    for chunk in (16, 256, 4096):
        turns = turns_of(session(broken), CheckSettings(chunk_tokens=chunk))
        processed = turns[1].prompt_tokens
        # Before: floor(processed / chunk) chunks and what the output filled up; nothing of them is left.
        assert turns[2].chunks_lost in (processed // chunk, processed // chunk + 1)


def test_two_rendered_prompts_with_nothing_in_common_are_not_called_an_edit() -> None:
    """A user simulator that logs under the agent's session: nobody edited anything."""
    prompts = ["Hi! How can I help you today?", "I just received an order and would like to change it.", "So?"]
    records = [{"session": "s", "turn": n, "prompt": prompt} for n, prompt in enumerate(prompts)]
    turns = turns_of([request(record, n) for n, record in enumerate(records)])
    assert [turn.cause for turn in turns] == ["first-call", "unknown", "unknown"]
    assert remedy(turns[1]).startswith("If two programs write under one session id")
