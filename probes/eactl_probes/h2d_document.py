"""The document of ``probe h2d``: headline figures, and below them every series with its raw samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from eactl.model.link import LinkState, lagging_ranks, link_text, numa_choice
from eactl.model.obr import Figure
from eactl.units import GIB
from eactl_probes.gpu import GpuFacts
from eactl_probes.h2d import H2dFindings
from eactl_probes.h2d_series import Direction, RankRate, Series
from eactl_probes.notices import Notices
from eactl_probes.sampling import POOR_FIT

# A pattern this much slower than the fitted rate is limited by the number of pieces, not by the link.
_PATTERN_SHORTFALL = 0.8


@dataclass(frozen=True, slots=True)
class RestoreRate:
    """The host-to-device rate that a restore sees, its overhead, and which measurement limits it."""

    bandwidth: Figure
    overhead: Figure
    limited_by: str


def restore_rate(findings: H2dFindings) -> RestoreRate | None:
    """The slowest of: the slowest rank alone, the slowest of all at once, the tier's own chunks; None if unmeasured."""
    main = _main_series(findings, "h2d")
    bandwidth, overhead = (main.bandwidth, main.overhead) if main else (None, None)
    if main is None or bandwidth is None or overhead is None:
        return None
    candidates = [(bandwidth, f"{_device_label(main.gpu)} alone")]
    ranks = findings.together
    candidates.extend((rank.bandwidth, f"the slowest of {len(ranks)} ranks at once") for rank in ranks)
    candidates.extend((p.bandwidth, f"the tier's {p.name}") for p in findings.patterns if p.name == "chunks")
    slowest, reason = min(candidates, key=lambda candidate: candidate[0].value)
    return RestoreRate(slowest, overhead, reason)


def h2d_fields(findings: H2dFindings, status: str) -> dict[str, Any]:
    """All fields of the document; what was not measured is null and has an entry in ``warnings``."""
    notices = Notices(list(findings.notices.entries))
    main, back = _main_series(findings, "h2d"), _main_series(findings, "d2h")
    bandwidth = main.bandwidth if main else None
    overhead = main.overhead if main else None
    rate = restore_rate(findings)
    together = [_gib_s(rank.bandwidth.value) for rank in findings.together]
    if bandwidth is None:
        enough = main is not None and len(main.points) > 1
        why = "the times do not grow with the size" if enough else "fewer than two sizes were measured"
        hint = "measure again on a quiet machine, with larger --sizes" if enough else "run the probe to its end"
        notices.add("no-bandwidth", f"{why}: no bandwidth", hint)
    if not findings.together:
        notices.add(
            "no-concurrent", "one rank only: nothing was copied at once", "use --ranks, or a machine with more GPUs"
        )
    _note_outliers(findings, notices)
    _note_patterns(findings, bandwidth, notices)
    return {
        "status": status,
        "device": findings.device,
        "device_name": findings.environment.get("device_name"),
        "pinned": main.memory == "pinned" if main else None,
        "points": _points(main) if main else [],
        "bandwidth_gib_s": _gib_s(bandwidth.value) if bandwidth else None,
        "bandwidth_band_gib_s": [_gib_s(bandwidth.low), _gib_s(bandwidth.high)] if bandwidth else None,
        "overhead_us": overhead.value * 1e6 if overhead else None,
        "overhead_band_us": [overhead.low * 1e6, overhead.high * 1e6] if overhead else None,
        "worst_residual": fit.worst_residual if main and (fit := main.fit()) else None,
        "d2h_gib_s": _gib_s(back.bandwidth.value) if back and back.bandwidth else None,
        "pageable_gib_s": _pageable(findings),
        "concurrent_gib_s": min(together) if together else None,
        "concurrent_ranks_gib_s": together,
        "concurrent": [_rank(rank) for rank in findings.together],
        "restore_gib_s": _gib_s(rate.bandwidth.value) if rate else None,
        "restore_band_gib_s": [_gib_s(rate.bandwidth.low), _gib_s(rate.bandwidth.high)] if rate else None,
        "restore_limited_by": rate.limited_by if rate else None,
        "patterns": _patterns(findings),
        "numa_node": main.numa_node if main else None,
        "numa": _numa(findings, notices),
        "link": _link(findings, main, notices),
        "gpus": [_gpu(facts, findings.links.get(facts.index)) for facts in findings.gpus],
        "verified": all(series.verified for series in findings.series) if findings.series else None,
        "timer_overhead_us": findings.timer.median_s * 1e6 if findings.timer else None,
        "timer_samples_s": list(findings.timer.seconds) if findings.timer else [],
        "series": [_series(series) for series in findings.series],
        "environment": dict(findings.environment),
        "warnings": notices.entries,
    }


