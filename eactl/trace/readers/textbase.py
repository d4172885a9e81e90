"""What the readers of text logs share: JSON objects line by line, and requests instead of calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import orjson

from eactl.trace.call import Call
from eactl.trace.chat import ChatRequest
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError, Reader, json_type
from eactl.trace.readers.lines import why_not_json
from eactl.trace.tracefile import Head, TraceFile


class TextReader(Reader):
    """A reader of prompts as text: subclasses yield requests, in the order in which they were sent.

    ``source.calls`` and ``tasks`` count as requests are taken; token totals belong to whoever makes tokens.
    """

    family: ClassVar[Literal["trace", "text log"]] = "text log"
    local_ids = False  # ids come from the text, so they mean the same in every file
    absolute_times = True

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source = self.make_source("tokens", 1)
        self._sessions: set[str | None] = set()

    @abstractmethod
    def read(self) -> Iterator[ChatRequest]:
        """The requests of the file. Raises TraceError with file:line."""

    def requests(self) -> Iterator[ChatRequest]:
        """The requests of the file, counted in ``source``."""
        for request in self.read():
            self.source.calls += 1
            self._sessions.add(request.session)
            self.source.exact = self.source.exact and request.exact
            yield request
        self.source.tasks = len(self._sessions - {None})
        self.finish()

    def batches(self) -> Iterator[list[Call]]:
        """The requests as calls, one at a time: a prompt's ids are large. Raises TraceError."""
        raise NotImplementedError

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line number and JSON object of each line; a cut last line is left out with a warning."""
        for batch in self.file.batches(tolerate_cut=True):
            last = batch.numbers[-1] if batch.cut else -1
            for line, number in zip(batch.lines, batch.numbers, strict=True):
                try:
                    record = orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    if number == last and b"\x00" not in line:
                        self.warn("cut-line", f"the last line ({number}) is cut and was left out",
                                  "the log may still be being written")  # fmt: skip
                    else:
                        self.bad(number, why_not_json(line, error, cut=False))
                    continue
                if type(record) is dict:
                    yield number, record
                else:
                    self.bad(number, BadLineError(f"the line holds {json_type(record)}, not a JSON object"))


def first_objects(head: Head) -> list[dict[str, Any]]:
    """The JSON objects on the first lines."""
    return [record for record in head.records if isinstance(record, dict)]
