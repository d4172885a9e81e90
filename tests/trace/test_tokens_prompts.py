"""From requests to prompts: equal beginnings keep equal ids, lengths are the provider's, encoding happens once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from eactl.errors import TraceError
from eactl.trace import TraceOptions, open_trace
from eactl.trace.call import Call, Source
from eactl.trace.chat import RAW_ROLE, ChatRequest, Usage
from eactl.trace.chatcalls import CallMaker
from eactl.trace.parttext import text_blocks
from eactl.trace.promptparts import HIDDEN, TOOLS, Prompt
from eactl.trace.prompts import PromptEncoder
from eactl.trace.templates import ChatTemplate
from eactl.trace.tokens import ApproximateTokenizer, HuggingFaceTokenizer, TokenIds
from eactl.trace.workload import load_workload
from tests.trace.textlogs import jsonl
from tests.trace.tinytokenizer import TEMPLATE, write_model


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def request(
    *messages: dict[str, Any], session: str | None = "s", tokens: int | None = None, **fields: Any
) -> ChatRequest:
    usage = None if tokens is None else Usage(prompt_tokens=tokens)
    return ChatRequest(session=session, messages=list(messages), usage=usage, **fields)


def shared(one: Prompt, other: Prompt) -> int:
    """The common prefix counted id by id, as an oracle."""
    mine, theirs = one.ids(), other.ids()
    length = min(len(mine), len(theirs))
    return next((at for at in range(length) if mine[at] != theirs[at]), length)


class Counting(ApproximateTokenizer):
    """Counts the characters it was given."""

    def __init__(self) -> None:
        self.characters = 0

    def encode(self, text: str) -> TokenIds:
        self.characters += len(text)
        return super().encode(text)


def test_an_appended_turn_repeats_the_ids_before_it_and_encodes_only_itself() -> None:
    tokenizer = Counting()
    encoder = PromptEncoder(tokenizer)
    messages = [user("x" * 1000)]
    before = encoder.encode(request(*messages))
    for turn in range(50):
        messages += [assistant(f"answer {turn}"), user(f"question {turn}")]
        prompt = encoder.encode(request(*messages))
        assert prompt.shared_tokens(before) == before.tokens == shared(prompt, before)
        before = prompt
    assert tokenizer.characters < 1000 + 50 * 100, "time grows with what is new, not with the session"


@given(
    st.lists(st.text(max_size=8), max_size=6), st.lists(st.text(max_size=8), max_size=6),
    st.integers(1, 200), st.integers(1, 200), st.sampled_from([None, "other"]),
)  # fmt: skip
def test_shared_tokens_agree_with_comparing_every_id(
    one: list[str], other: list[str], tokens: int, more: int, session: str | None
) -> None:
    encoder = PromptEncoder()
    first = encoder.encode(request(*map(user, one), tokens=tokens))
    second = encoder.encode(request(*map(user, [*one, *other]), tokens=more, session=session))
    assert second.shared_tokens(first) == shared(second, first)
    assert (len(first.ids()), len(second.ids())) == (tokens, more)


def test_lengths_are_the_providers_and_prefixes_stay_equal_across_sessions() -> None:
    encoder = PromptEncoder()
    system = {"role": "system", "content": "be brief " * 40}
    first = encoder.encode(request(system, user("one"), tokens=500, session="a"))
    second = encoder.encode(request(system, user("two"), tokens=500, session="b"))
    third = encoder.encode(request(system, user("one"), assistant("1"), user("next"), tokens=540, session="a"))
    assert (first.tokens, second.tokens, third.tokens) == (500, 500, 540)
    assert third.shared_tokens(first) == 500
    system_tokens = first.shared_tokens(second)
    assert 0.8 * 500 < system_tokens < 500, "the system message is most of the prompt"
    assert first.measured and not first.exact


def test_a_prompt_shorter_than_what_is_known_of_it_is_cut() -> None:
    encoder = PromptEncoder()
    encoder.encode(request(user("one " * 50), tokens=300))
    shorter = encoder.encode(request(user("one " * 50), assistant("ok"), user("two"), tokens=250))
    assert len(shorter.ids()) == shorter.tokens == 250


def test_an_edited_message_ends_what_is_shared_inside_it() -> None:
    encoder = PromptEncoder()
    first = encoder.encode(request(user("kept"), user("word " * 30 + "old"), user("tail")))
    second = encoder.encode(request(user("kept"), user("word " * 30 + "new"), user("tail")))
    assert second.label_at(second.shared_tokens(first)) == 1
    assert second.label_at(10**6) is None


def test_identifiers_that_no_template_shows_change_nothing() -> None:
    encoder = PromptEncoder()
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    one = request({**assistant(""), "tool_calls": [{**call, "id": "1"}], "id": "random-1"}, {**user("x"), "name": "n"})
    two = request({**assistant(""), "tool_calls": [{**call, "id": "2"}], "id": "random-2"}, {**user("x"), "name": "n"})
    first, second = encoder.encode(one), encoder.encode(two)
    assert first.shared_tokens(second) == first.tokens


def test_tool_definitions_come_first_and_their_order_counts() -> None:
    encoder = PromptEncoder()
    tools = [{"type": "function", "function": {"name": name}} for name in ("alpha", "beta")]
    first = encoder.encode(request(user("x"), tools=tools))
    second = encoder.encode(request(user("x"), tools=tools[::-1]))
    assert first.label_at(0) == TOOLS
    assert second.label_at(second.shared_tokens(first)) == TOOLS


def test_images_are_compared_by_their_bytes_not_their_place() -> None:
    encoder = PromptEncoder()

    def look(digest: str) -> Prompt:
        return encoder.encode(request(user([{"type": "text", "text": "look"}, {"type": "image", "digest": digest}])))

    same, again, other = look("aa"), look("aa"), look("ab")
    assert same.shared_tokens(again) == same.tokens
    assert 0 < same.shared_tokens(other) < 20


def test_hidden_tokens_are_sized_once_a_session_and_kept_after_a_compaction() -> None:
    encoder = PromptEncoder()
    usage = Usage(prompt_tokens=1000, cached_tokens=0)
    hidden = {"exact": False, "hidden_tokens": (1, None)}
    first = encoder.encode(ChatRequest("s", [user("go")], usage=usage, **hidden))
    after = encoder.encode(ChatRequest("s", [user("summary")], usage=Usage(prompt_tokens=1100), **hidden))
    assert first.label_at(0) == HIDDEN
    # Beyond the hidden part: 3 marks of the role, its name, a line end.
    assert after.shared_tokens(first) == len(first.segments[0].ids) + 5
    assert after.tokens == 1100


def test_a_session_goes_on_with_the_same_ids_however_little_is_remembered() -> None:
    # Three sessions take turns; what the provider measured stretches each part and sizes what is hidden.
    plain, forgetful = PromptEncoder(), PromptEncoder(memory_bytes=1)
    messages: list[dict[str, Any]] = [user("task " * 20)]
    for turn in range(1, 6):
        for session in "abc":
            asked = ChatRequest(session, list(messages), usage=Usage(1000 + 300 * turn, cached_tokens=400), exact=False,
                                hidden_tokens=(1, None))  # fmt: skip
            one, other = plain.encode(asked), forgetful.encode(asked)
            assert one.tokens == other.tokens == 1000 + 300 * turn
            assert (one.ids() == other.ids()).all()
        messages += [assistant(f"answer {turn}"), user("result " * (10 * turn))]


def test_recorded_token_ids_are_the_prompt() -> None:
    encoder = PromptEncoder()
    prompt = encoder.encode(request(user("ignored"), prompt_token_ids=[5, 6, 7]))
    assert prompt.exact and prompt.ids().tolist() == [5, 6, 7]
    with pytest.raises(TraceError, match="beyond 2\\^31"):
        encoder.encode(request(user(""), prompt_token_ids=[2**31]))


def test_memory_is_bounded_and_what_was_forgotten_is_made_again() -> None:
    encoder = PromptEncoder(memory_bytes=20_000)
    lengths = [
        encoder.encode(request(user(f"{number} " + "text " * 200), session=None)).tokens for number in range(200)
    ]
    assert encoder._used <= 20_000
    assert encoder.encode(request(user("0 " + "text " * 200), session=None)).tokens == lengths[0]


def test_long_raw_prompts_are_encoded_in_blocks_and_only_where_they_differ() -> None:
    tokenizer = Counting()
    encoder = PromptEncoder(tokenizer)
    text = "".join(f"line {number}\nnext\n" for number in range(4000))
    first = encoder.encode(request({"role": RAW_ROLE, "content": text}))
    before = tokenizer.characters
    second = encoder.encode(request({"role": RAW_ROLE, "content": text + "more\n"}))
    assert tokenizer.characters - before < 5000
    assert second.shared_tokens(first) >= first.tokens - 1
    assert (ApproximateTokenizer().encode(text) == first.ids()).all(), "blocks change no id"


@given(st.text(alphabet="ab \n.1", max_size=200).map(lambda text: text * 40))
def test_blocks_are_the_text(text: str) -> None:
    assert "".join(text_blocks(text)) == text


# With the model's own tokenizer and template.


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def encoder(model: Path) -> PromptEncoder:
    template = ChatTemplate.load(model)
    assert template is not None
    return PromptEncoder(HuggingFaceTokenizer(str(model)), template)


@given(texts=st.lists(st.text(alphabet="abz \n<|>'é中\t", max_size=20), min_size=1, max_size=5))
def test_rendered_prompts_have_the_ids_of_the_whole_text(encoder: PromptEncoder, model: Path, texts: list[str]) -> None:
    """Pieces between special tokens are encoded one by one; the oracle encodes the rendered text at once."""
    messages = [user(text) if at % 2 == 0 else assistant(text) for at, text in enumerate(texts)]
    prompt = encoder.encode(request(*messages))
    assert encoder.template is not None
    text = encoder.template.render(messages)
    expected = Tokenizer.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    assert prompt.ids().tolist() == expected
    assert prompt.exact


def test_stripped_reasoning_shows_as_a_break_where_it_was(encoder: PromptEncoder) -> None:
    thinking = {**assistant("done"), "reasoning_content": "because " * 20}
    first = encoder.encode(request(user("task"), thinking, user("more")))
    second = encoder.encode(request(user("task"), assistant("done"), user("more"), user("yet more")))
    start = len(encoder.encode(request(user("task"))).ids())  # ends with the generation prompt of the first answer
    assert start - 1 <= second.shared_tokens(first) <= start + 1


def test_the_output_is_not_taken_for_reusable(tmp_path: Path, model: Path) -> None:
    """A prompt's text of the last answer need not have the ids that were generated: two bounds, not one number."""
    log = jsonl(
        tmp_path / "log.jsonl",
        {"session": "s", "messages": [user("hello there")], "response": assistant("general answer " * 20)},
        {"session": "s", "messages": [user("hello there"), assistant("general answer " * 20), user("more")]},
    )
    opened = open_trace([log], TraceOptions(tokenizer=str(model)))
    work = load_workload(opened)
    (source,) = opened.sources
    assert source.exact and source.tokenizer is not None
    first, second = work.prompt_tokens.tolist()
    lower = int(work.shared_with_previous(with_output=False)[1])
    assert lower <= first < lower + int(work.output_tokens[0]) <= second
    assert not work.prompts_exact, "so that stable tokens are given as bounds"


