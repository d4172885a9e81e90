"""The document of ``probe obr`` from made-up measurements: every figure leads back to samples, every text is true."""

from __future__ import annotations

import json
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
import pytest

from eactl.model.link import LinkState
from eactl.report.probe_obr import obr_text
from eactl_probes.gpu import GpuFacts
from eactl_probes.h2d import H2dFindings
from eactl_probes.h2d_document import h2d_fields, restore_rate
from eactl_probes.h2d_series import Pattern, RankRate, Series, SeriesPoint
from eactl_probes.obr import ObrFindings
from eactl_probes.obr_document import obr_fields
from eactl_probes.obr_settings import ObrSettings
from eactl_probes.prefill import PrefillFindings, PrefillPoint
from eactl_probes.sampling import Samples

GIB = 1 << 30
MIB = 1 << 20
SIZES = (MIB, 16 * MIB, 256 * MIB)
SETTINGS = ObrSettings(24576, tp=2, model="made up", config={}, tokens=(1024, 4096))


def noisy(seconds: float, *, count: int = 9) -> Samples:
    """Times around ``seconds``, the same ones in every run."""
    return Samples(tuple(seconds * (1 + 0.01 * ((7 * i) % count - count // 2)) for i in range(count)))


def series(gpu: int, direction: Any, memory: str, rate: float) -> Series:
    points = [SeriesPoint(size, noisy(10e-6 + size / rate)) for size in SIZES]
    return Series(gpu, direction, memory, 0, points)


def measured(device: str = "cuda") -> ObrFindings:
    """Two GPUs at 50 GB/s of which one falls to 20 when both copy, and a prefill of 20 ms + 8 us/token + n^2 term."""
    memory = "pinned" if device == "cuda" else "pageable"
    h2d = H2dFindings(device=device, environment={"device_name": "NVIDIA H20"})
    for gpu in range(2):
        h2d.gpus.append(GpuFacts(gpu, "NVIDIA H20", f"GPU-{gpu}", None, None, None, None, None, 0, None, None, 0))
        h2d.series += [series(gpu, "h2d", memory, 50e9), series(gpu, "d2h", memory, 45e9)]
        h2d.links[gpu] = LinkState(5, 16)
    h2d.together = [RankRate(0, 6 * GIB, noisy(6 * GIB / 40e9)), RankRate(1, 3 * GIB, noisy(3 * GIB / 20e9))]
    h2d.patterns = [Pattern("chunks", 0, 6 * MIB, 40, noisy(240 * MIB / 45e9))]
    prefill = PrefillFindings("layers", device=device)
    for n in (512, 2048, 8192, 32768):
        prefill.points.append(PrefillPoint(n, noisy(0.02 + 8e-6 * n + 5e-10 * n * n)))
    found = ObrFindings(h2d=h2d, prefill=prefill, bytes_per_token=24576)
    rate, figures = restore_rate(h2d), prefill.figures()
    assert rate is not None
    assert figures is not None
    found.bandwidth, found.overhead, found.limited_by = rate.bandwidth, rate.overhead, rate.limited_by
    found.per_token, found.quadratic = figures
    return found


def saved(findings: ObrFindings, status: str = "complete") -> dict[str, Any]:
    """The document as a reader of the file has it."""
    document: dict[str, Any] = json.loads(json.dumps(obr_fields(SETTINGS, findings, status)))
    return document


def test_the_rate_leads_back_to_the_slowest_ranks_rounds() -> None:
    document = saved(measured())
    slowest = document["h2d"]["concurrent"][1]
    rates = sorted(slowest["bytes"] / seconds / GIB for seconds in slowest["samples_s"])
    assert document["bandwidth_gib_s"] == pytest.approx(rates[4])  # the median of nine
    assert document["bandwidth_limited_by"] == "the slowest of 2 ranks at once"
    # A tenth of nine samples lies 0.8 of the way from the outermost to its neighbour; times and rates are reversed.
    times = sorted(slowest["samples_s"])
    low, high = times[8] - 0.8 * (times[8] - times[7]), times[0] + 0.8 * (times[1] - times[0])
    assert document["bands"]["bandwidth_gib_s"] == pytest.approx([3 / low, 3 / high])


def test_each_fitted_figure_leads_back_to_its_samples() -> None:
    document = saved(measured())
    for entry in document["h2d"]["series"]:
        points = [(point["bytes"], median(point["samples_s"])) for point in entry["points"]]
        slope = median((t2 - t1) / (x2 - x1) for (x1, t1), (x2, t2) in combinations(points, 2))
        assert entry["bandwidth_gib_s"] == pytest.approx(1 / slope / GIB)
    n = np.array([point["tokens"] for point in document["prefill"]["points"]], dtype=float)
    t = np.array([median(point["samples_s"]) for point in document["prefill"]["points"]])
    # Least squares on relative errors: every row of 1, n, n^2 divided by its time, against 1.
    rows = np.stack([np.ones_like(n), n, n * n], axis=1) / t[:, None]
    terms = np.linalg.lstsq(rows, np.ones_like(t), rcond=None)[0]
    sources = document["sources"]
    assert {sources["us_per_token"], sources["quadratic_us_per_token2"]} == {"measured (layers)"}
    assert document["us_per_token"] == pytest.approx(terms[1] * 1e6, rel=1e-6)
    assert document["quadratic_us_per_token2"] == pytest.approx(terms[2] * 1e6, rel=1e-6)


def test_the_ratio_leads_back_to_the_figures() -> None:
    document = saved(measured())
    for point in [*document["points"], document["reference"]]:
        n = point["tokens"]
        load = n * 24576 / (document["bandwidth_gib_s"] * GIB) + document["overhead_us"] * 1e-6
        compute = (n * document["us_per_token"] + n * n * document["quadratic_us_per_token2"]) * 1e-6
        assert (point["load_s"], point["recompute_s"]) == pytest.approx((load, compute))
        assert point["obr"] == pytest.approx(1 - load / compute)


def test_a_measurement_that_was_stopped_says_so_where_the_answer_is() -> None:
    assert "NOT COMPLETE" not in obr_text(saved(measured()))
    text = obr_text(saved(measured(), "interrupted"))
    assert text.splitlines()[-1].startswith("NOT COMPLETE: the measurement was interrupted.")


def test_without_a_gpu_the_answer_is_about_the_processor_and_has_no_class() -> None:
    document = saved(measured("cpu"))
    assert document["regime"] is None
    assert any(warning["code"] == "no-class" for warning in document["warnings"])
    assert "without a GPU: an answer about this processor" in obr_text(document)
    assert saved(measured())["regime"] == "low"  # an H20 by its datasheet


def test_the_answer_is_in_seconds() -> None:
    # 4,096 x 24 KiB at 20 GB/s and 10 us: 5.04 ms; 4,096 x 8 us + 4,096^2 x 0.0005 us = 41.2 ms.
    text = " ".join(obr_text(saved(measured())).split())
    assert "Restoring 4,096 tokens takes 5.04 ms, computing them 41.2 ms: OBR 0.88 at 4,096 tokens." in text
    assert "None of these changes the answer." in text


def test_a_free_restore_is_not_promised() -> None:
    found = measured()
    assert found.per_token is not None
    found.per_token = found.per_token.scaled(1e3)
    document = saved(found)
    assert "OBR above 0.999" in document["verdict_reason"]
    assert "over 99.9 %" in obr_text(document)


def test_a_high_class_is_advised_against_although_one_restore_is_cheaper() -> None:
    found = measured()
    assert found.h2d is not None
    found.h2d.environment["device_name"] = "NVIDIA H800"
    text = " ".join(obr_text(saved(found)).split())
    assert "RESTORE" in text
    assert "Even so, favour GPU prefix caching" in text


def test_the_slowest_of_alone_at_once_and_in_chunks_counts_with_its_own_band() -> None:
    findings = measured().h2d
    assert findings is not None
    document = h2d_fields(findings, "complete")
    assert document["restore_gib_s"] == pytest.approx(min(document["concurrent_ranks_gib_s"]))
    findings.together = []
    chunks = h2d_fields(findings, "complete")
    assert chunks["restore_limited_by"] == "the tier's chunks"
    assert chunks["restore_band_gib_s"][0] < chunks["restore_gib_s"] < chunks["restore_band_gib_s"][1]
