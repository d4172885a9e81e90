"""Tables for people: one look everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate


def table(rows: Sequence[Sequence[object]], headers: Sequence[str], *, left: Sequence[int] = (0,)) -> str:
    """Plain columns; all right-aligned but those listed in ``left`` and a last column without a header."""
    align = ["right"] * len(headers)
    for column in left:
        align[column] = "left"
    if rows and all(_numeric(row[0]) for row in rows):
        align[0] = "right"
    if headers and not headers[-1]:
        align[-1] = "left"
    return tabulate(rows, headers=headers, tablefmt="simple", colalign=align, disable_numparse=True)


def _numeric(cell: object) -> bool:
    return str(cell).replace(".", "").replace(",", "").isdigit()
