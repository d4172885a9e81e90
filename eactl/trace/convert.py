"""Rewriting any trace as one native trace or as Mooncake lines, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Literal, Protocol

from eactl.errors import TraceError, UsageError
from eactl.trace.call import Call, Notice, PromptKind
from eactl.trace.mooncake import MooncakeWriter
from eactl.trace.native import NativeWriter
from eactl.trace.notices import reading_notices
from eactl.trace.numbering import ChainedNumbering
from eactl.trace.stream import TraceStream
from eactl.trace.tasks import infer_tasks

TargetFormat = Literal["native", "mooncake"]
DEFAULT_BLOCK_TOKENS = 512


@dataclass(frozen=True)
class ConvertSettings:
    """What to write. ``block_tokens`` cuts token prompts into blocks; block traces keep their own size."""

    to: TargetFormat = "native"
    block_tokens: int | None = None
    sessions: bool = True


@dataclass(frozen=True)
class Converted:
    """What was written."""

    kind: PromptKind
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
    kind, unit = _one_unit(trace)
    block_tokens = _target_block_tokens(kind, unit, settings)
    writer, calls = _writer(trace, out, kind, block_tokens, settings)
    tally = _Tally()
    for call in calls:
        if call.unit_tokens != unit:
            raise TraceError(f"blocks of {call.unit_tokens} tokens among blocks of {unit}", where=f"task {call.task!r}",
                             hint="convert files of different block sizes one by one")  # fmt: skip
        writer.write(call)
        tally.add(call)
    notices = reading_notices(trace.warnings, trace.sources)
    if settings.to == "mooncake":
        notices += tally.lost_in_mooncake()
    return Converted(
        kind="blocks" if settings.to == "mooncake" else kind,
        block_tokens=block_tokens,
        calls=tally.calls,
        tasks=len(tally.tasks),
        prompt_tokens=tally.prompt_tokens,
        output_tokens=None if tally.outputs_unknown else tally.output_tokens,
        warnings=tuple(notices),
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


def _one_unit(trace: TraceStream) -> tuple[PromptKind, int]:
    unit = trace.unit_tokens
    if unit is None:
        examples = {source.unit_tokens: source.path for source in trace.sources}
        named = " and ".join(f"{_unit_name(size)} ({path})" for size, path in sorted(examples.items())[:3])
        raise TraceError(f"the files do not fit into one trace: {named}", hint="convert them one by one")
    tokenizers = {source.tokenizer for source in trace.sources if source.kind == "tokens"}
    if len(tokenizers) > 1:
        named = " and ".join(sorted(str(name or "one that is not named") for name in tokenizers))
        raise TraceError(f"token ids of different tokenizers: {named}", hint="convert the files one by one")
    return trace.kind, unit


def _unit_name(unit: int) -> str:
    return "token ids" if unit == 1 else f"blocks of {unit} tokens"


def _target_block_tokens(kind: PromptKind, unit: int, settings: ConvertSettings) -> int | None:
    if kind == "blocks":
        return unit
    if settings.to == "mooncake":
        return settings.block_tokens or DEFAULT_BLOCK_TOKENS
    if settings.block_tokens is not None:
        raise UsageError("a token trace stays a token trace in the native format", where="--block-tokens",
                         hint="leave it out, or choose --to mooncake")  # fmt: skip
    return None


def _writer(
    trace: TraceStream, out: IO[bytes], kind: PromptKind, block_tokens: int | None, settings: ConvertSettings
) -> tuple[_Writer, Iterable[Call]]:
    calls = infer_tasks(trace)
    if settings.to == "mooncake":
        return MooncakeWriter(out, block_tokens=block_tokens or DEFAULT_BLOCK_TOKENS, sessions=settings.sessions), calls
    sources = trace.sources
    formats = sorted({source.format for source in sources})
    writer = NativeWriter(
        out, kind, block_tokens=block_tokens, tokenizer=sources[0].tokenizer, source=", ".join(formats),
        warnings=[*trace.warnings, *(notice for source in sources for notice in source.warnings)],
        keeps_known=all(source.format == "native" for source in sources),
    )  # fmt: skip
    if kind == "blocks" and (len(sources) > 1 or not sources[0].chained or sources[0].large_ids):
        return writer, _chained(calls)
    return writer, calls


def _chained(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls with ids that are chained and mean the same in all of them."""
    numbering = ChainedNumbering()
    for call in calls:
        yield replace(call, ids=numbering.number(call.scope, call.ids), scope="")
