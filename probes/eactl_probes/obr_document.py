"""The document of ``probe obr``: the ratio at each length, what limits it, what would change it and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from eactl.errors import UsageError
from eactl.model.deployment import (
    REGIME_TEXT,
    Pressure,
    Scenario,
    advise,
    flips,
    regime,
    scenarios,
    turning_points,
)
from eactl.model.footprint import footprint
from eactl.model.gpus import find_gpu
from eactl.model.obr import ObrPoint, ObrResult, Verdict, obr_points
from eactl.model.workingset import gamma_gpu, gamma_host, working_set_bytes
from eactl.units import GIB
from eactl_probes.h2d_document import h2d_fields
from eactl_probes.notices import Notices
from eactl_probes.obr import ObrFindings
from eactl_probes.obr_settings import ObrSettings
from eactl_probes.prefill_document import prefill_fields
from eactl_probes.restore_logs import RestoreLog


def obr_fields(settings: ObrSettings, findings: ObrFindings, status: str) -> dict[str, Any]:
    """All fields of the document. With a figure missing, the measured parts are kept and the rest is null."""
    notices = Notices(list(findings.notices.entries))
    # Copies come first: once prefill has begun they are complete, however the rest ends.
    h2d = h2d_fields(findings.h2d, "complete" if findings.prefill else status) if findings.h2d else None
    prefill = prefill_fields(findings.prefill, status, settings.tokens) if findings.prefill else None
    for part in (h2d, prefill):
        # Both parts look at the same machine: what is wrong with it is said once.
        notices.entries.extend(e for e in (part or {}).get("warnings", []) if not notices.has(e["code"]))
    result = findings.result
    ratio, basis = _flop_per_host_byte(settings, findings)
    answer = _answer(settings, findings, result, ratio, notices) if result else _no_answer(notices)
    return {
        "status": status,
        "device": (h2d or prefill or {}).get("device"),
        "device_name": (h2d or prefill or {}).get("device_name"),
        "gpu": settings.peak.name,
        "model": settings.model,
        "tp": settings.tp,
        "kv_dtype": settings.kv_dtype,
        **(result.fields() if result else _partial_figures(findings)),
        "bandwidth_limited_by": findings.limited_by,
        **answer,
        "flop_per_host_byte": ratio,
        "flop_per_host_byte_basis": basis,
        "h2d": h2d,
        "prefill": prefill,
        "log": _log(findings.log) if findings.log else None,
        "warnings": notices.entries,
    }  # fmt: skip


def _answer(
    settings: ObrSettings, findings: ObrFindings, result: ObrResult, ratio: float | None, notices: Notices
) -> dict[str, Any]:
    points = obr_points(result, settings.tokens)
    load = settings.load
    reference = round(load.mean_prompt_tokens) if load.mean_prompt_tokens else points[-1].tokens
    verdict, reason = _verdict(settings, findings, result, result.point(reference).verdict, reference)
    pressure = _pressure(settings, result)
    on_cpu = findings.h2d is not None and findings.h2d.device == "cpu"
    kind = regime(ratio) if ratio is not None and not on_cpu else None
    if on_cpu:
        notices.add(
            "no-class", "without a GPU there is no host link: FLOP per byte has no class of Table 1 then",
            "add --gpu NAME, or --peak-tflops with --link",
        )  # fmt: skip
    elif kind is None:
        notices.add(
            "no-flop-per-byte", "the matrix rate or the link is not known: no FLOP per host byte, no class of Table 1",
            "add --gpu NAME, or --peak-tflops with --link",
        )  # fmt: skip
    _note_extrapolation(findings, points, notices)
    advice = advise(verdict, kind, pressure)
    loaded = findings.loaded_result
    return {
        "points": [_point(result, point) for point in points],
        "limit_obr": result.limit_obr,
        "break_even_tokens": result.break_even_tokens,
        "reference_tokens": reference,
        "reference": _point(result, result.point(reference)),
        "restores_per_store": result.restores_per_store(reference),
        "verdict": verdict,
        "verdict_reason": reason,
        "loaded": None if loaded is None else _loaded(loaded, settings.tokens, reference),
        "regime": kind,
        "regime_text": REGIME_TEXT[kind] if kind else None,
        "gamma_g": pressure.gamma_g,
        "gamma_h": pressure.gamma_h,
        "advice": " ".join(entry.text for entry in advice),
        "advice_codes": [entry.code for entry in advice],
        "turning_points": turning_points(result, reference),
        "flips": [asdict(flip) for flip in flips(result, reference, _scenarios(settings))],
    }


def _no_answer(notices: Notices) -> dict[str, Any]:
    notices.add(
        "incomplete", "not all figures are known: no ratio", "run the probe to its end, or give the missing ones"
    )
    names = (
        "limit_obr", "break_even_tokens", "reference_tokens", "reference", "restores_per_store", "verdict",
        "verdict_reason", "loaded", "regime", "regime_text", "gamma_g", "gamma_h", "advice", "turning_points",
    )  # fmt: skip
    return {"points": [], **dict.fromkeys(names), "advice_codes": [], "flips": []}


def _partial_figures(findings: ObrFindings) -> dict[str, Any]:
    """What is known of the figures of an interrupted run, under the names of ObrResult.fields."""
    known = {
        "bandwidth_gib_s": findings.bandwidth.scaled(1 / GIB) if findings.bandwidth else None,
        "overhead_us": findings.overhead.scaled(1e6) if findings.bandwidth else None,
        "us_per_token": findings.per_token.scaled(1e6) if findings.per_token else None,
        "quadratic_us_per_token2": findings.quadratic.scaled(1e6) if findings.per_token else None,
    }
    return {
        "bytes_per_token_rank": findings.bytes_per_token,
        **{name: figure.value if figure else None for name, figure in known.items()},
        "sources": {name: figure.source for name, figure in known.items() if figure},
        "bands": {name: [figure.low, figure.high] for name, figure in known.items() if figure},
    }


def _log(log: RestoreLog) -> dict[str, Any]:
    return {
        "events": log.events,
        "kinds": sorted(log.kinds),
        "load_gib_s": [rate / GIB for rate in log.load_rates],
        "store_gib_s": [rate / GIB for rate in log.store_rates],
        "bytes_per_token": log.bytes_per_token,
    }


def _point(result: ObrResult, point: ObrPoint) -> dict[str, Any]:
    return {**asdict(point), "store_s": result.store_s(point.tokens)}


def _loaded(result: ObrResult, tokens: Sequence[int], reference: int) -> dict[str, Any]:
    return {
        "us_per_token": result.us_per_token,
        "quadratic_us_per_token2": result.quadratic.value * 1e6,
        "points": [_point(result, point) for point in obr_points(result, tokens)],
        "limit_obr": result.limit_obr,
        "break_even_tokens": result.break_even_tokens,
        "verdict": result.point(reference).verdict,
    }


def _verdict(
    settings: ObrSettings, findings: ObrFindings, result: ObrResult, verdict: Verdict, reference: int
) -> tuple[Verdict, str]:
    """The verdict at the reference length; whole requests, where they were timed, overrule the ratio."""
    whole = settings.given.end_to_end_s
    if whole is not None:
        cold, hit = whole
        if hit >= cold:
            return "recompute", (
                f"with a hit the whole request takes {hit:g} s instead of {cold:g} s, whatever the prefill saves: "
                "with speculative decoding, look at the draft model's state and its acceptance"
            )
    saved = f"OBR {_ratio(result.obr(reference))} at {reference:,} tokens"
    loaded = findings.loaded_result
    if loaded is not None:
        under = loaded.point(reference)
        saved += f", {_ratio(under.obr)} under load"
        if under.verdict != verdict:
            return "unclear", f"{saved}: idle and loaded engines disagree"
    if verdict == "unclear":
        return verdict, f"{saved}, but the samples span both signs"
    return verdict, saved


def _ratio(obr: float) -> str:
    """Two decimals, more near one: 1.00 would promise a free restore."""
    return "above 0.999" if 0.9995 <= obr < 1 else f"{obr:.3f}" if 0.995 <= obr < 1 else f"{obr:.2f}"


def _pressure(settings: ObrSettings, result: ObrResult) -> Pressure:
    load = settings.load
    if load.agents is None or load.mean_prompt_tokens is None:
        return Pressure()
    reuse = working_set_bytes(load.agents, load.mean_prompt_tokens, result.bytes_per_token)
    gamma_g = gamma_gpu(load.agents, load.mean_prompt_tokens, load.gpu_kv_tokens) if load.gpu_kv_tokens else None
    return Pressure(gamma_g, gamma_host(reuse, load.host_bytes) if load.host_bytes else None)


def _flop_per_host_byte(settings: ObrSettings, findings: ObrFindings) -> tuple[float | None, str | None]:
    """FLOP/s over host-link bytes/s of one GPU: peaks where they are known, as in Table 1, else as measured."""
    peak = settings.peak
    if peak.flop_per_s and peak.link_bytes_per_s:
        return peak.flop_per_s / peak.link_bytes_per_s, "datasheet" if peak.name else "given"
    name = findings.h2d.environment.get("device_name") if findings.h2d else None
    sheet = find_gpu(str(name)) if name and findings.h2d and findings.h2d.device == "cuda" else None
    if sheet is not None:
        return sheet.flop_per_host_byte, "datasheet"
    rate = findings.prefill.matrix_rate.flop_per_s.value if findings.prefill and findings.prefill.matrix_rate else None
    flop = peak.flop_per_s or rate
    link = peak.link_bytes_per_s or (findings.bandwidth.value if findings.bandwidth else None)
    if flop is None or link is None:
        return None, None
    return flop / link, "measured" if rate and not peak.link_bytes_per_s else "given and measured"


def _scenarios(settings: ObrSettings) -> tuple[Scenario, ...]:
    """The questions that make sense here: TP and fp8 KV as the model's own footprint has them."""
    if settings.config is None or settings.bytes_per_token is None:
        return scenarios()
    now = settings.bytes_per_token
    fp8 = None if "fp8" in settings.kv_dtype else _weight(settings, settings.tp, "fp8")
    double = _weight(settings, 2 * settings.tp, settings.kv_dtype)
    return scenarios(
        fp8_bytes_factor=fp8 / now if fp8 else None, double_tp_bytes_factor=double / now if double else None
    )


def _weight(settings: ObrSettings, tp: int, kv_dtype: str) -> int | None:
    try:
        return footprint(settings.config or {}, tp=tp, kv_dtype=kv_dtype).tier_bytes_per_token_rank
    except UsageError:  # this TP or data type is impossible for the model: not a question to ask
        return None


def _note_extrapolation(findings: ObrFindings, points: Sequence[ObrPoint], notices: Notices) -> None:
    measured = findings.prefill.points if findings.prefill else []
    if measured and points[-1].tokens > 4 * measured[-1].tokens:
        notices.add(
            "extrapolated",
            f"prefill was timed up to {measured[-1].tokens:,} tokens; beyond that its two terms are extrapolated",
            "probe the running server (--url), or eactl probe prefill --tokens with longer prompts",
        )
