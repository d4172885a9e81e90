"""Tool definitions that stand at the head of the prompt: reordered, rewritten, changed."""

from __future__ import annotations

from collections.abc import Sequence

from eactl.condense.diff import Change
from eactl.condense.finding import Finding
from eactl.condense.pieces import Piece
from eactl.condense.prompt import Segment
from eactl.condense.sameness import same_json
from eactl.condense.values import changed_value, common_prefix


def tools(change: Change) -> Finding | None:
    """The first difference lies in the tool definitions, on either side."""
    old, new = _tools(change.old_segment), _tools(change.new_segment)
    if old is None and new is None:
        return None
    if old is None or new is None:
        what = "tools are sent only now" if old is None else "tools are no longer sent"
        return Finding("tools-changed", what)
    if sorted(piece.text for piece in old) == sorted(piece.text for piece in new):
        return Finding("tools-reordered", _moved(old, new))
    left, right = {p.name: p.text for p in old}, {p.name: p.text for p in new}
    added, removed = sorted(right.keys() - left.keys()), sorted(left.keys() - right.keys())
    if added or removed:
        return Finding("tools-changed", "; ".join(filter(None, (_list("added", added), _list("removed", removed)))))
    changed = [name for name in left if left[name] != right[name]]
    if all(same_json(left[name], right[name]) for name in changed):
        kind = "keys of the tool definitions in another order or with other white space"
        reordered = [p.name for p in old] != [p.name for p in new]
        return Finding("same-json", kind + (", and the tools reordered" if reordered else ""))
    name = changed[0]
    value = changed_value(left[name], right[name], common_prefix(left[name], right[name]))
    if value is not None and value.kind != "value":
        kind = " ".join(filter(None, (value.detail, value.kind)))
        return Finding("changing-value", f"{kind} in the definition of {name}", value.old, value.new)
    return Finding("tools-changed", _list("rewritten", changed))


def _tools(segment: Segment | None) -> Sequence[Piece] | None:
    return segment.pieces if segment is not None and segment.is_tools else None


def _moved(old: Sequence[Piece], new: Sequence[Piece]) -> str:
    number = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a.text != b.text)
    return f"the same {len(old)} tools, but number {number + 1} was {old[number].name} and is {new[number].name}"


def _list(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{what} {shown}"
