"""Request lines in the logs of vLLM and SGLang: the only logs that hold the prompts' own token ids.

vLLM: ``... Received request cmpl-1: prompt: '...', params: ..., prompt_token_ids: [...], lora_request: None`` (since
0.11.2 at level DEBUG only). SGLang (``--log-requests --log-requests-level 3``): ``[time] Receive: obj=...input_ids=
[...]...rid='...'`` and a ``Finish:`` line with counts. Neither names sessions; vLLM's times have no year.
"""

from __future__ import annotations

import ast
import re
from array import array
from collections import deque
from collections.abc import Iterator

from eactl.errors import TraceError
from eactl.trace.chat import RAW_ROLE, ChatRequest, Usage
from eactl.trace.chatforms import seconds, token_count
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.textbase import TextReader
from eactl.trace.tracefile import Head, TraceFile

_BEFORE = (
    rb"^[^`\"'|\n]{0,300}?"  # level, time, source, a container's own prefix; not a document that quotes such a line
)
_VLLM = re.compile(_BEFORE + rb"\bReceived request (\S+?): ", re.MULTILINE)
_VLLM_TIME = re.compile(rb"\b(\d\d)-(\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)")
_VLLM_IDS = re.compile(rb"prompt_token_ids: (\[[^\]]*\]|None)")
_VLLM_PROMPT = re.compile(rb"prompt: (None|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"), params:")
_VLLM_LORA = re.compile(rb"lora_request: LoRARequest\(lora_name='([^']*)'")
_SGLANG = re.compile(_BEFORE + rb"\b(Receive|Finish): obj=(\w+ReqInput)\(", re.MULTILINE)
_SGLANG_TIME = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)")
_SGLANG_RID = re.compile(rb"\brid='([^']*)'")
_SGLANG_IDS = re.compile(rb"\binput_ids=(\[[^\]]*\])( \.\.\. )?")
_SGLANG_COUNTS = re.compile(rb"'(prompt_tokens|completion_tokens|cached_tokens|request_received_ts)': ([0-9.]+)")
_SGLANG_LORA = re.compile(rb"\blora_path='([^']*)'")
_WAITING = 1024
_SOME_YEAR = "2000"  # vLLM's log lines have none


class VllmLogReader(TextReader):
    """Requests in a vLLM log, in the order of arrival."""

    name = "vllm-log"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source.common_clock = False

    @staticmethod
    def sniff(head: Head) -> str | None:
        return None if _VLLM.search(head.data) else "no 'Received request'"

    def read(self) -> Iterator[ChatRequest]:
        hidden = 0
        for number, line in _lines(self):
            named = _VLLM.search(line)
            if named is None:
                continue
            ids, text = _VLLM_IDS.search(line), _VLLM_PROMPT.search(line)
            known = _ids(ids.group(1)) if ids is not None and ids.group(1) != b"None" else None
            prompt = _python_text(text.group(1)) if text is not None and text.group(1) != b"None" else None
            if known is None and prompt is None:
                hidden += 1
                continue
            moment = _VLLM_TIME.search(line)
            started = None
            if moment is not None:
                month, day, clock = (part.decode() for part in moment.groups())
                started = seconds(f"{_SOME_YEAR}-{month}-{day} {clock}")
            lora = _VLLM_LORA.search(line)
            yield ChatRequest(
                session=None, messages=[{"role": RAW_ROLE, "content": prompt or ""}], arrival_s=started,
                adapter=_text(lora.group(1)) if lora else None, exact=known is not None,
                hidden_tokens=(0, 0) if known is not None else (0, None), prompt_token_ids=known, where=self.at(number),
            )  # fmt: skip
        self.without_prompts(hidden, "vLLM 0.11.2 and newer show prompts at DEBUG only: VLLM_LOGGING_LEVEL=DEBUG with "
                             "--enable-log-requests and without --max-log-len records them")  # fmt: skip

    def without_prompts(self, hidden: int, hint: str) -> None:
        """Say that lines hold no prompt. Raises TraceError when none does."""
        if not hidden:
            return
        text = f"{hidden} request lines hold neither token ids nor text"
        if not self.source.calls:
            raise TraceError(text, where=self.file.name, hint=hint)
        self.warn("lines-without-prompt", f"{self.file.name}: {text} and were left out", hint)


