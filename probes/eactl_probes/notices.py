"""Warnings that travel with a result: what could not be measured or should be doubted, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Notices:
    """Warnings in the order they came up, each once."""

    entries: list[dict[str, str]] = field(default_factory=list)

    def add(self, code: str, text: str, hint: str) -> None:
        """Note one warning: ``code`` for scripts, ``text`` what is the case, ``hint`` what to try."""
        entry = {"code": code, "text": text, "hint": hint}
        if entry not in self.entries:
            self.entries.append(entry)

    def has(self, code: str) -> bool:
        """Whether a warning of this kind was noted."""
        return any(entry["code"] == code for entry in self.entries)


def ignore_progress(text: str) -> None:
    """The progress callback of a caller that shows none."""
