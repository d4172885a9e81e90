"""From text to token ids: a model's own tokenizer, or a documented approximation where none is given."""

from __future__ import annotations

import hashlib
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
_CLASS, _SMALL, _CAPITAL, _BEFORE_WORD, _AFTER_SPACE = 0x07, 0x08, 0x10, 0x20, 0x40
_LIMITS = np.array([PIECE_BYTES, 3, PIECE_BYTES, 2, 2], dtype=np.int64)  # bytes per piece, by class
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_THREE, _SIZE_BITS, _ID_BITS = np.uint64(3), np.uint64(56), np.uint64(33)


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
        bounds = _piece_bounds(data)
        sizes = (bounds[1:] - bounds[:-1]).view(np.uint64)
        words: npt.NDArray[np.uint64] = np.ndarray((len(data),), dtype="<u8", buffer=data + bytes(8), strides=(1,))
        values = words[bounds[:-1]]
        unused = (8 - sizes) << _THREE
        values <<= unused
        values >>= unused
        values |= sizes << _SIZE_BITS
        return mixed(values)


def mixed(values: npt.NDArray[np.uint64]) -> TokenIds:
    """A 31-bit hash of each value."""
    values = values * _FIRST  # arrays wrap round without a warning
    values ^= values >> np.uint64(29)
    values *= _SECOND
    hashed: TokenIds = (values >> _ID_BITS).astype(np.int32)
    return hashed


def filler(key: str, tokens: int, start: int = 0) -> TokenIds:
    """Ids for tokens whose text is not known: the same for the same key and position, different for others."""
    seed = int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "little")
    return mixed(np.arange(start + 1, start + 1 + max(0, tokens), dtype=np.uint64) + np.uint64(seed))


def _byte_codes() -> bytes:
    """Per byte its class, and the flags by which it and the byte before or after it make a piece begin."""
    codes = np.full(256, _MARK | _AFTER_SPACE, dtype=np.uint8)
    codes[128:] = _LETTER | _AFTER_SPACE
    codes[65:91] = _LETTER | _AFTER_SPACE | _CAPITAL
    codes[97:123] = _LETTER | _AFTER_SPACE | _SMALL
    codes[48:58] = _DIGIT | _AFTER_SPACE
    codes[[32, 9]] = _SPACE | _BEFORE_WORD
    codes[[10, 13]] = _NEWLINE
    return codes.tobytes()


_CODES = _byte_codes()
_LIMIT_OF = _LIMITS[np.minimum(np.arange(256) & _CLASS, _MARK)]


def _piece_bounds(data: bytes) -> npt.NDArray[np.int64]:
    """Where the pieces of some bytes begin, and at last where they all end."""
    codes = np.frombuffer(data.translate(_CODES), dtype=np.uint8)
    before, after = codes[:-1], codes[1:]
    flags = (before << 1) & after  # _SMALL before _CAPITAL, _BEFORE_WORD before _AFTER_SPACE
    joins = (flags & _AFTER_SPACE) != 0
    starts = np.empty(len(data) + 1, dtype=bool)
    starts[0] = starts[-1] = True
    # The last space of a run goes with the word or mark after it.
    np.greater(((before ^ after) & _CLASS | flags & _CAPITAL) != 0, joins, out=starts[1:-1])  # and not joined
    starts[:-2] |= joins
    (bounds,) = starts.nonzero()
    limits = _LIMIT_OF.take(codes.take(bounds[1:] - 1))
    (long,) = (bounds[1:] - bounds[:-1] > limits).nonzero()
    if not len(long):
        return bounds
    begin, limits = bounds[long], limits[long]
    more = (bounds[1:][long] - begin - 1) // limits  # pieces beyond the first
    last = more.cumsum()
    within = np.arange(1, last[-1] + 1) - (last - more).repeat(more)
    starts[begin.repeat(more) + within * limits.repeat(more)] = True
    return starts.nonzero()[0]


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