class SglangLogReader(TextReader):
    """Requests in an SGLang log, in the order of arrival, with the counts of their ``Finish`` lines."""

    name = "sglang-log"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self.source.common_clock = False  # local time without a zone

    @staticmethod
    def sniff(head: Head) -> str | None:
        return None if _SGLANG.search(head.data) else "no 'Receive: obj='"

    def read(self) -> Iterator[ChatRequest]:
        waiting: deque[ChatRequest] = deque()
        by_id: dict[bytes, ChatRequest] = {}
        finished: set[int] = set()
        for number, line in _lines(self):
            kind = _SGLANG.search(line)
            if kind is None:
                continue
            rid = _SGLANG_RID.search(line)
            request = by_id.pop(rid.group(1), None) if rid is not None and kind.group(1) == b"Finish" else None
            if request is None:
                try:
                    request = self._request(number, line)
                except BadLineError as error:
                    self.bad(number, error)
                    continue
                waiting.append(request)
                if rid is not None and kind.group(1) == b"Receive":
                    by_id[rid.group(1)] = request
                    continue
            _finish(request, line)
            finished.add(id(request))
            while waiting and (id(waiting[0]) in finished or len(waiting) > _WAITING):
                finished.discard(id(waiting[0]))
                yield waiting.popleft()
        yield from waiting

    def _request(self, number: int, line: bytes) -> ChatRequest:
        listed = _SGLANG_IDS.search(line)
        if listed is None:
            raise BadLineError("no 'input_ids'", "--log-requests-level 3 records them")
        if listed.group(2) or line[listed.end() : listed.end() + 5] == b" ... ":
            raise BadLineError("'input_ids' is shortened", "--log-requests-level 3 records all")
        ids = _ids(listed.group(1))
        if not ids:
            raise BadLineError("'input_ids' is no list of token ids")
        moment, lora = _SGLANG_TIME.search(line), _SGLANG_LORA.search(line)
        return ChatRequest(
            session=None, messages=[{"role": RAW_ROLE, "content": ""}], prompt_token_ids=ids, where=self.at(number),
            arrival_s=seconds(moment.group(1).decode()) if moment else None,
            adapter=_text(lora.group(1)) if lora else None,
        )  # fmt: skip


def _finish(request: ChatRequest, line: bytes) -> None:
    counts = {name: number for name, value in _SGLANG_COUNTS.findall(line) if (number := _number(value)) is not None}
    prompt, output, cached = (
        token_count(int(counts[name])) if name in counts else None
        for name in (b"prompt_tokens", b"completion_tokens", b"cached_tokens")
    )
    if prompt is not None or output is not None:
        request.usage = Usage(prompt, cached, None, output)
    received, ended = counts.get(b"request_received_ts"), _SGLANG_TIME.search(line)
    if received is not None:
        request.arrival_s = received
    elif ended is not None and request.arrival_s is not None:
        at_s = seconds(ended.group(1).decode())
        request.service_s = None if at_s is None else max(0.0, at_s - request.arrival_s)


def _lines(reader: TextReader) -> Iterator[tuple[int, bytes]]:
    for batch in reader.file.batches(tolerate_cut=True):
        yield from zip(batch.numbers, batch.lines, strict=True)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None  # 1.2.3
    return value if value < float("inf") else None


def _ids(text: bytes) -> list[int] | None:
    """Whole numbers between brackets; None for anything else."""
    body = text[1:-1].strip()
    if not body:
        return []
    try:
        return array("i", map(int, body.split(b","))).tolist()
    except (ValueError, OverflowError):
        return None


def _python_text(literal: bytes) -> str | None:
    try:
        value = ast.literal_eval(literal.decode("utf-8", "replace"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, str) else None
