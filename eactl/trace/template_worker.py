"""Renders chat templates in a process of its own: a template comes from a stranger and may be hostile.

Run as a script. Standard input: one JSON line with the template and its variables, then one per request; standard
output: one JSON line per answer. The sandbox keeps templates from files and attributes; the limits set here and the
parent's clock bound memory and time. Imports nothing of eactl, so that it starts fast and isolated.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
from jinja2.exceptions import SecurityError


class GenerationTag(jinja2.ext.Extension):
    """``{% generation %}``: marks the model's own text for training masks; shows its body unchanged."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node | list[jinja2.nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message: object) -> None:
    """What templates call to refuse messages."""
    raise jinja2.TemplateError(str(message))


def to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON without HTML escapes, as transformers' ``tojson`` writes it."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """The environment of transformers' apply_chat_template, which vLLM and SGLang use."""
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols], cache_size=0
    )
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = raise_exception
    return made


def clock(now_s: float | None) -> Callable[[str], str]:
    """``strftime_now`` at the time of the request, so that a log renders as it did when it was served."""
    moment = datetime.now().astimezone() if now_s is None else datetime.fromtimestamp(now_s, tz=timezone.utc)
    return lambda form: moment.strftime(form)


def limit(memory_bytes: int) -> None:
    """Bound this process; where the system has no such limits, the parent's clock alone remains."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def render(template: jinja2.Template, request: dict[str, Any], longest: int) -> str:
    """One prompt. Raises ValueError when it grows beyond ``longest`` characters."""
    pieces, size = [], 0
    variables = {**request["variables"], "strftime_now": clock(request.get("now_s"))}
    for piece in template.generate(variables):
        size += len(piece)
        if size > longest:
            raise ValueError(f"the prompt has more than {longest} characters")
        pieces.append(piece)
    return "".join(pieces)


def answer(work: Callable[[], Any]) -> dict[str, Any]:
    """The result of ``work``, or what went wrong in one line, and whether other messages may fare better."""
    try:
        return {"text": work()}
    except SecurityError as error:
        return {"error": f"the template reaches for what it must not see ({error})"}
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"the template is not valid jinja2 (line {error.lineno}: {error.message})"}
    except jinja2.TemplateError as error:
        return {"error": f"the template refuses these messages ({error.message or error})", "others": True}
    except MemoryError:
        return {"error": "the template uses too much memory"}
    except RecursionError:
        return {"error": "the template or the messages are nested too deeply", "others": True}
    except Exception as error:
        return {"error": f"the template fails ({type(error).__name__}: {str(error)[:300]})", "others": True}


def main() -> None:
    """Serve until standard input ends."""
    setup = json.loads(sys.stdin.buffer.readline())
    made = environment()
    limit(setup["memory_bytes"])
    compiled: list[jinja2.Template] = []
    _say({"text": ""})

    def work(request: dict[str, Any]) -> str:
        if not compiled:  # only now: compiling computes constants, so it may take its time as well
            compiled.append(made.from_string(setup["template"], globals=setup["globals"]))
        return render(compiled[0], request, setup["longest"])

    for line in sys.stdin.buffer:
        request = json.loads(line)
        _say(answer(partial(work, request)))


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
