"""``--condense NAME:key=value,...``: the parameters of one condenser, checked as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eactl.errors import UsageError

OPTION = "--condense"


@dataclass
class Params:
    """The parameters given; every one that a condenser asks for is known, any other is an error (``finish``)."""

    name: str
    values: Mapping[str, str]
    count: Callable[[str], int] = len
    asked: dict[str, str] = field(default_factory=dict)

    def integer(self, key: str, default: int | None, *, least: int = 0) -> int:
        """A whole number of at least ``least``; an error without a default if it is missing."""
        value = self.optional(key, least=least)
        if value is not None:
            return value
        if default is None:
            raise UsageError(f"{self.name} needs {key}", where=OPTION, hint=f"write {self.name}:{key}=50000")
        self.asked[key] = str(default)
        return default

    def optional(self, key: str, *, least: int = 0) -> int | None:
        """A whole number, with K or M as a thousand or a million, or None where it was not given."""
        self.asked.setdefault(key, "")
        text = self.values.get(key)
        if text is None:
            return None
        factor = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower(), 1)
        digits = text[:-1] if factor > 1 else text
        try:
            value = round(float(digits) * factor)
        except (ValueError, OverflowError):
            value = -1
        if value < least:
            raise UsageError(
                f"{self.name}: {key}={text} is no number of at least {least}", where=OPTION,
                hint="write 50000 or 50K",
            )  # fmt: skip
        return value

    def number(self, key: str, default: float) -> float:
        """A positive number."""
        self.asked[key] = f"{default:g}"
        text = self.values.get(key)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        self.check(0 < value < 1e6, f"{key}={text} is no positive number")
        return value

    def text(self, key: str) -> str | None:
        """Any text."""
        self.asked.setdefault(key, "")
        return self.values.get(key)

    def check(self, good: bool, what: str) -> None:
        """Raise UsageError unless ``good``."""
        if not good:
            raise UsageError(f"{self.name}: {what}", where=OPTION, hint="see 'eactl condenser-check --help'")

    def finish(self) -> None:
        """Raise UsageError for parameters that nothing asked for."""
        unknown = sorted(self.values.keys() - self.asked.keys())
        if unknown:
            raise UsageError(
                f"{self.name} has no parameter {unknown[0]!r}", where=OPTION,
                hint=f"it knows {', '.join(sorted(self.asked))}",
            )  # fmt: skip


def parse(text: str) -> tuple[str, dict[str, str]]:
    """``name:key=value,key=value`` as a name and its parameters. Raises UsageError."""
    name, _, rest = text.partition(":")
    values: dict[str, str] = {}
    for part in filter(None, rest.split(",")) if "text=" not in rest else _with_text(rest):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise UsageError(
                f"not a parameter: {part!r}", where=f"{OPTION} {text}", hint="write NAME:key=value,key=value"
            )
        if key.strip() in values:
            raise UsageError(f"{key.strip()} is given twice", where=f"{OPTION} {text}", hint="give it once")
        values[key.strip()] = value.strip()
    return name.strip(), values


def _with_text(rest: str) -> list[str]:
    """A text may hold commas, so it comes last."""
    before, _, text = rest.partition("text=")
    return [*filter(None, before.split(",")), f"text={text}"]
