"""Rewriting any trace as one native trace or as Mooncake lines, call by call.

What is written of a text log leads back to no text: block ids are keyed hashes (eactl.trace.token_blocks) or count up
from 0, session names and cache salts are keyed hashes, and warnings keep their code but not their words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from eactl.trace.call import Call, Notice, PromptKind, Source
from eactl.trace.convert_plan import ConvertSettings, IdKind, Plan, make_plan
from eactl.trace.mooncake import MooncakeWriter
from eactl.trace.native import NativeWriter
from eactl.trace.notices import reading_notices
from eactl.trace.stream import TraceStream
from eactl.trace.tokens import ApproximateTokenizer

_WORDS_LEFT_OUT = "noted when the log was read; the words are left out, for they may quote it"


@dataclass(frozen=True)
class Converted:
    """What was written.

    ``ids`` says what the ids are (see eactl.trace.convert_plan.Plan), ``salted`` whether names or ids were hashed.
    """

    kind: PromptKind
    ids: IdKind
    salted: bool
    block_tokens: int | None
    calls: int
    tasks: int
    prompt_tokens: int
    output_tokens: int | None
    warnings: tuple[Notice, ...]


class _Writer(Protocol):
    def write(self, call: Call) -> None: ...


def convert(trace: TraceStream, out: IO[bytes], settings: ConvertSettings) -> Converted:
    """Write all calls of ``trace`` to ``out``, in order; calls without a task get an inferred one.

    Raises TraceError when the files cannot stand in one trace, before anything is written, and for bad input.
    """
    plan = make_plan(trace, settings)
    writer: _Writer | None = None
    tally = _Tally()
    for call in plan.calls(trace):
        if writer is None:  # by now the sources know whose tokens they have
            writer = _writer(trace, out, plan, sessions=settings.sessions)
        writer.write(call)
        tally.add(call)
    notices = reading_notices(trace.warnings, trace.sources)
    if settings.to == "mooncake":
        notices += tally.lost_in_mooncake()
    return Converted(
        kind=plan.kind,
        ids=plan.ids,
        salted=plan.salted,
        block_tokens=plan.block_tokens,
        calls=tally.calls,
        tasks=len(tally.tasks),
        prompt_tokens=tally.prompt_tokens,
        output_tokens=None if tally.outputs_unknown else tally.output_tokens,
        warnings=(*notices, *_privacy(plan, settings)),
    )


class _Tally:
    """What went by."""

    def __init__(self) -> None:
        self.tasks: set[str | None] = set()
        self.calls = self.prompt_tokens = self.output_tokens = self.outputs_unknown = 0
        self._spaces: set[tuple[str | None, str | None]] = set()

    def add(self, call: Call) -> None:
        self.tasks.add(call.task)
        self.calls += 1
        self.prompt_tokens += call.prompt_tokens
        self.output_tokens += call.output_tokens or 0
        self.outputs_unknown += call.output_tokens is None
        self._spaces.add((call.salt, call.model))

    def lost_in_mooncake(self) -> list[Notice]:
        """What the lines could not say."""
        notices = []
        if self._spaces != {(None, None)}:
            text = "Mooncake lines hold no model and no salt: where these differ, equal prompts got different block ids"
            notices.append(Notice("no-models-or-salts", text))
        if self.outputs_unknown:
            text = f"{self.outputs_unknown} calls have no known output length: their lines have no output_length"
            notices.append(Notice("no-output-lengths", text, "load generators then use a length of their own"))
        return notices


def _privacy(plan: Plan, settings: ConvertSettings) -> list[Notice]:
    """What the user should know about what can be read from the result."""
    if plan.text and plan.kind == "tokens":
        text = "the token ids that were written can be turned back into the text of the log"
        return [Notice("token-ids", text, "keep the trace as private as the log")]
    if settings.salt is not None and not plan.salted:
        return [Notice("salt-unused", "no text log was read: ids and names were not hashed, the salt was not used")]
    return []


def _writer(trace: TraceStream, out: IO[bytes], plan: Plan, *, sessions: bool) -> _Writer:
    if plan.to == "mooncake" and plan.block_tokens is not None:
        return MooncakeWriter(out, block_tokens=plan.block_tokens, sessions=sessions)
    sources = trace.sources
    warnings = [*trace.warnings, *(notice for source in sources for notice in source.warnings)]
    tokenizer, id_space = sources[0].tokenizer, None
    if plan.ids == "recorded":
        id_space = sources[0].id_space
    elif plan.block_tokens is not None and plan.ids == "salted":
        id_space = plan.salt.id_space(plan.block_tokens)
        tokenizer = None if tokenizer is None else _model_name(tokenizer)
    return NativeWriter(
        out, plan.kind, block_tokens=plan.block_tokens, tokenizer=tokenizer,
        source=", ".join(sorted({source.format for source in sources})),
        warnings=_without_words(warnings, sources) if plan.text else warnings,
        keeps_known=all(source.format == "native" for source in sources), id_space=id_space,
    )  # fmt: skip


def _model_name(tokenizer: str) -> str | None:
    """The part of a tokenizer's path that names the model; who ran this, and where, is nobody's business."""
    path = Path(tokenizer)
    return (path.parent.name if path.suffix == ".json" else path.name) or None


def _without_words(warnings: Iterable[Notice], sources: Iterable[Source]) -> list[Notice]:
    """One notice per code, without file names and quotes; that tokens are approximate is said in full."""
    kept = {notice.code: Notice(notice.code, _WORDS_LEFT_OUT) for notice in warnings}
    if any(source.text and source.tokenizer == ApproximateTokenizer.name for source in sources):
        text = "no tokenizer was given when the log was converted: tokens were approximated from the text"
        code = "approximate-tokens"
        kept[code] = Notice(code, text, "convert it again with --tokenizer DIR")
    return list(kept.values())
