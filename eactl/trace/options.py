"""How trace files are to be read: one frozen value that every reader gets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TraceOptions:
    """Settings of a reading.

    ``format`` names a reader (None: detect). ``block_tokens`` is for formats that do not record it; a trace that
    records another size is refused. ``skip_bad_lines`` leaves out what cannot be read, counted and named in the
    Source. ``drop_duplicates`` leaves out sessions that repeat an earlier one under another name. ``tokenizer`` (a
    tokenizer.json or model directory) and ``chat_template`` (a file; default: the one beside the tokenizer) turn
    the messages of text logs into tokens; without a tokenizer they are approximated.
    """

    format: str | None = None
    block_tokens: int | None = None
    skip_bad_lines: bool = False
    drop_duplicates: bool = False
    tokenizer: str | None = None
    chat_template: str | None = None
