"""Reading a model's configuration: values are checked where they are read, and every message names the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eactl.errors import UsageError

# Well above any published model: a value beyond these is a corrupt file, not a bigger model.
MAX_LAYERS = 2048
MAX_HEADS = 4096
MAX_HEAD_DIM = 1 << 14
MAX_HIDDEN = 1 << 20
MAX_WINDOW = 1 << 30

_CHECK_FILE = "check the file against the model's published config.json"
_ADD_FIELD = "add it: a value that a file leaves to software defaults is not guessed"
_OWN_NUMBER = "measure its bytes per token in the engine and give those (--kv-bytes-per-token of eactl size)"


@dataclass(frozen=True)
class Fields:
    """A configuration object with checked reads; ``where`` says in messages which part of which model it is.

    Every read raises UsageError when the value has the wrong type or is outside its bounds; null counts as absent.
    """

    values: Mapping[str, object]
    where: str = "model config"

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def flag(self, name: str) -> bool | None:
        """A boolean field, or None."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(f"{name} is {shown(value)}, not true or false")

    def text(self, name: str) -> str | None:
        """A string field, or None."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.wrong(f"{name} is {shown(value)}, not a string")

    def integer(self, name: str, *, low: int = 1, high: int) -> int | None:
        """A whole number in ``low..high``, or None."""
        value = self.values.get(name)
        return None if value is None else self._whole(name, value, low, high)

    def first(self, names: Iterable[str], *, low: int = 1, high: int) -> int | None:
        """The first of several spellings of one number that is present, or None."""
        found = (self.integer(name, low=low, high=high) for name in names)
        return next((number for number in found if number is not None), None)

    def required(self, names: Iterable[str], meaning: str, *, high: int) -> int:
        """Like ``first``, but an absence is an error: other software's class defaults are not guessed."""
        names = tuple(names)
        value = self.first(names, high=high)
        if value is None:
            what = f"{meaning} is missing ({' or '.join(names)})"
            raise UsageError(what, where=self.where, hint=_ADD_FIELD)
        return value

    def items(self, name: str) -> list[object] | None:
        """A list field, or None."""
        value = self.values.get(name)
        if value is None or isinstance(value, list):
            return value
        raise self.wrong(f"{name} is {shown(value)}, not a list")

    def integers(self, name: str, *, low: int, high: int) -> list[int] | None:
        """A list of whole numbers in ``low..high``, or None."""
        values = self.items(name)
        return None if values is None else [self._whole(f"{name}[{i}]", v, low, high) for i, v in enumerate(values)]

    def nested(self, name: str) -> Fields | None:
        """A nested object, or None."""
        value = self.values.get(name)
        return None if value is None else self.within(value, name)

    def within(self, value: object, name: str) -> Fields:
        """``value``, found under ``name``, as Fields of its own."""
        if isinstance(value, Mapping):
            return Fields(value, f"{self.where}: {name}")
        raise self.wrong(f"{name} is {shown(value)}, not an object")

    def wrong(self, what: str) -> UsageError:
        """An error about a missing, malformed or contradictory field."""
        return UsageError(what, where=self.where, hint=_CHECK_FILE)

    def unsupported(self, what: str) -> UsageError:
        """An error about a model whose KV cannot be priced from its configuration."""
        return UsageError(what, where=self.where, hint=_OWN_NUMBER)

    def _whole(self, name: str, value: object, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(f"{name} is {shown(value)}, not a whole number")
        if not low <= value <= high:
            raise self.wrong(f"{name} is {shown(value)}, outside {low} to {high}")
        return value


def shown(value: object) -> str:
    """A value for a message, shortened: configurations can hold anything."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of over 30 digits"
    return text if len(text) <= 40 else f"{text[:37]}..."
