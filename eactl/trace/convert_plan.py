"""What ``convert`` makes of the calls it reads: which ids it keeps, numbers or hashes, and whose names it hides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from eactl.errors import TraceError, UsageError
from eactl.trace.call import Call, PromptKind, Source
from eactl.trace.numbering import ChainedNumbering
from eactl.trace.salt import Salt
from eactl.trace.stream import TraceStream
from eactl.trace.tasks import infer_tasks
from eactl.trace.token_blocks import SaltedBlocks

TargetFormat = Literal["native", "mooncake"]
IdKind = Literal["recorded", "numbered", "salted", "tokens"]

# Tokens per block made of token ids. 16 is vLLM's own block: what a trace says of a tier is then the same as before,
# for every chunk of whole blocks. 512 is what readers of Mooncake lines expect.
BLOCK_TOKENS: dict[TargetFormat, int] = {"native": 16, "mooncake": 512}


@dataclass(frozen=True)
class ConvertSettings:
    """What to write.

    ``block_tokens`` cuts token prompts into blocks; block traces keep their own size. ``token_ids`` writes the token
    ids of text logs instead of block ids. ``salt`` is the user's (None: a random one, forgotten afterwards).
    """

    to: TargetFormat = "native"
    block_tokens: int | None = None
    sessions: bool = True
    token_ids: bool = False
    salt: Salt | None = None


@dataclass(frozen=True)
class Plan:
    """What happens to every call.

    ``unit_tokens`` is what is read per id, ``block_tokens`` what is written (None: token ids). ``ids`` says what the
    written ids are: as recorded, numbers that count up from 0, salted hashes, or token ids. ``text``: some of it comes
    from a text log. ``salt`` is the user's or a random one.
    """

    read: PromptKind
    unit_tokens: int
    block_tokens: int | None
    ids: IdKind
    text: bool
    to: TargetFormat
    salt: Salt

    @property
    def kind(self) -> PromptKind:
        """What is written."""
        return "tokens" if self.block_tokens is None else "blocks"

    @property
    def salted(self) -> bool:
        """Whether names or ids are hashed."""
        return self.text or self.ids == "salted"

    def calls(self, trace: TraceStream) -> Iterator[Call]:
        """The calls as they are to be written. Tasks are told apart by tokens, before these become blocks."""
        calls: Iterable[Call] = _of_one_unit(trace, self.unit_tokens)
        if self.text:
            calls = _nameless(calls, self.salt)
        calls = infer_tasks(calls)
        if self.read == "tokens" and self.block_tokens is not None:
            calls = _in_blocks(calls, self.salt, self.block_tokens)
        elif self.ids == "numbered" and self.to == "native":  # Mooncake lines are numbered as they are written
            calls = _chained(calls)
        yield from calls


def make_plan(trace: TraceStream, settings: ConvertSettings) -> Plan:
    """What to do with ``trace``. Raises TraceError where its files do not fit together, UsageError for bad options."""
    read, unit = _one_unit(trace)
    sources = trace.sources
    text = any(source.text for source in sources)
    if settings.token_ids:
        _check_token_ids(read, settings)
    ids: IdKind
    block_tokens: int | None
    if read == "blocks":
        block_tokens = unit
        ids = "recorded" if settings.to == "native" and _same_ids(sources) else "numbered"
    elif settings.to == "mooncake":
        block_tokens, ids = settings.block_tokens or BLOCK_TOKENS["mooncake"], "numbered"
    elif settings.block_tokens is not None or (text and not settings.token_ids):
        block_tokens, ids = settings.block_tokens or BLOCK_TOKENS["native"], "salted"
    else:
        block_tokens, ids = None, "tokens"
    return Plan(read, unit, block_tokens, ids, text, settings.to, settings.salt or Salt.random())


def _check_token_ids(kind: PromptKind, settings: ConvertSettings) -> None:
    if settings.to != "native":
        raise UsageError("Mooncake lines hold no token ids", where="--token-ids", hint="leave out --to")
    if settings.block_tokens is not None:
        raise UsageError("token ids come in no blocks", where="--token-ids", hint="leave out --block-tokens")
    if kind == "blocks":
        raise UsageError("a block trace holds no token ids", where="--token-ids", hint="leave it out")


def _same_ids(sources: Sequence[Source]) -> bool:
    """Whether the block ids can stay: chained, not too large for other tools, and of one meaning in all files."""
    if len(sources) == 1:
        return sources[0].chained and not sources[0].large_ids
    return sources[0].id_space is not None and len({source.id_space for source in sources}) == 1


def _of_one_unit(calls: Iterable[Call], unit: int) -> Iterator[Call]:
    for call in calls:
        if call.unit_tokens != unit:
            raise TraceError(f"blocks of {call.unit_tokens} tokens among blocks of {unit}", where=f"task {call.task!r}",
                             hint="convert files of different block sizes one by one")  # fmt: skip
        yield call


def _nameless(calls: Iterable[Call], salt: Salt) -> Iterator[Call]:
    """The calls with hashes for what people named: a session's name may be a path, a cache salt a password."""
    for call in calls:
        task = None if call.task is None else salt.name(call.task)
        yield replace(call, task=task, salt=None if call.salt is None else salt.name(call.salt))


def _in_blocks(calls: Iterable[Call], salt: Salt, block_tokens: int) -> Iterator[Call]:
    blocks = SaltedBlocks(salt, block_tokens)
    for call in calls:
        ids = blocks.of(call.task, call.ids)
        yield replace(call, ids=ids, unit_tokens=block_tokens, output_ids=None, scope="", keep=0)


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


def _chained(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls with ids that are chained and mean the same in all of them."""
    numbering = ChainedNumbering()
    for call in calls:
        yield replace(call, ids=numbering.number(call.scope, call.ids), scope="")
