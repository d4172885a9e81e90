"""The one family of errors a user can meet, and the exit status each carries.

Every message answers three questions: what went wrong, where (an option or ``file:line``), what to try.
"""

from __future__ import annotations


class EactlError(Exception):
    """Bad usage or bad input: exit status 2.

    ``what`` is a clause without a full stop, ``where`` an option or ``file:line``, ``hint`` an instruction.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return ", ".join(part for part in (self.what, self.where, self.hint) if part)


class UsageError(EactlError):
    """An option has a value that cannot be used, or options contradict each other."""


class TraceError(EactlError):
    """A trace or log cannot be read, or holds something that has no meaning."""


class CannotRunHereError(EactlError):
    """A device or a package this command needs is not here: exit status 3."""

    exit_code = 3


class CheckFailedError(EactlError):
    """The command worked and its answer is no: exit status 1."""

    exit_code = 1
