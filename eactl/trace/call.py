"""One recorded request, whatever format it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.signedinteger]  # int32 where the ids fit (half the memory to compare), else int64
PromptKind: TypeAlias = Literal["tokens", "blocks"]

NO_IDS: Ids = np.empty(0, dtype=np.int64)
NO_IDS.setflags(write=False)


@dataclass(slots=True)
class Call:
    """One request: how long its prompt was, and which earlier prompts it can share KV with.

    ``ids`` identify the prompt: one id per token (``unit_tokens`` 1) or one per *full* block of ``unit_tokens``
    tokens, so ``len(ids) == prompt_tokens // unit_tokens``. Two calls share a prefix of k units exactly when
    their first k ids agree and ``scope``, ``salt`` and ``model`` are equal.

    ``task`` is None where the format names no task (see eactl.trace.tasks). ``arrival_s`` counts from the start
    of the trace, ``gap_s`` from the task's previous response. None always means "not recorded".
    """

    task: str | None
    prompt_tokens: int
    ids: Ids
    unit_tokens: int
    output_tokens: int | None = None
    output_ids: Ids | None = None  # token ids of the output; only where unit_tokens is 1
    call: int = 0  # position within the task, from 0
    arrival_s: float | None = None
    gap_s: float | None = None
    service_s: float | None = None
    salt: str | None = None
    model: str | None = None
    scope: str = ""  # ids mean the same thing only within one scope (a file with local ids)
    keep: int = 0  # units known to be equal to the task's previous prompt followed by its output; 0: not known
    line: int | None = None  # where it was read, for messages


@dataclass(slots=True)
class Notice:
    """Something a reader of the result must know: a stable code, what it is, what to do about it."""

    code: str
    text: str
    hint: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"code": self.code, "text": self.text, "hint": self.hint}


@dataclass(slots=True)
class Source:
    """One input file: what it is, and what was found while reading it (counters fill as calls are taken)."""

    path: str
    format: str
    kind: PromptKind
    unit_tokens: int
    has_times: bool = True
    common_clock: bool = True  # False: times count from this file's own start, so files cannot be interleaved
    exact: bool = True  # token identity is known, not estimated
    tasks: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int | None = 0
    lower_tokens: int | None = None
    upper_tokens: int | None = None
    skipped: int = 0  # lines left out as bad
    skipped_lines: list[int] = field(default_factory=list)  # their numbers, the first thousand
    duplicate_of: str | None = None
    warnings: list[Notice] = field(default_factory=list)
    chained: bool = True  # equal id means equal prefix; False: ids tell single blocks only
    large_ids: bool = False  # ids may need more than 53 bits, which some JSON tools do not keep
    tokenizer: str | None = None  # whose token ids these are, where that is recorded
    kv_bytes_per_token_rank: int | None = None  # where the trace records it (LMCache's tensor shapes)
    text: bool = False  # a text log: its tokens, session names and salts lead back to what people wrote
    id_space: str | None = None  # block ids mean the same in all files that name the same one

    def as_dict(self) -> dict[str, object]:
        """The entry for this file in a command's JSON ``sources``."""
        return {
            "path": self.path,
            "format": self.format,
            "tasks": self.tasks,
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "exact": self.exact,
            "lower_tokens": self.lower_tokens,
            "upper_tokens": self.upper_tokens,
            "skipped": self.skipped,
            "skipped_lines": self.skipped_lines,
            "duplicate_of": self.duplicate_of,
            "warnings": [notice.as_dict() for notice in self.warnings],
        }