def _main_series(findings: H2dFindings, direction: Direction) -> Series | None:
    """The slowest rank's series in this direction, from the memory a tier would use (pinned where there is a GPU)."""
    memory = "pinned" if findings.device == "cuda" else "pageable"
    candidates = [s for s in findings.series if s.direction == direction and s.memory == memory and s.points]
    fitted = [(series.bandwidth.value, i) for i, series in enumerate(candidates) if series.bandwidth]
    if not fitted:
        return candidates[0] if candidates else None
    return candidates[min(fitted)[1]]


def _points(series: Series) -> list[dict[str, Any]]:
    return [
        {
            "bytes": p.size_bytes,
            "median_s": p.samples.median_s,
            "mad_s": p.samples.mad_s,
            "samples": len(p.samples.seconds),
        }
        for p in series.points
    ]


def _series(series: Series) -> dict[str, Any]:
    fit = series.fit()
    points = [
        {
            "bytes": point.size_bytes,
            "median_s": point.samples.median_s,
            "mad_s": point.samples.mad_s,
            "outliers": list(point.samples.outliers),
            "residual": fit.residuals[index] if fit else None,
            "samples_s": list(point.samples.seconds),
        }
        for index, point in enumerate(series.points)
    ]
    return {
        "gpu": series.gpu,
        "direction": series.direction,
        "memory": series.memory,
        "numa_node": series.numa_node,
        "bandwidth_gib_s": _gib_s(series.bandwidth.value) if series.bandwidth else None,
        "overhead_us": series.overhead.value * 1e6 if series.overhead else None,
        "verified": series.verified,
        "points": points,
    }


def _patterns(findings: H2dFindings) -> list[dict[str, Any]]:
    return [
        {
            "name": pattern.name,
            "gpu": pattern.gpu,
            "piece_bytes": pattern.piece_bytes,
            "pieces": pattern.pieces,
            "gib_s": _gib_s(pattern.bytes_per_s),
            "samples_s": list(pattern.samples.seconds),
        }
        for pattern in findings.patterns
    ]


def _rank(rank: RankRate) -> dict[str, Any]:
    rate = _gib_s(rank.bandwidth.value)
    return {"gpu": rank.gpu, "bytes": rank.copied_bytes, "gib_s": rate, "samples_s": list(rank.samples.seconds)}


def _numa(findings: H2dFindings, notices: Notices) -> dict[str, Any] | None:
    if not findings.numa_rates:
        return None
    verdicts = []
    for gpu in sorted({rate.gpu for rate in findings.numa_rates}, key=lambda g: -1 if g is None else g):
        rates = {rate.node: rate.bytes_per_s for rate in findings.numa_rates if rate.gpu == gpu}
        choice = numa_choice(rates, _device_label(gpu))
        if choice:
            verdicts.append(choice.text)
    for rate in findings.numa_rates:
        if rate.observed_node is not None and rate.observed_node != rate.node:
            notices.add(
                "numa-elsewhere", f"memory asked for on node {rate.node} was placed on node {rate.observed_node}",
                "check free memory per node (eactl probe host)",
            )  # fmt: skip
    rates_out = [
        {
            "gpu": rate.gpu, "node": rate.node, "observed_node": rate.observed_node, "bytes_per_s": rate.bytes_per_s,
            "gib_s": _gib_s(rate.bytes_per_s),
            "points": [{"bytes": p.size_bytes, "samples_s": list(p.samples.seconds)} for p in rate.points],
        }
        for rate in findings.numa_rates
    ]  # fmt: skip
    return {"rates": rates_out, "verdicts": verdicts}


