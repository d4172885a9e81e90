"""Block ids of token prompts: what they say of prefixes to everybody, and of tokens to nobody without the salt."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.errors import EactlError
from eactl.trace.salt import Salt
from eactl.trace.token_blocks import SaltedBlocks

SECRET = b"a secret of more than sixteen bytes"
prompts = st.lists(
    st.tuples(st.integers(0, 90), st.lists(st.integers(0, 2) | st.just(2**40), max_size=14)), max_size=120
)
sizes = st.sampled_from([1, 2, 3, 5])


def salt(secret: bytes = SECRET) -> Salt:
    return Salt.given(secret, where="test")


def ids_of(blocks: SaltedBlocks, task: object, tokens: list[int]) -> list[int]:
    """As the readers hold them: in 32 bits where the ids fit."""
    narrow = max(tokens, default=0) < 2**31
    return blocks.of(str(task), np.array(tokens, dtype=np.int32 if narrow else np.int64)).tolist()


@given(prompts=prompts, size=sizes)
def test_ids_are_equal_exactly_where_prefixes_of_whole_blocks_are(
    prompts: list[tuple[int, list[int]]], size: int
) -> None:
    blocks = SaltedBlocks(Salt.random(), size)
    prefix_of: dict[int, tuple[int, ...]] = {}
    for task, tokens in prompts:
        ids = ids_of(blocks, task, tokens)
        assert len(ids) == len(tokens) // size
        for end, number in enumerate(ids, 1):
            prefix = tuple(tokens[: end * size])
            assert prefix_of.setdefault(number, prefix) == prefix
    assert len(set(prefix_of.values())) == len(prefix_of)


@given(prompts=prompts, size=sizes)
def test_ids_depend_on_nothing_but_salt_size_and_prefix(prompts: list[tuple[int, list[int]]], size: int) -> None:
    blocks = SaltedBlocks(salt(), size)
    together = [ids_of(blocks, task, tokens) for task, tokens in prompts]
    alone = [ids_of(SaltedBlocks(salt(), size), 0, tokens) for _, tokens in reversed(prompts)]
    assert together == alone[::-1]


@given(tokens=st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
def test_other_salts_and_sizes_have_no_id_in_common(tokens: list[int]) -> None:
    numbers = [
        number
        for key in (salt(), salt(SECRET + b"2"), Salt.random(), Salt.random())
        for size in (1, 2)
        for number in ids_of(SaltedBlocks(key, size), 0, tokens)
    ]
    assert len(set(numbers)) == len(numbers)


def test_the_hash_is_the_one_that_is_documented() -> None:
    # The same by other code, so that ids of one salt stay the same from version to version.
    key = blake2b(SECRET, digest_size=32, person=b"eactl blocks").digest()
    link, expected = bytes(8), []
    for block in ([5, 6], [7, 2**40]):
        data = link + b"".join(token.to_bytes(8, "little") for token in block)
        link = blake2b(data, key=key, digest_size=8).digest()
        expected.append(int.from_bytes(link, "little") % 2**63)
    assert ids_of(SaltedBlocks(salt(), 2), 0, [5, 6, 7, 2**40, 9]) == expected


def test_ids_use_all_63_bits() -> None:
    # Of 2^63 ids ten million are all different in 99.9995 % of all traces; of 2^53 only in 99.4 %.
    ids = SaltedBlocks(Salt.random(), 1).of("a", np.arange(20_000))
    assert len(np.unique(ids)) == 20_000
    assert ids.min() >= 0
    for bit in range(63):  # half of 20,000, six standard deviations of 71 either way
        assert abs(int((ids >> bit & 1).sum()) - 10_000) < 6 * 71


def test_names_become_digits_that_only_the_salt_gives_again() -> None:
    name = salt().name("/home/me/secret project")
    assert name == salt().name("/home/me/secret project")
    assert len(name) == 16
    assert set(name) <= set("0123456789abcdef")
    assert len({name, salt().name(""), Salt.random().name("/home/me/secret project"), salt().name("\ud800")}) == 4


def test_an_id_space_names_a_kept_salt_and_a_block_size() -> None:
    spaces = [salt().id_space(16), salt().id_space(32), salt(SECRET + b"2").id_space(16)]
    assert len(set(spaces)) == 3
    assert salt().id_space(16) == spaces[0]
    assert Salt.random().id_space(16) is None


@pytest.mark.parametrize("secret", [b"", b"hunter2", b"fifteen bytes..", b"  fifteen bytes..  \n"])
def test_a_salt_that_could_be_guessed_is_refused(secret: bytes) -> None:
    with pytest.raises(EactlError) as caught:
        Salt.given(secret, where="--salt-file")
    assert str(caught.value) == (
        f"a salt of {len(secret.strip())} bytes can be guessed, --salt-file, "
        "make one of 16 bytes or more: openssl rand -hex 32"
    )


def test_a_salt_does_not_show_in_messages_about_it() -> None:
    assert "secret of more" not in repr(salt())
    assert "secret of more" not in str(salt())
