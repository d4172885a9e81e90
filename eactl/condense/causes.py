"""Why a prefix broke: an ordered table of classifiers, one family each; the first that recognises the change names it.

A classifier gets a Change and returns a Finding or None. Order matters: what only looks like an edit (messages that
moved, JSON written another way) is recognised before what an edit looks like.
"""

from __future__ import annotations

from collections.abc import Callable

from eactl.condense import causes_history, causes_text, causes_tools
from eactl.condense.diff import Change
from eactl.condense.finding import TOO_LITTLE, Finding
from eactl.condense.prompt import Group

Classifier = Callable[[Change], Finding | None]

CLASSIFIERS: tuple[tuple[str, Classifier], ...] = (
    ("tools", causes_tools.tools),
    ("order of messages", causes_history.reordered),
    ("attachment", causes_text.attachment),
    ("same JSON", causes_text.same_json),
    ("reasoning", causes_text.reasoning),
    ("whitespace", causes_text.whitespace),
    ("merged messages", causes_history.merged),
    ("trimmed history", causes_history.trimmed),
    ("passing block", causes_text.passing_block),
    ("masked", causes_history.masked),
    ("changing value", causes_text.changing_value),
    ("memory block", causes_text.memory_block),
    ("summary", causes_history.summary),
    ("reset", causes_history.reset),
    ("edited", causes_text.edited),
)


def classify(change: Change) -> Finding:
    """The cause of ``change``; ``unknown`` when no classifier recognises it."""
    for _, classifier in CLASSIFIERS:
        finding = classifier(change)
        if finding is not None:
            return finding
    return Finding("unknown", TOO_LITTLE)


def switched(old: Group, new: Group) -> Finding | None:
    """A request whose KV cannot be shared with the previous one's, whatever its text: another salt, adapter, model."""
    names = ("model", "adapter", "salt")
    changed = {name for name, left, right in zip(names, old, new, strict=True) if left != right}
    if "model" in changed:
        return Finding("model-switch", f"from {_name(old[0])} to {_name(new[0])}")
    if "adapter" in changed:
        return Finding("adapter-switch", f"from {_name(old[1])} to {_name(new[1])}")
    if "salt" in changed:
        return Finding("salt", "the cache salt changed")
    return None


def _name(value: str | None) -> str:
    return value if value is not None else "none"
