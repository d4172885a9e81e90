"""A model's chat template, rendered as vLLM and SGLang render it, in a process that cannot do harm."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from eactl.errors import CannotRunHereError, TraceError, UsageError

RENDER_S = 10.0  # one prompt
MEMORY_BYTES = 1 << 30
LONGEST_CHARS = 64 << 20
_START_S = 30.0
_WORKER = Path(__file__).with_name("template_worker.py")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class TemplateError(TraceError):
    """A prompt could not be rendered; ``others_may`` says whether that may be its messages' fault."""

    def __init__(self, what: str, *, where: str, hint: str, others_may: bool = False) -> None:
        super().__init__(what, where=where, hint=hint)
        self.others_may = others_may


class ChatTemplate:
    """A chat template with its special tokens; ``source`` names it in messages.

    Jinja2's immutable sandbox, with ``raise_exception``, ``strftime_now`` (at the request's time), ``tojson``
    without HTML escapes, the loopcontrols tags and ``{% generation %}``, as transformers has them. A separate
    process with a memory limit renders; a prompt that takes longer than ``render_s`` ends it.
    """

    def __init__(
        self, text: str, variables: dict[str, Any] | None = None, *, source: str = "--chat-template",
        options: dict[str, Any] | None = None, render_s: float = RENDER_S, memory_bytes: int = MEMORY_BYTES,
    ) -> None:  # fmt: skip
        self.text = text
        self.source = source
        self._variables = variables or {}
        self._options = options or {}
        self._render_s = render_s
        self._memory_bytes = memory_bytes
        self._worker: _Worker | None = None

    @classmethod
    def load(cls, path: Path) -> ChatTemplate | None:
        """The template in a file (.jinja, or a JSON with ``chat_template``) or a model directory; None without one.

        Raises UsageError for a file that cannot be read.
        """
        folder = path if path.is_dir() else path.parent
        config = _json(folder / "tokenizer_config.json")
        variables = {name: _token_text(config.get(name)) for name in _SPECIAL if config.get(name) is not None}
        if not path.is_dir():
            text = _read(path)
            if path.suffix == ".json":
                config = _json(path)
                variables.update({name: _token_text(config[name]) for name in _SPECIAL if config.get(name) is not None})
                text = _named_template(config.get("chat_template"), path)
            return cls(text, variables, source=str(path))
        for name in ("chat_template.jinja", "chat_template.json"):
            if (path / name).is_file():
                file = path / name
                text = _read(file) if file.suffix == ".jinja" else _named_template(
                    _json(file).get("chat_template"), file)  # fmt: skip
                return cls(text, variables, source=str(file))
        if config.get("chat_template") is not None:
            file = path / "tokenizer_config.json"
            return cls(_named_template(config["chat_template"], file), variables, source=str(file))
        return None

    def render(
        self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]] | None = None, *,
        add_generation_prompt: bool = True, now_s: float | None = None, where: str = "",
        options: dict[str, Any] | None = None,
    ) -> str:  # fmt: skip
        """The prompt as text: with ``add_generation_prompt`` as the server sends it, without as history.

        ``options`` are further variables (``enable_thinking``). Raises TemplateError when the template refuses the
        messages, fails, or takes too much time or memory.
        """
        variables = {
            "messages": [_served(message) for message in messages],
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._options,
            **(options or {}),
        }
        if self._worker is None or self._worker.ended:
            self._worker = _Worker(self.text, self._variables, self._memory_bytes, self.source)
        return self._worker.ask({"variables": variables, "now_s": now_s}, self._render_s, where or self.source)

    def close(self) -> None:
        """End the process; the next rendering starts another."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


class _Worker:
    """The rendering process and the pipes to it."""

    def __init__(self, template: str, variables: dict[str, Any], memory_bytes: int, source: str) -> None:
        try:
            import jinja2  # noqa: F401 - only whether it is there
        except ImportError:
            raise CannotRunHereError(
                "the package jinja2 is not installed", where="--chat-template", hint="pip install 'eactl[tokens]'"
            ) from None
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={},
        )  # fmt: skip
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a process without pipes")
        self._orders, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._orders, False)
        self._rest = b""
        self.ended = False
        self._finalizer = weakref.finalize(self, _end, self._process)
        setup = {"template": template, "globals": variables, "memory_bytes": memory_bytes,
                 "longest": LONGEST_CHARS}  # fmt: skip
        try:
            self.ask(setup, _START_S, source)
        except TraceError:
            self.stop()
            raise

    def ask(self, message: dict[str, Any], within_s: float, where: str) -> str:
        """The text that comes back. Raises TemplateError for an error or none within ``within_s`` seconds."""
        reply = self._exchange(_line(message), time.monotonic() + within_s)
        if reply is None:
            running = self._process.poll() is None
            self.stop()
            if running:
                raise TemplateError(f"the chat template takes more than {within_s:g} s", where=where,
                                    hint="look at the template: it may loop without end")  # fmt: skip
            raise TemplateError("the chat template's process died", where=where, hint="it may use too much memory")
        if "error" in reply:
            raise TemplateError(
                reply["error"], where=where, hint="check --chat-template against the messages of the log",
                others_may=bool(reply.get("others")),
            )  # fmt: skip
        return str(reply["text"])

    def _exchange(self, data: bytes, deadline: float) -> dict[str, Any] | None:
        """Send one line and take the reply; None when the process ends or the clock runs out."""
        process, sent, pieces = self._process, 0, [self._rest]
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            selector.register(self._orders, selectors.EVENT_WRITE)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                for key, _ in selector.select(left):
                    if key.fd == self._orders:
                        try:
                            sent += os.write(self._orders, data[sent : sent + (1 << 16)])
                        except OSError:
                            return None
                        if sent == len(data):
                            selector.unregister(self._orders)
                        continue
                    chunk = os.read(self._answers, 1 << 20)
                    if not chunk:
                        process.wait(timeout=5)
                        return None
                    pieces.append(chunk)
                    if b"\n" in chunk:
                        line, _, self._rest = b"".join(pieces).partition(b"\n")
                        reply: dict[str, Any] = orjson.loads(line)
                        return reply

    def stop(self) -> None:
        """End the process now."""
        self.ended = True
        self._finalizer()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue
    process.wait()


def _served(message: dict[str, Any]) -> dict[str, Any]:
    """A message as vLLM hands it to templates: text parts joined, tool arguments parsed to objects."""
    content = message.get("content")
    changed = dict(message)
    if isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and isinstance(part.get("text"), str)) for part in content
    ):
        changed["content"] = "\n".join(part if isinstance(part, str) else part["text"] for part in content)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        changed["tool_calls"] = [_served_call(call) for call in calls]
    return changed


def _served_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = orjson.loads(function["arguments"]) if function["arguments"] else {}
    except orjson.JSONDecodeError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _line(message: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # text with lone surrogates
        return json.dumps(message).encode() + b"\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} ({error})", where="--chat-template", hint="check the path") from None


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"cannot read {path} ({error})", where="--chat-template", hint="check the file") from None
    return value if isinstance(value, dict) else {}


def _token_text(value: Any) -> Any:
    return value.get("content") if isinstance(value, dict) else value


def _named_template(value: Any, path: Path) -> str:
    """A template, or the one called ``default`` of a list."""
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default") or next(iter(named.values()), None)
    if not isinstance(value, str):
        raise UsageError(f"no 'chat_template' in {path}", where="--chat-template", hint="name a .jinja file")
    return value
