"""With the model's own chat template: breaks that the messages alone do not show."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("jinja2", reason="chat templates need jinja2")

from eactl.condense.check import Checked, CheckSettings, check
from eactl.condense.result import Turn
from eactl.trace.chat import ChatRequest
from eactl.trace.templates import ChatTemplate, TemplateError
from tests.condense.chats import SYSTEM, Words, assistant, exchange, growing, session, system, tool, user

# In the manner of Qwen3: reasoning is shown after the last user message only; with thinking off the generation prompt
# ends in an empty think block, unless the history keeps it.
TEMPLATE = """\
{%- if messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}<|im_start|>assistant
{% if m.reasoning_content and (keep_thinking is defined or loop.index0 > ns.last) %}<think>
{{ m.reasoning_content }}
</think>

{% elif keep_thinking is defined and enable_thinking is defined %}<think>

</think>

{% endif %}{{ m.content }}<|im_end|>
{% elif m.role != 'system' %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""
THOUGHT = "The loop starts at one, so the last file is missed. " * 20


def rendered(requests: list[ChatRequest], text: str = TEMPLATE, **options: Any) -> Checked:
    template = ChatTemplate(text, options=options)
    try:
        return check(requests, CheckSettings(), Words(), template)
    finally:
        template.close()


def turns(checked: Checked) -> tuple[Turn, ...]:
    return checked.sessions[0].turns


def test_a_template_that_only_appends_breaks_nothing_and_counts_are_those_of_the_text() -> None:
    found = turns(rendered(session(growing(4))))
    assert [turn.cause for turn in found] == ["first-call", "append", "append", "append"]
    # Words in "<|im_start|>system", the 40 rules and their first line, "<|im_start|>user task<|im_end|>", assistant.
    words = len(f"<|im_start|>system {SYSTEM}<|im_end|> <|im_start|>user task<|im_end|> <|im_start|>assistant".split())
    assert found[0].prompt_tokens == words


def test_an_empty_think_block_that_vanishes_from_history_is_the_generation_prompt() -> None:
    found = turns(rendered(session(growing(3)), enable_thinking=False))
    assert [turn.cause for turn in found[1:]] == ["generation-prompt"] * 2
    assert found[1].where is not None and "<think>" in (found[1].where.before or "")
    assert "answer 1" in (found[1].where.after or "")
    assert found[1].lost_tokens < 20  # the answer, generated behind the block
    assert "preserve_thinking" in found[1].remedy
    kept = turns(rendered(session(growing(3)), enable_thinking=False, keep_thinking=True))
    assert not [turn for turn in kept if turn.is_break]


def loop_then_user() -> list[ChatRequest]:
    loop = [system(), user("task"), assistant("a", reasoning_content=THOUGHT), tool("x")]
    longer = [*loop, assistant("b", reasoning_content=THOUGHT), tool("y")]
    return session([loop[:2], loop, longer, [*longer, assistant("done", reasoning_content=THOUGHT), user("next")]])


def test_reasoning_is_kept_in_the_tool_loop_and_dropped_at_the_next_user_message() -> None:
    found = turns(rendered(loop_then_user()))
    assert [turn.cause for turn in found] == ["first-call", "append", "append", "reasoning-stripped"]
    last = found[3]
    assert last.kind == "the template drops it at a new user message"
    assert last.where is not None and (last.where.message, last.where.role) == (2, "assistant")
    assert "The loop starts" in (last.where.before or "")
    assert not [turn for turn in turns(rendered(loop_then_user(), keep_thinking=True)) if turn.is_break]


def test_a_change_of_the_messages_keeps_its_own_name_under_a_template() -> None:
    prompts = [
        [system("now 12:00:01\n" + SYSTEM), user("q")],
        [system("now 12:00:02\n" + SYSTEM), user("q"), *exchange(1)],
    ]
    turn = turns(rendered(session(prompts)))[1]
    assert (turn.cause, turn.kind) == ("changing-value", "clock with second granularity")
    assert turn.stable_tokens == 2  # "<|im_start|>system now"


def test_a_clock_that_the_template_writes_is_a_changing_value() -> None:
    text = "Today: {{ strftime_now('%Y-%m-%d %H:%M') }}\n" + TEMPLATE
    requests = session(growing(3))
    for number, request in enumerate(requests):
        request.arrival_s = 1_790_769_600.0 + 61 * number
    found = turns(rendered(requests, text))
    assert [turn.cause for turn in found[1:]] == ["changing-value"] * 2
    assert found[1].kind == "clock with minute granularity, written by the template"


def test_tools_rendered_before_the_last_user_message_are_a_render_order() -> None:
    # In the manner of Mistral: the tools stand before the last user message and move with it.
    text = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in messages %}{% if loop.index0 == ns.last %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]
{% endif %}[{{ m.role }}]{{ m.content }}
{% endfor %}"""
    tools = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}]
    found = turns(rendered(session(growing(3), tools=tools), text))
    assert [turn.cause for turn in found[1:]] == ["render-order"] * 2
    assert found[1].kind == "the template puts the tools at another place"


def test_a_template_that_refuses_a_request_is_said_and_the_messages_are_compared() -> None:
    text = "{% if messages | length > 2 %}{{ raise_exception('too many messages') }}{% endif %}" + TEMPLATE
    checked = rendered(session(growing(3)), text)
    assert [turn.cause for turn in turns(checked)] == ["first-call", "append", "append"]
    notice = next(notice for notice in checked.notices if notice.code == "template-refused")
    assert "too many messages" in notice.text


def test_options_that_a_request_hands_to_the_template_are_its_own() -> None:
    """vLLM's ``chat_template_kwargs``: thinking switched off in a log breaks the prefix as if on the server."""
    logged = session(growing(3))
    for each in logged:
        each.template_options = {"enable_thinking": False}
    by_request, by_server = turns(rendered(logged)), turns(rendered(session(growing(3)), enable_thinking=False))
    assert [turn.cause for turn in by_request] == ["first-call", "generation-prompt", "generation-prompt"]
    assert [(turn.cause, turn.lost_tokens) for turn in by_request] == [
        (turn.cause, turn.lost_tokens) for turn in by_server
    ]


def test_a_template_that_never_ends_stops_the_check_at_the_first_prompt() -> None:
    template = ChatTemplate(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", render_s=1
    )
    try:
        with pytest.raises(TemplateError, match="takes more than 1 s"):
            check(session(growing(50)), CheckSettings(), Words(), template)
    finally:
        template.close()
