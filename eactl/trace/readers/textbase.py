"""What the readers of text logs share: JSON objects in, requests out, and from requests to calls."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson

from eactl.errors import TraceError, UsageError
from eactl.trace.call import Call, Source
from eactl.trace.chat import ChatRequest
from eactl.trace.chatcalls import CallMaker
from eactl.trace.options import TraceOptions
from eactl.trace.prompts import PromptEncoder
from eactl.trace.readers.base import BadLineError, Reader, json_type
from eactl.trace.readers.lines import why_not_json
from eactl.trace.templates import ChatTemplate
from eactl.trace.tokens import ApproximateTokenizer, open_tokenizer
from eactl.trace.tracefile import Head, TraceFile


class Shared:
    """What all text logs of one reading have in common: the encoder, and the responses seen so far."""

    def __init__(self, options: TraceOptions) -> None:
        self._options = options
        self._encoder: PromptEncoder | None = None
        self.seen: set[str] = set()

    @property
    def encoder(self) -> PromptEncoder:
        """The encoder, made when first needed. Raises UsageError for a tokenizer or template that cannot be read."""
        if self._encoder is None:
            self._encoder = make_encoder(self._options)
        return self._encoder


def make_encoder(options: TraceOptions) -> PromptEncoder:
    """The encoder that the options ask for. Raises UsageError, or CannotRunHereError without the packages."""
    tokenizer = open_tokenizer(options.tokenizer)
    if options.chat_template is not None:
        template = ChatTemplate.load(Path(options.chat_template))
        if template is None:
            raise UsageError(f"no chat template in {options.chat_template}", where="--chat-template",
                             hint="name a .jinja file")  # fmt: skip
        return PromptEncoder(tokenizer, template)
    folder = Path(options.tokenizer) if options.tokenizer else None
    if folder is not None and not folder.is_dir():
        folder = folder.parent
    return PromptEncoder(tokenizer, None if folder is None else ChatTemplate.load(folder))


class TextReader(Reader):
    """A reader of prompts as text: subclasses yield requests, in the order in which they were sent.

    ``source.calls`` and ``tasks`` count requests as they are taken; token totals count what ``batches`` makes of them.
    """

    family: ClassVar[Literal["trace", "text log"]] = "text log"
    local_ids = False  # ids come from the text, so they mean the same in every file
    absolute_times = True
    peeks: ClassVar[bool] = False  # the first request stands at the file's beginning
    first_s: float | None = None  # time of the first line, where the format gives it to know before the reading

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source = self.make_source("tokens", 1, tokenizer=options.tokenizer or ApproximateTokenizer.name)
        self.shared = Shared(options)
        self._joined = False

    @abstractmethod
    def read(self) -> Iterator[ChatRequest]:
        """The requests of the file. Raises TraceError with file:line."""

    def join(self, readers: Sequence[Reader]) -> None:
        if self._joined:
            return
        kinds: dict[type[TextReader], list[TextReader]] = defaultdict(list)
        for reader in readers:
            if isinstance(reader, TextReader):
                reader.shared, reader._joined = self.shared, True
                reader.forget_head()
                kinds[type(reader)].append(reader)
        for kind, members in kinds.items():
            kind.group(members)

    @classmethod
    def group(cls, members: Sequence[Any]) -> None:
        """Meet all readers of this format in the stream, before any is read."""

    def forget_head(self) -> None:
        """Drop the head's bytes: a folder may hold thousands of files."""
        self.file.head = Head(self.file.path, b"", whole=False)

    def requests(self) -> Iterator[ChatRequest]:
        """The requests of the file, counted in ``source``."""
        sessions: set[tuple[int, str]] = set()
        for request in self.read():
            source = self.counted_in(request)
            source.calls += 1
            source.exact = source.exact and request.exact
            if request.session is not None and (id(source), request.session) not in sessions:
                sessions.add((id(source), request.session))
                source.tasks += 1
            yield request
        self.finish()

    def peek_arrival_s(self) -> float | None:
        if not self.peeks or not self.file.reads_again:
            return None
        other = type(self)(self.file.again(), self.options)
        with suppress(TraceError):  # which comes up when the file is read
            first = next((r for r in other.read() if r.messages or r.prompt_token_ids), None)
            return None if first is None else first.arrival_s
        return None

    def counted_in(self, request: ChatRequest) -> Source:
        """The source to which a request belongs."""
        return self.source

    def batches(self) -> Iterator[list[Call]]:
        """The requests as calls, one at a time: a prompt's ids are large."""
        maker = CallMaker(self.shared.encoder)
        first_without, without = "", 0
        for request in self.requests():
            call = maker.call(request, self.counted_in(request))
            if call is None:
                first_without = first_without or request.where
                without += 1
            else:
                call.scope = self.scope
                yield [call]
        if without and not maker.made:
            raise TraceError(
                "the log holds no prompts, at most token counts, so nothing shows what prompts share",
                where=first_without, hint="eactl condenser-check reads counts alone; log the messages as well",
            )  # fmt: skip
        differs = maker.check()
        if differs is not None:
            self.source.warnings.append(differs)
        if without:
            self.warn("empty-prompts", f"{self.file.name}: {without} request{'s' * (without > 1)} without a prompt "
                      f"left out, the first at {first_without}")  # fmt: skip

    def finish(self) -> None:
        """Add what was found out about exactness, then as for every reader."""
        self.note_tokens()
        super().finish()

    def note_tokens(self) -> None:
        """Say so where tokens are approximate."""
        source = self.source
        if source.tokenizer == ApproximateTokenizer.name and source.prompt_tokens:
            self.warn("approximate-tokens", "no tokenizer was given: tokens are approximated from the text",
                      "--tokenizer DIR takes the model's own")  # fmt: skip

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line number and JSON object of each line; a cut last line is left out with a warning."""
        for batch in self.file.batches(tolerate_cut=True):
            last = batch.numbers[-1] if batch.cut else -1
            for line, number in zip(batch.lines, batch.numbers, strict=True):
                record = self._object(line, number, last=number == last)
                if record is not None:
                    yield number, record

    def _object(self, line: bytes, number: int, *, last: bool) -> dict[str, Any] | None:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if last and b"\x00" not in line:
                self.warn("cut-line", f"{self.file.name}: the last line ({number}) is cut and was left out",
                          "the log may still be being written")  # fmt: skip
            else:
                self.bad(number, why_not_json(line, error, cut=False))
            return None
        if type(record) is dict:
            return record
        self.bad(number, BadLineError(f"the line holds {json_type(record)}, not a JSON object"))
        return None


def first_objects(head: Head) -> list[dict[str, Any]]:
    """The JSON objects on the first lines."""
    return [record for record in head.records if isinstance(record, dict)]
