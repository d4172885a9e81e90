"""From the options of ``eactl condenser-check`` to its question, and from its answer to the screen."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from eactl.cli.progress import byte_progress, show_warnings
from eactl.condense.answer import SECONDS_CODE, Question, answer
from eactl.condense.check import CheckSettings
from eactl.condense.ledger import Prices
from eactl.condense.result import CheckResult
from eactl.condense.sketch import Sketch, read_sketch
from eactl.condense.strategies import parse_strategy
from eactl.errors import UsageError
from eactl.report.document import emit
from eactl.report.files import atomic_writer, refuse_overwrite
from eactl.trace.call import Notice
from eactl.trace.chatlog import ChatStream, open_chat
from eactl.trace.options import TraceOptions
from eactl.trace.prompts import PromptEncoder
from eactl.trace.readers.textbase import make_encoder
from eactl.trace.tokens import Tokenizer


def run_check(logs: Sequence[Path], options: Mapping[str, Any]) -> int:
    """Check everything that can be checked, then read, compare and show. Returns the exit status."""
    for name in ("output", "html"):
        if options[name] is not None:
            refuse_overwrite(options[name], force=options["force"], option=f"--{name}")
    if options["against"] is not None and str(options["against"]) == "-" and any(str(log) == "-" for log in logs):
        raise UsageError("standard input for both logs", where="--against -", hint="save one of them to a file")
    encoder = make_encoder(_trace_options(options))
    question = _question(logs, options, encoder.tokenizer)
    sketch = read_sketch(logs[0]) if len(logs) == 1 and options["format_name"] is None else None
    if sketch is not None:
        result = _read_sketch(sketch, options, question, encoder)
    else:
        result = _read(logs, options, question, encoder)
    if options["html"] is not None:
        from eactl.report.condense_html import condense_page

        with atomic_writer(options["html"]) as stream:
            stream.write(condense_page(result).encode("utf-8", "replace"))
    _show(result, options)
    return _status(result, options["fail_under"])


def _question(logs: Sequence[Path], options: Mapping[str, Any], tokenizer: Tokenizer) -> Question:
    def count(text: str) -> int:
        return max(1, len(tokenizer.encode(text)))

    prices, obr_bytes = _prices(options)
    kv_bytes = options["kv_bytes_per_token"]
    settings = CheckSettings(
        chunk_tokens=options["chunk_tokens"],
        prices=prices,
        tools_first=options["head"] == "tools-first",
        quotes=options["quotes"],
        bytes_per_token_rank=kv_bytes if kv_bytes is not None else obr_bytes,
    )
    here, there = logs[0].name or str(logs[0]), options["against"]
    other = "the other log" if there is None else there.name or str(there)
    return Question(
        settings=settings,
        condensers=tuple(parse_strategy(text, count) for text in options["condensers"]),
        names=(here, other if other != here else f"{other} (against)"),
    )


def _prices(options: Mapping[str, Any]) -> tuple[Prices, float | None]:
    reused, rate = options["reused_cost"], options["prefill_us_per_token"]
    if options["obr"] is None:
        default = Prices()
        cost = default.reused_cost if reused is None else reused
        return Prices(cost, None if rate is None else rate * 1e-6), None
    if rate is not None:
        raise UsageError("two prefill rates", where="--obr, --prefill-us-per-token", hint="give one of them")
    from eactl.model.obr import ObrResult

    result = ObrResult.from_document(_document(options["obr"]), where=f"--obr {options['obr']}")
    return Prices.from_obr(result, reused), result.bytes_per_token


def _document(path: Path) -> Mapping[str, Any]:
    import orjson

    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UsageError(
            f"not JSON ({error})", where=f"--obr {path}", hint="eactl probe obr -o FILE makes one"
        ) from None
    return document if isinstance(document, dict) else {}


def _read(logs: Sequence[Path], options: Mapping[str, Any], question: Question, encoder: PromptEncoder) -> CheckResult:
    trace_options = _trace_options(options)
    with byte_progress("reading") as progress:
        streams = [open_chat(logs, trace_options, on_bytes=progress)]
        if options["against"] is not None:
            streams.append(open_chat([options["against"]], trace_options, on_bytes=progress))
        progress.total(sum(stream.total_bytes for stream in streams))
        against = streams[1] if len(streams) > 1 else None
        return answer(
            streams[0], question, encoder.tokenizer, encoder.template, against=against,
            facts=lambda: _facts(streams),
        )  # fmt: skip


def _read_sketch(sketch: Sketch, options: Mapping[str, Any], question: Question, encoder: PromptEncoder) -> CheckResult:
    if options["against"] is not None:
        raise UsageError("a sketch has no tasks to compare", where="--against", hint="give two logs")
    if sketch.block_tokens is not None:
        question = replace(question, settings=replace(question.settings, chunk_tokens=sketch.block_tokens))
    return answer(sketch.requests, question, encoder.tokenizer, trim=sketch.trim)


def _trace_options(options: Mapping[str, Any]) -> TraceOptions:
    return TraceOptions(
        format=options["format_name"], skip_bad_lines=options["skip_bad_lines"], tokenizer=options["tokenizer"],
        chat_template=options["chat_template"],
    )  # fmt: skip


def _facts(streams: Sequence[ChatStream]) -> tuple[list[Mapping[str, Any]], list[Notice]]:
    from eactl.trace.notices import reading_notices

    sources = [source for stream in streams for source in stream.sources]
    general = [notice for stream in streams for notice in stream.warnings]
    of_time = ("no-common-clock", "no-times")  # sessions are compared each within itself
    notices = [notice for notice in reading_notices(general, sources) if notice.code not in of_time]
    return [source.as_dict() for source in sources], notices


def _show(result: CheckResult, options: Mapping[str, Any]) -> None:
    from eactl.report.annotate import STYLES
    from eactl.report.condense import condense_text

    show_warnings([warning for warning in result.warnings if warning["code"] != SECONDS_CODE])
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    text = "" if options["as_json"] else condense_text(result, width=width)
    emit("condenser-check", result.as_dict(), as_json=options["as_json"], output=options["output"], text=text)
    if options["annotate"] is not None:
        for line in STYLES[options["annotate"]](result):
            click.echo(line, err=options["as_json"])


def _status(result: CheckResult, fail_under: float | None) -> int:
    if fail_under is None or result.summary.stable_share >= fail_under:
        return 0
    click.echo(f"eactl: stable share {result.summary.stable_share:.4f} is below --fail-under {fail_under:g}", err=True)
    return 1
