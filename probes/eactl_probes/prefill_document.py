"""The document of ``probe prefill``: the two terms of the cost, and the samples they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eactl_probes.notices import Notices
from eactl_probes.prefill import PrefillFindings, PrefillPoint
from eactl_probes.sampling import POOR_FIT, PrefillFit

_BOUND_LENGTHS = (512, 2048, 8192, 32768)


def prefill_fields(findings: PrefillFindings, status: str, tokens: Sequence[int] = ()) -> dict[str, Any]:
    """All fields of the document; what was not found is null and has an entry in ``warnings``."""
    notices = Notices(list(findings.notices.entries))
    figures, loaded = findings.figures(), findings.figures(loaded=True)
    fit = findings.fit()
    if figures is None:
        notices.add("no-prefill", "no length was measured to its end", "run the probe to its end")
    elif fit is not None and len(findings.points) < 3:
        notices.add(
            "no-quadratic", "fewer than three lengths: attention that grows with the prompt is part of the linear term",
            "measure at least three lengths (--tokens)",
        )  # fmt: skip
    if fit is not None and (worst := max(abs(residual) for residual in fit.residuals)) > POOR_FIT:
        notices.add(
            "poor-fit", f"prefill times lie up to {worst:.0%} off the fitted curve: its terms are doubtful, more so "
            "at longer prompts", "measure again on a quiet machine, or more lengths (probe prefill --tokens)",
        )  # fmt: skip
    if findings.bound is not None:
        notices.add(
            "lower-bound", "a bound, not a measurement: real prefill is slower", "use --method layers or server"
        )
    rate = findings.matrix_rate
    per_token, quadratic = figures if figures else (None, None)
    return {
        "status": status,
        "method": findings.method,
        "device": findings.device,
        "device_name": findings.environment.get("device_name"),
        "points": _bound_points(findings, tokens) if findings.bound else _points(findings.points, fit),
        "us_per_token": per_token.value * 1e6 if per_token else None,
        "us_per_token_band": [per_token.low * 1e6, per_token.high * 1e6] if per_token else None,
        "quadratic_us_per_token2": quadratic.value * 1e6 if quadratic else None,
        "quadratic_band_us_per_token2": [quadratic.low * 1e6, quadratic.high * 1e6] if quadratic else None,
        "fixed_us": fit.fixed * 1e6 if fit else None,
        "loaded": None
        if loaded is None
        else {
            "us_per_token": loaded[0].value * 1e6,
            "us_per_token_band": [loaded[0].low * 1e6, loaded[0].high * 1e6],
            "quadratic_us_per_token2": loaded[1].value * 1e6,
            "points": _points(findings.loaded_points, findings.fit(loaded=True)),
        },
        "matrix": None
        if rate is None
        else {
            "tflops": rate.flop_per_s.value / 1e12,
            "band_tflops": [rate.flop_per_s.low / 1e12, rate.flop_per_s.high / 1e12],
            "side": rate.side,
            "dtype": rate.dtype,
            "samples_s": list(rate.samples.seconds),
        },
        "details": dict(findings.details),
        "environment": dict(findings.environment),
        "warnings": notices.entries,
    }


def _points(points: Sequence[PrefillPoint], fit: PrefillFit | None) -> list[dict[str, Any]]:
    return [
        {
            "tokens": point.tokens,
            "median_s": point.samples.median_s,
            "mad_s": point.samples.mad_s,
            "us_per_token": point.samples.median_s / point.tokens * 1e6,
            "outliers": list(point.samples.outliers),
            "residual": fit.residuals[index] if fit else None,
            "samples_s": list(point.samples.seconds),
        }
        for index, point in enumerate(points)
    ]


def _bound_points(findings: PrefillFindings, tokens: Sequence[int]) -> list[dict[str, Any]]:
    if findings.bound is None:
        return []
    per_token, quadratic = findings.bound
    found = []
    for n in tokens or _BOUND_LENGTHS:
        seconds = n * per_token.value + n * n * quadratic.value
        found.append({"tokens": n, "median_s": seconds, "mad_s": None, "us_per_token": seconds / n * 1e6})
    return found
