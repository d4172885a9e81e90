"""From the options of ``eactl size`` to its settings, and from its result to the screen."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eactl.cli.progress import byte_progress, show_warnings, stages
from eactl.errors import UsageError
from eactl.report.document import emit
from eactl.report.files import refuse_overwrite
from eactl.sizing import SizeSettings, TokenWeight, size_trace
from eactl.sizing.advice import Available
from eactl.units import parse_size_bytes

if TYPE_CHECKING:
    from eactl.model.obr import ObrResult


def run_size(paths: Sequence[Path], options: Mapping[str, Any]) -> None:
    """Check everything that can be checked, then read, size and show."""
    settings = _settings(options)
    available = _available(options["host_memory"])
    output, plot, force = options["output"], options["plot"], options["force"]
    if output is not None:
        refuse_overwrite(output, force=force)
    if plot is not None:
        from eactl.report.plot import check_plot_target

        refuse_overwrite(plot, force=force, option="--plot")
        check_plot_target(plot)

    from eactl.report.size import size_text
    from eactl.trace import open_trace
    from eactl.trace.notices import inference_notices, reading_notices
    from eactl.trace.repeats import repeats_notices
    from eactl.trace.workload import load_workload

    with byte_progress("reading") as progress:
        stream = open_trace(paths, options["reading"], on_bytes=progress)
        progress.total(stream.total_bytes)
        workload = load_workload(stream)
    merged = None
    if workload.salts > 1 and not any(str(path) == "-" for path in paths):  # standard input is read only once
        with byte_progress("reading again without salts") as progress:
            again = open_trace(paths, options["reading"], on_bytes=progress)
            progress.total(again.total_bytes)
            merged = load_workload(again, merge_salts=True)
    notices = reading_notices(stream.warnings, stream.sources)
    notices += [*inference_notices(stream.sources), *repeats_notices(workload)]
    with stages() as on_stage:
        result = size_trace(
            workload, settings, available, merged=merged,
            sources=[source.as_dict() for source in stream.sources],
            warnings=[notice.as_dict() for notice in notices],
            on_stage=on_stage,
        )  # fmt: skip
    if plot is not None:
        from eactl.report.plot import write_size_plot

        write_size_plot(result, plot)
    show_warnings(result.warnings)
    width = min(shutil.get_terminal_size((100, 24)).columns, 100)
    text = "" if options["as_json"] else size_text(result, width=width)
    emit("size", result.as_dict(), as_json=options["as_json"], output=output, text=text)


def _settings(options: Mapping[str, Any]) -> SizeSettings:
    from eactl.model.orders import ServiceRates

    obr = _saved_obr(options["obr"])
    default = ServiceRates()
    prefill = options["prefill_us_per_token"]
    if prefill is None and obr is not None:
        prefill = obr.us_per_token
    rates = ServiceRates(
        prefill_us_per_token=default.prefill_us_per_token if prefill is None else float(prefill),
        decode_ms_per_token=default.decode_ms_per_token
        if options["decode_ms_per_token"] is None
        else options["decode_ms_per_token"],
    )
    return SizeSettings(
        weight=_weight(options),
        chunk_tokens=options["chunk_tokens"],
        gpu_kv_tokens=options["gpu_kv_tokens"],
        capacities_bytes=_capacities(options["capacity"]),
        agents=options["agents"],
        orders=tuple(name.strip() for name in options["order"].split(",")) if options["order"] else None,
        target=options["target"],
        replicas=options["dp"],
        rates=rates,
        bound=options["bound"],
        obr=obr,
    )


def _weight(options: Mapping[str, Any]) -> TokenWeight:
    model, given, tp = options["model"], options["kv_bytes_per_token"], options["tp"]
    if (model is None) == (given is None):
        what = "neither a model nor a KV size" if model is None else "both a model and a KV size"
        raise UsageError(what, where="--model, --kv-bytes-per-token", hint="give one of them")
    if given is not None:
        return TokenWeight(bytes_per_token_rank=given, tp=tp, tier_ranks=tp)
    from eactl.configs import resolve_model
    from eactl.model.footprint import footprint

    resolved = resolve_model(model)
    weighed = footprint(resolved.config, tp=tp, kv_dtype=options["kv_dtype"], model=resolved.name)
    return TokenWeight(
        bytes_per_token_rank=weighed.tier_bytes_per_token_rank,
        state_bytes_rank=weighed.tier_chunk_bytes_rank(0),
        tp=tp,
        tier_ranks=weighed.tier_ranks,
        model=resolved.name,
        loads_from=resolved.loads_from(model),
        notes=(*resolved.notes, *weighed.notes),
    )


def _capacities(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(parse_size_bytes(part, where="--capacity") for part in text.split(","))


def _available(text: str | None) -> Available:
    if text is not None:
        return Available(parse_size_bytes(text, where="--host-memory"), "the given host")
    from eactl.hostinfo import available_memory_bytes

    return Available(available_memory_bytes(), "this machine")


def _saved_obr(path: Path | None) -> ObrResult | None:
    if path is None:
        return None
    import orjson

    from eactl.model.obr import ObrResult

    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UsageError(
            f"not JSON: {error}", where=f"--obr {path}", hint="make one with: eactl probe obr -o FILE"
        ) from error
    if not isinstance(document, dict):
        raise UsageError("not a JSON object", where=f"--obr {path}", hint="make one with: eactl probe obr -o FILE")
    return ObrResult.from_document(document, where=f"--obr {path}")
