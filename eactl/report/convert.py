"""What ``eactl trace convert`` says at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eactl.units import human_bytes, human_count, human_many


def convert_sentence(document: Mapping[str, Any]) -> str:
    """One sentence from the fields of ``eactl.convert/1``."""
    what = "token ids" if document["prompt"] == "tokens" else f"blocks of {document['block_tokens']:,} tokens"
    if document["ids"] == "salted":
        kept = "random, not kept" if document["salt"] == "random" else "yours"
        what = f"salted hashes (salt: {kept}) of {what}"
    where = "standard output" if document["output"] == "-" else document["output"]
    size = "" if document["output_bytes"] is None else f" ({human_bytes(document['output_bytes'])})"
    return (
        f"eactl: {human_many(document['calls'], 'call')} of {human_many(document['tasks'], 'task')}, "
        f"{human_count(document['prompt_tokens'])} prompt tokens as {what}, written to {where}{size}"
    )
