"""Tokenizers: the model's own, and the approximation that stands in for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from eactl.errors import UsageError
from eactl.trace.tokens import ApproximateTokenizer, HuggingFaceTokenizer, filler, open_tokenizer
from tests.trace.tinytokenizer import write_model

APPROXIMATE = ApproximateTokenizer()
CODE = "def main(argument):\n    for index in range(10):\n        print(self.value[index], 1234567)\n"


def pieces(text: str) -> int:
    return len(APPROXIMATE.encode(text))


def test_pieces_split_where_kinds_of_bytes_meet_and_one_space_belongs_to_the_word_behind_it() -> None:
    assert pieces("hello world") == 2  # "hello", " world"
    assert pieces("helloWorld") == 2  # a capital after a small letter
    assert pieces("identifier") == 2  # 10 letters: 7 + 3
    assert pieces("1234567") == 3  # 3 + 3 + 1
    assert pieces("a  b") == 3  # "a", " ", " b"
    assert pieces("\n\n\n") == 2  # line ends in pairs
    assert pieces("((") == 1 and pieces("(((") == 2
    assert pieces("") == 0


def test_code_has_about_a_token_for_every_three_to_four_bytes() -> None:
    assert 2.5 < len(CODE * 50) / pieces(CODE * 50) < 4.5


def test_ids_are_the_same_in_every_process_and_fit_in_31_bits() -> None:
    # Golden on purpose: another process, another day, another machine must give the same ids.
    assert APPROXIMATE.encode("return 42").tolist() == APPROXIMATE.encode("return 42").tolist()
    ids = APPROXIMATE.encode(CODE)
    assert ids.dtype == np.int32 and int(ids.min()) >= 0
    assert len(set(APPROXIMATE.encode(" ".join(f"w{number}" for number in range(2000))).tolist())) > 1000


@given(st.text(max_size=300), st.text(max_size=60), st.text(max_size=60))
def test_equal_beginnings_give_equal_ids_up_to_the_last_pieces(common: str, one: str, other: str) -> None:
    first, second = APPROXIMATE.encode(common + one), APPROXIMATE.encode(common + other)
    # A piece ends where kinds meet, which the next character decides: the last run may be cut differently.
    sure = max(0, len(APPROXIMATE.encode(common)) - 2)
    assert (first[:sure] == second[:sure]).all()


@given(st.text(max_size=200), st.sampled_from(["a", "import", "Z", "9"]), st.text(max_size=50))
def test_a_text_can_be_cut_between_a_line_end_and_a_letter(before: str, letter: str, after: str) -> None:
    whole = APPROXIMATE.encode(before + "\n" + letter + after)
    cut = np.concatenate((APPROXIMATE.encode(before + "\n"), APPROXIMATE.encode(letter + after)))
    assert (whole == cut).all()


@given(st.text(max_size=200))
def test_every_text_can_be_encoded(text: str) -> None:
    assert len(APPROXIMATE.encode(text)) <= len(text.encode("utf-8"))


def test_lone_surrogates_are_survived() -> None:
    assert pieces("a\ud800b") >= 1


def test_filler_depends_on_key_and_position_only() -> None:
    assert (filler("a", 10)[3:] == filler("a", 7, start=3)).all()
    assert not (filler("a", 100) == filler("b", 100)).any()
    assert len(filler("a", 0)) == 0 and len(filler("a", -5)) == 0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def test_a_directory_or_its_file_names_a_tokenizer(model: Path) -> None:
    for path in (model, model / "tokenizer.json"):
        tokenizer = open_tokenizer(str(path))
        assert tokenizer.exact
        assert tokenizer.encode(CODE).tolist() == Tokenizer.from_file(str(model / "tokenizer.json")).encode(CODE).ids


def test_no_tokenizer_means_the_approximation_which_says_so() -> None:
    tokenizer = open_tokenizer(None)
    assert not tokenizer.exact and tokenizer.name == "approximate"


def test_what_a_post_processor_puts_in_front_is_known_apart_from_the_text(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(str(write_model(tmp_path, bos=True)))
    whole = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("hello")
    assert [*tokenizer.begin_ids.tolist(), *tokenizer.encode("hello").tolist()] == whole.ids
    assert len(tokenizer.begin_ids) == 1


def test_bytes_level_tokenizers_can_be_cut_at_line_ends(model: Path) -> None:
    assert HuggingFaceTokenizer(str(model)).splits_at_line_ends


@pytest.mark.parametrize(
    ("contents", "what"), [(None, "no file"), (b"{}", "is no tokenizer"), (b"\x00", "is no tokenizer")]
)
def test_a_tokenizer_that_cannot_be_read_is_refused(tmp_path: Path, contents: bytes | None, what: str) -> None:
    path = tmp_path / "tokenizer.json"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(UsageError, match=what) as caught:
        open_tokenizer(str(path))
    assert caught.value.where == "--tokenizer" and caught.value.hint
