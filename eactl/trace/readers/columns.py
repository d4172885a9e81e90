"""Checking fields of many records at once.

Each function takes one field of a batch of records and returns it as a column, or raises BadLineError with a
reason that is precise for a batch of one (LineReader repeats a refused batch line by line).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from eactl.trace.call import Ids
from eactl.trace.readers.base import BadLineError, json_type

Records = Sequence[dict[str, Any]]
MAX_TOKENS = 1 << 40
MAX_ARRIVAL_S = 1e11  # beyond the year 5000: the time has another unit than the format says

_NARROW = 1 << 31


def required(records: Records, key: str) -> list[Any]:
    """The field as it stands; refused where a record has none."""
    try:
        return [record[key] for record in records]
    except KeyError:
        raise BadLineError(f"no {key!r}") from None


def token_counts(records: Records, key: str, *, at_least: int = 1) -> Ids:
    """A column of token counts, required."""
    return _integers(required(records, key), key, at_least, MAX_TOKENS)


def whole_numbers(column: list[Any], key: str, *, least: int) -> list[int]:
    """A column of whole numbers from ``least`` to below 2^63."""
    _integers(column, key, least, (1 << 63) - 1)
    return column


def optional_token_counts(records: Records, key: str) -> list[int | None]:
    """A column of token counts that may be missing or null."""
    column = [record.get(key) for record in records]
    _integers([value for value in column if value is not None], key, 0, MAX_TOKENS)
    return column


def _integers(column: list[Any], key: str, least: int, most: int) -> Ids:
    kinds = set(map(type, column))
    if not kinds <= {int}:
        wrong = next(value for value in column if type(value) is not int)
        raise BadLineError(f"{key!r} is {describe(wrong)}, not a whole number")
    try:
        values = np.frombuffer(array("q", column), dtype=np.int64)
    except OverflowError:
        raise BadLineError(f"{key!r} is outside 64-bit range") from None
    if len(values) and (int(values.min()) < least or int(values.max()) > most):
        wrong = next(value for value in column if not least <= value <= most)
        raise BadLineError(f"{key!r} is {wrong}, expected {'at least' if wrong < least else 'at most'} "
                           f"{least if wrong < least else most}")  # fmt: skip
    return values


def id_lists(records: Records, key: str) -> tuple[Ids, list[int]]:
    """All ids of the batch in one array, and how many each record has. Ids are whole, 0 <= id < 2^63."""
    column = lists(records, key)
    return id_array(list(chain.from_iterable(column)), key), list(map(len, column))


def lists(records: Records, key: str) -> list[list[Any]]:
    """A required column of lists."""
    column = required(records, key)
    if not set(map(type, column)) <= {list}:
        wrong = next(value for value in column if type(value) is not list)
        raise BadLineError(f"{key!r} is {describe(wrong)}, not a list")
    return column


def id_array(ids: list[Any], key: str) -> Ids:
    """Whole numbers as an array, read-only; refused outside 0 <= id < 2^63."""
    try:
        values = np.frombuffer(array("q", ids), dtype=np.int64)
    except OverflowError:
        raise BadLineError(f"{key!r} holds a number outside 64-bit range") from None
    except TypeError:
        wrong = next(value for value in ids if type(value) is not int)
        if type(wrong) is float and wrong >= 2.0**63:  # where JSON's own integers end
            raise BadLineError(f"{key!r} holds a number outside 64-bit range") from None
        raise BadLineError(f"{key!r} holds {describe(wrong)}, not a whole number") from None
    small = values <= 1  # true and false pass for 1 and 0, so only ids that small need a look at their type
    if small.any():
        if int(values.min()) < 0:
            raise BadLineError(f"{key!r} holds the negative id {int(values.min())}")
        for at in np.flatnonzero(small).tolist():
            if type(ids[at]) is not int:
                raise BadLineError(f"{key!r} holds {describe(ids[at])}, not a whole number")
    if len(values) and int(values.max()) < _NARROW:
        values = values.astype(np.int32)  # half the memory to keep and to compare
    values.setflags(write=False)
    return values


def times_s(column: list[Any], key: str, per_second: int = 1, *, null: bool = True) -> npt.NDArray[np.float64]:
    """A column of times, ``per_second`` units to the second, as seconds; refused where negative or absurd.

    None becomes NaN, or is refused where ``null`` is False.
    """
    allowed = {int, float, type(None)} if null else {int, float}
    if not set(map(type, column)) <= allowed:
        wrong = next(value for value in column if type(value) not in allowed)
        raise BadLineError(f"{key!r} is {describe(wrong)}, not a number")
    values = np.array(column, dtype=np.float64) / per_second
    with np.errstate(invalid="ignore"):
        bad = (values < 0) | (values > MAX_ARRIVAL_S)
    if bad.any():
        wrong = column[int(bad.argmax())]
        raise BadLineError(
            f"{key!r} is {wrong}, a time " + ("before the start" if wrong < 0 else "beyond any clock; check its unit")
        )
    return values


def optional_seconds(records: Records, key: str) -> list[float | None]:
    """A column of times in seconds that may be missing or null."""
    return or_none(times_s([record.get(key) for record in records], key))


def or_none(values: npt.NDArray[np.float64]) -> list[float | None]:
    """A float column as Python numbers, NaN as None."""
    plain: list[float | None] = values.tolist()
    if np.isnan(values).any():
        return [None if value != value else value for value in plain]
    return plain


def objects(records: Records, key: str) -> list[dict[str, Any]]:
    """A required column of JSON objects."""
    column = required(records, key)
    if not set(map(type, column)) <= {dict}:
        wrong = next(value for value in column if type(value) is not dict)
        raise BadLineError(f"{key!r} is {describe(wrong)}, not an object")
    return column


def optional_texts(records: Records, key: str) -> list[str | None]:
    """A column of names: strings, whole numbers (as text) or null."""
    column = [record.get(key) for record in records]
    kinds = set(map(type, column))
    if kinds <= {str, type(None)}:
        return column
    if not kinds <= {str, int, type(None)}:
        wrong = next(value for value in column if type(value) not in (str, int, type(None)))
        raise BadLineError(f"{key!r} is {describe(wrong)}, not a name")
    return [None if value is None else str(value) for value in column]


def describe(value: object) -> str:
    """A wrong value in a message: short ones as they stand, others by their JSON type."""
    if isinstance(value, (str, int, float, bool)):
        text = repr(value) if not isinstance(value, bool) else str(value).lower()
        return text if len(text) <= 40 else json_type(value)
    return json_type(value)
