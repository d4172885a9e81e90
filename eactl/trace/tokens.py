"""From text to token ids: a model's own tokenizer, or a documented approximation where none is given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from eactl.errors import CannotRunHereError, UsageError

if TYPE_CHECKING:
    import tokenizers

TokenIds = npt.NDArray[np.int32]

# Probes of HuggingFaceTokenizer.splits_at_line_ends.
_LINE_ENDS = ("a\n", "a.\n", "a \n", "a\n\n", "1\n", "}\r\n", "\t\n", "é\n", "},\n\n\n")
_LINE_STARTS = ("a", "The", "1", "9:", "é", "中", "import os\n")
PIECE_BYTES = 7
_LETTER, _DIGIT, _SPACE, _NEWLINE, _MARK = range(5)
_LIMITS = np.array([PIECE_BYTES, 3, PIECE_BYTES, 2, 2], dtype=np.int64)  # bytes per piece, by class
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_ID_BITS = np.uint64(33)


class Tokenizer(Protocol):
    """Text to ids. Equal prefixes of texts give equal prefixes of ids, up to a token or two at their end."""

    name: str
    exact: bool  # whether the ids are the model's own
    begin_ids: TokenIds  # what a prompt given as plain text begins with (BOS), maybe nothing
    splits_at_line_ends: bool  # a text can be cut where a line end meets a letter without changing its ids

    def encode(self, text: str) -> TokenIds:
        """The ids of ``text``, without tokens that the text does not hold."""
        ...


def open_tokenizer(path: str | None) -> Tokenizer:
    """The tokenizer in ``path`` (tokenizer.json or a model directory), or the approximation for None.

    Raises UsageError when it cannot be read, CannotRunHereError without the package for it.
    """
    return ApproximateTokenizer() if path is None else HuggingFaceTokenizer(path)


class ApproximateTokenizer:
    """A tokenizer of no model: deterministic, and about as fine as those of code models.

    The UTF-8 bytes are split where letters, digits, white space, line ends and other marks meet, and where a capital
    follows a small letter; one space belongs to the word after it. Pieces are at most 7 bytes of letters or space,
    3 digits, 2 line ends or 2 marks. A piece's id is a 31-bit hash of its bytes, so that the same text has the same
    ids everywhere, nothing has to be remembered, and two different pieces agree once in 2^31. On prompts of coding
    agents it makes a token of about 3.6 bytes; counts lie within a quarter or so of those of real tokenizers.
    """

    name = "approximate"
    exact = False
    begin_ids: TokenIds = np.empty(0, dtype=np.int32)
    splits_at_line_ends = True

    def encode(self, text: str) -> TokenIds:
        data = text.encode("utf-8", "surrogatepass")
        if not data:
            return np.empty(0, dtype=np.int32)
        starts = _piece_starts(np.frombuffer(data, dtype=np.uint8))
        sizes = np.diff(starts, append=len(data))
        padded = data + bytes(8)
        words: npt.NDArray[np.uint64] = np.ndarray((len(data),), dtype="<u8", buffer=padded, strides=(1,))
        unused = ((8 - sizes) * 8).astype(np.uint64)
        return mixed((words[starts] << unused) >> unused | (sizes.astype(np.uint64) << np.uint64(56)))


def mixed(values: npt.NDArray[np.uint64]) -> TokenIds:
    """A 31-bit hash of each value."""
    with np.errstate(over="ignore"):
        values = values * _FIRST
        values ^= values >> np.uint64(29)
        values *= _SECOND
    hashed: TokenIds = (values >> _ID_BITS).astype(np.int32)
    return hashed


def filler(key: str, tokens: int, start: int = 0) -> TokenIds:
    """Ids for tokens whose text is not known: the same for the same key and position, different for others."""
    import hashlib

    seed = int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "little")
    with np.errstate(over="ignore"):
        return mixed(np.arange(start + 1, start + 1 + max(0, tokens), dtype=np.uint64) + np.uint64(seed))


def _byte_classes() -> npt.NDArray[np.uint8]:
    table = np.full(256, _MARK, dtype=np.uint8)
    table[128:] = _LETTER
    for first, last, kind in ((65, 90, _LETTER), (97, 122, _LETTER), (48, 57, _DIGIT)):
        table[first : last + 1] = kind
    table[[32, 9]] = _SPACE
    table[[10, 13]] = _NEWLINE
    return table


_CLASSES = _byte_classes()


def _piece_starts(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    kinds = _CLASSES[data]
    starts = np.empty(len(data), dtype=bool)
    starts[0] = True
    starts[1:] = kinds[1:] != kinds[:-1]
    small = (data >= 97) & (data <= 122)
    starts[1:] |= small[:-1] & (data[1:] >= 65) & (data[1:] <= 90)
    # The last space of a run goes with the word or mark after it.
    joins = np.flatnonzero((kinds[:-1] == _SPACE) & (kinds[1:] != _SPACE) & (kinds[1:] != _NEWLINE)) + 1
    starts[joins] = False
    starts[joins - 1] = True
    runs = np.flatnonzero(starts)
    sizes = np.diff(runs, append=len(data))
    limits = _LIMITS[kinds[runs + sizes - 1]]
    pieces = -(-sizes // limits)
    if (pieces == 1).all():
        return runs
    first = np.cumsum(pieces) - pieces
    within = np.arange(int(pieces.sum())) - np.repeat(first, pieces)
    return np.repeat(runs, pieces) + within * np.repeat(limits, pieces)


class HuggingFaceTokenizer:
    """The tokenizer of a ``tokenizer.json``, through the ``tokenizers`` package."""

    exact = True

    def __init__(self, path: str) -> None:
        try:
            import tokenizers
        except ImportError:
            raise CannotRunHereError(
                "the package tokenizers is not installed", where="--tokenizer", hint="pip install 'eactl[tokens]'"
            ) from None
        file = Path(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        if not file.is_file():
            raise UsageError(f"no file {file}", where="--tokenizer", hint="name a tokenizer.json or its directory")
        try:
            self._tokenizer: tokenizers.Tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the binding raises bare Exception
            raise UsageError(
                f"{file} is no tokenizer ({error})", where="--tokenizer", hint="name a tokenizer.json"
            ) from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.name = str(file)
        self.directory = file.parent
        self.boundaries = self._special_tokens()
        self.begin_ids = self._begin()
        self.splits_at_line_ends = self._cuts_are_safe()

    def encode(self, text: str) -> TokenIds:
        """Ids without those that a post-processor would add: a rendered template already holds them."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int32)

    def token(self, token_id: int) -> str | None:
        """The text of one id, for messages."""
        return self._tokenizer.id_to_token(token_id)

    def _begin(self) -> TokenIds:
        """What the completions API puts before a plain text: the ids that the post-processor adds in front."""
        plain, whole = self.encode("a").tolist(), list(self._tokenizer.encode("a").ids)
        at = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
        return np.array(whole[:at], dtype=np.int32)

    def _cuts_are_safe(self) -> bool:
        return all(
            self.encode(before + after).tolist() == self.encode(before).tolist() + self.encode(after).tolist()
            for before in _LINE_ENDS
            for after in _LINE_STARTS
        )

    def _special_tokens(self) -> list[tuple[str, bool]]:
        """Added tokens that always split the text, with whether they swallow white space before them."""
        added: dict[int, Any] = self._tokenizer.get_added_tokens_decoder()
        return [
            (token.content, bool(token.lstrip))
            for token in added.values()
            if not token.single_word and (token.special or not token.normalized) and token.content
        ]