def _link(findings: H2dFindings, main: Series | None, notices: Notices) -> dict[str, Any] | None:
    """Generation and width during a copy against their maximum; null where NVML or a GPU is missing."""
    facts = next((gpu for gpu in findings.gpus if main is not None and gpu.index == main.gpu), None)
    if facts is None:
        if findings.device == "cpu":
            notices.add("no-link", "memory to memory: there is no host link", "run on the serving machine")
        return None
    busy = findings.links.get(facts.index)
    for gpu in findings.gpus:
        ok, text = _link_of(gpu, findings.links.get(gpu.index))
        if ok is False:
            notices.add("link-downgrade", f"GPU {gpu.index}: {text}", "compare with nvidia-smi -q -d PCIE under load")
        elif ok is None and gpu.link_max is not None and not gpu.nvlink_c2c:
            notices.add("link-idle", f"GPU {gpu.index}: {text}", "run the probe again")
    kind = "NVLink-C2C" if facts.nvlink_c2c else "PCIe"
    return {"kind": kind, **_state(busy, ""), **_state(facts.link_max, "max_"), **_state(facts.link, "idle_")}


def _state(state: LinkState | None, prefix: str) -> dict[str, int | None]:
    return {f"{prefix}gen": state.gen if state else None, f"{prefix}width": state.width if state else None}


def _gpu(facts: GpuFacts, busy: LinkState | None) -> dict[str, Any]:
    ok, text = _link_of(facts, busy)
    return {**asdict(facts), "link_busy": asdict(busy) if busy else None, "link_ok": ok, "link_text": text}


def _link_of(facts: GpuFacts, busy: LinkState | None) -> tuple[bool | None, str]:
    if facts.nvlink_c2c:
        return None, "NVLink-C2C to the host, which PCIe generation and width do not describe"
    return link_text(busy, facts.link_max, facts.link)


def _pageable(findings: H2dFindings) -> float | None:
    """The first GPU's rate from pageable memory, the cost of not pinning; null on a CPU, where all is pageable."""
    if findings.device == "cpu":
        return None
    series = next((s for s in findings.series if s.memory == "pageable" and s.direction == "h2d"), None)
    return _gib_s(series.bandwidth.value) if series and series.bandwidth else None


def _note_outliers(findings: H2dFindings, notices: Notices) -> None:
    for series in findings.series:
        noisy = [p for p in series.points if len(p.samples.outliers) > len(p.samples.seconds) // 10]
        if noisy:
            notices.add(
                "outliers",
                f"{_device_label(series.gpu)} {series.direction} {series.memory}: more than a tenth of the samples are "
                f"outliers at {len(noisy)} of {len(series.points)} sizes",
                "stop other work on this machine and measure again",
            )
        fit = series.fit()
        if fit is not None and fit.worst_residual > POOR_FIT:
            notices.add(
                "poor-fit",
                f"{_device_label(series.gpu)} {series.direction} {series.memory}: "
                f"a size lies {fit.worst_residual:.0%} off the fitted line",
                "look at the residuals, and measure again on a quiet machine",
            )
    h2d = [s for s in findings.series if s.direction == "h2d" and s.memory == "pinned" and s.bandwidth]
    _note_lagging("alone", [s.bandwidth.value for s in h2d if s.bandwidth], notices)
    _note_lagging("at once", [rank.bandwidth.value for rank in findings.together], notices)


def _note_lagging(label: str, rates: Sequence[float], notices: Notices) -> None:
    for index in lagging_ranks(rates):
        notices.add(
            "lagging-rank",
            f"rank {index} copies at {_gib_s(rates[index]):.1f} GiB/s {label}, the median is "
            f"{_gib_s(median(rates)):.1f}: every restore waits for it",
            "check its slot, its NUMA node and whether it shares a switch (nvidia-smi topo -m)",
        )


def _note_patterns(findings: H2dFindings, bandwidth: Figure | None, notices: Notices) -> None:
    for pattern in findings.patterns:
        if bandwidth and pattern.bytes_per_s < _PATTERN_SHORTFALL * bandwidth.value:
            notices.add(
                "small-pieces",
                f"{pattern.name} of {pattern.piece_bytes} bytes reach {_gib_s(pattern.bytes_per_s):.1f} of "
                f"{_gib_s(bandwidth.value):.1f} GiB/s: pieces are too small for the link",
                "use larger chunks (LMCache chunk_size), or a connector that copies whole chunks",
            )


def _device_label(gpu: int | None) -> str:
    return "memory" if gpu is None else f"GPU {gpu}"


def _gib_s(bytes_per_s: float) -> float:
    return bytes_per_s / GIB