def test_raw_prompts_begin_as_the_completions_api_lets_them(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(str(write_model(tmp_path, bos=True)))
    prompt = PromptEncoder(tokenizer).encode(request({"role": RAW_ROLE, "content": "hello there"}))
    expected = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("hello there").ids
    assert prompt.ids().tolist() == expected and prompt.exact


def test_counts_that_differ_from_the_providers_are_reported(tmp_path: Path, model: Path) -> None:
    message = user("hello " * 100)
    log = jsonl(tmp_path / "log.jsonl", {"session": "s", "messages": [message], "usage": {"prompt_tokens": 5000}})
    opened = open_trace([log], TraceOptions(tokenizer=str(model)))
    (call,) = list(opened)
    assert call.prompt_tokens < 1000, "a tokenizer given for another model decides"
    assert "counts-differ" in {notice.code for notice in opened.sources[0].warnings}


def test_a_template_alone_renders_with_approximate_tokens(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    log = jsonl(tmp_path / "log.jsonl", {"session": "s", "messages": [user("hello")]})
    opened = open_trace([log], TraceOptions(chat_template=str(tmp_path / "t.jinja")))
    (call,) = list(opened)
    text = ChatTemplate(TEMPLATE).render([user("hello")])
    assert text.endswith("<|im_start|>assistant\n")
    assert call.prompt_tokens == len(ApproximateTokenizer().encode(text))
    assert not opened.sources[0].exact


def test_ids_of_a_session_are_views_that_later_prompts_do_not_change(tmp_path: Path) -> None:
    lines = [{"session": "s", "messages": [user(f"m{n}" * 20) for n in range(turn + 1)]} for turn in range(5)]
    lines.append({"session": "s", "messages": [user("another start")]})
    log = jsonl(tmp_path / "log.jsonl", *lines)
    kept = [(call, call.ids.copy()) for call in open_trace([log])]
    for call, copy in kept:
        assert np.array_equal(call.ids, copy)
        assert len(call.ids) == call.prompt_tokens


@given(
    st.lists(st.tuples(st.lists(st.sampled_from(("a", "b b", "c c c c")), max_size=6), st.none() | st.integers(20, 90)),
             min_size=2, max_size=8)
)  # fmt: skip
def test_what_a_call_is_said_to_keep_of_the_one_before_is_there(turns: list[tuple[list[str], int | None]]) -> None:
    maker, source = CallMaker(PromptEncoder()), Source("file", "native", "tokens", 1)
    before: Call | None = None
    for texts, tokens in turns:
        call = maker.call(request(user("go"), *map(assistant, texts), tokens=tokens), source)
        assert call is not None
        if before is None:
            assert call.keep == 0
        else:
            assert call.keep <= min(len(call.ids), len(before.ids))
            assert (call.ids[: call.keep] == before.ids[: call.keep]).all()
        before = call


def test_an_appended_turn_keeps_the_whole_prompt_before_it() -> None:
    maker, source = CallMaker(PromptEncoder()), Source("file", "native", "tokens", 1)
    first = maker.call(request(user("go"), tokens=20), source)
    second = maker.call(request(user("go"), assistant("yes"), tokens=30), source)
    assert first is not None and second is not None
    assert (second.keep, second.prompt_tokens) == (20, 30)
