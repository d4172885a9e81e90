"""inspect-ai logs: ``.json``, and ``.eval`` (a zip archive with one JSON document per sample).

Requests are model events; pending duplicates and answers from inspect's own cache are none. Long texts stand in
``attachments``, repeated messages in a pool, and message ids are random. An archive is unpacked with bounds: a small
file must not become a huge one.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from eactl.errors import TraceError
from eactl.trace.bytestream import is_stdin
from eactl.trace.chat import ChatRequest
from eactl.trace.chatforms import Message, first_choice, seconds, tool_call
from eactl.trace.options import TraceOptions
from eactl.trace.readers.base import BadLineError
from eactl.trace.readers.conversation import Conversation, inclusive_usage
from eactl.trace.readers.document import DocumentReader, beginning, objects_in, requests_in_time
from eactl.trace.tracefile import Head, TraceFile

SAMPLE_BYTES = 1 << 30
ARCHIVE_BYTES = 1 << 33
RATIO = 200  # real logs are packed 5 to 40 times
_RATIO_FROM_BYTES = 1 << 24
_SORTED_BYTES = 1 << 26  # samples ran side by side: up to this size their requests are put in the order of time
_ATTACHMENT = "attachment://"
# What zipfile raises for offsets, flags and versions that it takes on trust.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, struct.error)
_ZIP = b"PK\x03\x04"


class InspectReader(DocumentReader):
    """Requests of one log: in the order of time, or sample by sample where the log is large."""

    name = "inspect-ai"

    def __init__(self, file: TraceFile, options: TraceOptions) -> None:
        super().__init__(file, options)
        self._is_archive = file.head.data.startswith(_ZIP)

    @staticmethod
    def sniff(head: Head) -> str | None:
        if head.data.startswith(_ZIP):
            ours = any(name in head.data for name in (b"_journal/", b"header.json", b"samples/"))
            return None if ours else "a zip archive of something else"
        document = beginning(head)
        if not isinstance(document, dict):
            return "no JSON object"
        task = document.get("eval")
        return None if isinstance(task, dict) and ("task" in task or "run_id" in task) else "no 'eval'"

    def read(self) -> Iterator[ChatRequest]:
        if self._is_archive:
            yield from self._archive()
            return
        document = self.document()
        if not isinstance(document, dict):
            return
        task: Any = document.get("eval")
        run = str(task.get("run_id") or task.get("task") or "") if isinstance(task, dict) else ""
        samples = document.get("samples")
        requests: list[ChatRequest] = []
        for sample in samples if isinstance(samples, list) else []:
            if isinstance(sample, dict):
                requests += self._sample(run, sample)
        yield from requests_in_time(requests)

    def _archive(self) -> Iterator[ChatRequest]:
        where = self.file.name
        source: BinaryIO = io.BytesIO(self.file.document()) if is_stdin(self.file.path) else self.file.path.open("rb")
        with source:
            try:
                archive = zipfile.ZipFile(source)
            except _BROKEN as error:
                raise _damaged(error, where) from None
            members = _checked(archive, where)
            run = _run(archive, where)
            total = sum(member.file_size for member in members)
            requests = (request for member in members for request in self._member(archive, member, run))
            yield from requests_in_time(list(requests)) if total <= _SORTED_BYTES else requests

    def _member(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, run: str) -> list[ChatRequest]:
        where = f"{self.file.name}:{member.filename}"
        data = _unpacked(archive, member, where)
        if len(data) > member.file_size:
            raise TraceError("the sample is larger than the archive says", where=where, hint="do not trust this file")
        try:
            sample = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.bad(1, BadLineError(f"{member.filename} is not JSON: {str(error).partition(':')[0]}"))
            return []
        return list(self._sample(run, sample, where)) if isinstance(sample, dict) else []

    def _sample(self, run: str, sample: dict[str, Any], where: str | None = None) -> Iterator[ChatRequest]:
        name = f"{sample.get('id')}_epoch_{sample.get('epoch', 1)}"
        where = where or f"{self.file.name}:sample {name}"
        texts = _Attachments(sample)
        talk = Conversation(f"{run}/{name}", exact=True)
        events = sample.get("events")
        for event in events if isinstance(events, list) else []:
            if not isinstance(event, dict) or event.get("event") != "model" or event.get("pending"):
                continue
            if event.get("cache") == "read":
                continue
            output = event.get("output")
            output = output if isinstance(output, dict) else {}
            answer = first_choice(output)
            talk.model = str(event.get("model") or "") or None
            talk.tools = _tools(texts.resolved(event.get("tools")))
            yield talk.request(
                where, prompt=[_message(message) for message in texts.prompt(event)],
                response=_message(texts.resolved(answer)) if answer is not None else None,
                usage=inclusive_usage(output.get("usage")), started_s=seconds(event.get("timestamp")),
                ended_s=seconds(event.get("completed")),
            )  # fmt: skip


class _Attachments:
    """The texts and messages that a sample's events only refer to."""

    def __init__(self, sample: dict[str, Any]) -> None:
        texts, pool = sample.get("attachments"), sample.get("message_pool")
        self._texts: dict[str, Any] = texts if isinstance(texts, dict) else {}
        self._pool = [self.resolved(message) for message in pool] if isinstance(pool, list) else []

    def prompt(self, event: dict[str, Any]) -> list[Message]:
        """The messages of one event; those of the pool are the same objects in every prompt."""
        messages = self.resolved(event.get("input"))
        found = [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
        references = event.get("input_refs")
        for pair in references if isinstance(references, list) else []:
            if isinstance(pair, list) and len(pair) == 2 and all(type(at) is int for at in pair):
                found += objects_in(self._pool[pair[0] : pair[1]])
            elif type(pair) is int:
                found += objects_in(self._pool[pair : pair + 1])
        return found

    def resolved(self, value: Any, depth: int = 0) -> Any:
        """The value with every reference replaced by its text."""
        if isinstance(value, str):
            return self._texts.get(value[len(_ATTACHMENT) :], value) if value.startswith(_ATTACHMENT) else value
        if depth > 64:
            return value
        if isinstance(value, list):
            return [self.resolved(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {key: self.resolved(item, depth + 1) for key, item in value.items()}
        return value


def _checked(archive: zipfile.ZipFile, where: str) -> list[zipfile.ZipInfo]:
    """The samples of an archive that is no bomb."""
    members = [member for member in archive.infolist() if member.filename.startswith("samples/")]
    total = sum(member.file_size for member in members)
    hint = "a log is not packed like that; do not trust this file"
    if total > ARCHIVE_BYTES or any(member.file_size > SAMPLE_BYTES for member in members):
        raise TraceError(f"the archive would unpack to {total >> 20} MiB", where=where, hint=hint)
    for member in members:
        if member.file_size > max(_RATIO_FROM_BYTES, RATIO * member.compress_size):
            raise TraceError(f"{member.filename} is packed more than {RATIO} times", where=where, hint=hint)
        if member.flag_bits & 1:
            raise TraceError("the archive is encrypted", where=where, hint="decrypt it first")
    return members


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> bytes:
    """The member's bytes, at most one more than it is said to have. Raises TraceError for what cannot be unpacked."""
    try:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotImplementedError
        with archive.open(member) as stream:
            return stream.read(member.file_size + 1)  # a header may lie about the size
    except NotImplementedError:
        raise TraceError("the archive is packed in a way that is not read here", where=where,
                         hint="inspect log convert --to json writes plain JSON") from None  # fmt: skip
    except _BROKEN as error:
        raise _damaged(error, where) from None


def _damaged(error: Exception, where: str) -> TraceError:
    hint = "copy the file again, or wait until it is written"
    return TraceError(f"damaged zip archive ({error})", where=where, hint=hint)


def _run(archive: zipfile.ZipFile, where: str) -> str:
    """The run's id, from whichever header is there (a log that is still being written has only the first)."""
    for name in ("header.json", "_journal/start.json"):
        try:
            member = archive.getinfo(name)
        except KeyError:
            continue
        if member.file_size <= _RATIO_FROM_BYTES:
            try:
                header = orjson.loads(_unpacked(archive, member, where))
            except orjson.JSONDecodeError:
                continue  # it only names the run
            task = header.get("eval") if isinstance(header, dict) else None
            if isinstance(task, dict):
                return str(task.get("run_id") or task.get("task") or "")
    return ""


def _message(message: Message) -> Message:
    """A message in the chat format: inspect writes tool calls flat, and ids that no prompt shows."""
    content = message.get("content")
    if isinstance(content, list):
        thoughts = [part for part in content if isinstance(part, dict) and part.get("type") == "reasoning"]
        content = [part for part in content if part not in thoughts]
    else:
        thoughts = []
    made: Message = {"role": message.get("role"), "content": content}
    if thoughts:
        made["reasoning_content"] = "\n".join(str(part.get("reasoning") or "") for part in thoughts)
    if message.get("tool_call_id"):
        made["tool_call_id"] = message["tool_call_id"]
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        made["tool_calls"] = [
            tool_call(call.get("id"), call.get("function"), call.get("arguments"))
            for call in calls
            if isinstance(call, dict)
        ]
    return made


def _tools(tools: Any) -> list[Message] | None:
    if not isinstance(tools, list) or not tools:
        return None
    return [
        {"type": "function", "function": {key: tool.get(key) for key in ("name", "description", "parameters")}}
        for tool in tools
        if isinstance(tool, dict)
    ]
