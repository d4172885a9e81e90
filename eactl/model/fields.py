"""Reading a model's configuration: values are checked where they are read, and every message names the field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eactl.errors import UsageError

# Far above any published model; a value beyond it is a corrupt file, not a bigger model.
MAX_LAYERS = 4096
MAX_HEADS = 1 << 14
MAX_DIM = 1 << 20

_HINT = "check the file or use the model's original config.json"


@dataclass(frozen=True)
class Fields:
    """A configuration object with checked reads; ``where`` is its place within the file (``text_config``)."""

    values: Mapping[str, object]
    where: str = "config"

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def flag(self, name: str) -> bool:
        """A boolean field; false when it is absent or null."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self.error(f"{name} is {_shown(value)}, not true or false")

    def text(self, name: str) -> str | None:
        """A string field; None when it is absent or null."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self.error(f"{name} is {_shown(value)}, not a string")

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        """A whole number in ``low..high``; None when the field is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"{name} is {_shown(value)}, not a whole number")
        if not low <= value <= high:
            raise self.error(f"{name} is {_shown(value)}, outside {low} to {high}")
        return value

    def first(self, names: Iterable[str], *, high: int) -> int | None:
        """The first of several spellings of one positive number that is present."""
        return next((n for n in (self.integer(name, low=1, high=high) for name in names) if n is not None), None)

    def required(self, names: Iterable[str], meaning: str, *, high: int) -> int:
        """Like ``first``, but an absence is an error: class defaults of other software are not guessed."""
        names = tuple(names)
        value = self.first(names, high=high)
        if value is None:
            raise self.error(f"{meaning} is missing ({' or '.join(names)})")
        return value

    def items(self, name: str) -> list[object] | None:
        """A list field; None when it is absent or null."""
        value = self.values.get(name)
        if value is None or isinstance(value, list):
            return value
        raise self.error(f"{name} is {_shown(value)}, not a list")

    def object(self, name: str) -> Fields | None:
        """A nested object; None when it is absent or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return Fields(value, name if self.where == "config" else f"{self.where}.{name}")
        raise self.error(f"{name} is {_shown(value)}, not an object")

    def error(self, what: str, *, hint: str = _HINT) -> UsageError:
        """A UsageError placed at this part of the configuration."""
        return UsageError(what, where=f"model {self.where}", hint=hint)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
