"""``probe obr``: gather the figures, given or measured, and weigh restoring against computing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from eactl.errors import UsageError
from eactl.model.decoder import Decoder, read_decoder
from eactl.model.link import lagging_ranks
from eactl.model.obr import ASSUMED_ZERO, Figure, ObrResult
from eactl.units import GIB
from eactl_probes.h2d import QUICK_SIZES, SIZES, H2dFindings, H2dSettings, Numa, TierShape, measure_h2d
from eactl_probes.h2d_document import restore_rate
from eactl_probes.notices import Notices, ignore_progress
from eactl_probes.obr_settings import ObrSettings
from eactl_probes.prefill import PrefillFindings
from eactl_probes.prefill_run import PrefillSettings, run_prefill
from eactl_probes.restore_logs import RestoreLog, read_restore_logs
from eactl_probes.sampling import Budget
from eactl_probes.torch_env import require_torch

# Seconds for everything, loading torch included, below the promised 15 s and 60 s because the last step may overrun.
_QUICK_S, _DEFAULT_S = 10.0, 50.0
# Of what is left, the share that copies may take; arithmetic on two CPU cores needs the larger part.
_H2D_SHARE = 0.35


@dataclass
class ObrFindings:
    """What is known so far; grows while the probe runs, so that an interruption keeps it."""

    h2d: H2dFindings | None = None
    prefill: PrefillFindings | None = None
    log: RestoreLog | None = None
    decoder: Decoder | None = None
    bandwidth: Figure | None = None
    limited_by: str | None = None
    d2h_bandwidth: Figure | None = None
    overhead: Figure = ASSUMED_ZERO
    per_token: Figure | None = None
    quadratic: Figure = ASSUMED_ZERO
    loaded: tuple[Figure, Figure] | None = None
    bytes_per_token: float | None = None
    notices: Notices = field(default_factory=Notices)

    @property
    def empty(self) -> bool:
        """Whether nothing worth keeping was measured yet."""
        measured = [part for part in (self.h2d, self.prefill) if part is not None]
        return all(part.empty for part in measured) and self.log is None

    @property
    def result(self) -> ObrResult | None:
        """The figures put together; None while one is missing."""
        if self.bandwidth is None or self.per_token is None or self.bytes_per_token is None:
            return None
        return ObrResult(
            self.bytes_per_token, self.bandwidth, self.per_token, self.overhead, self.quadratic, self.d2h_bandwidth
        )

    @property
    def loaded_result(self) -> ObrResult | None:
        """The same with the prefill cost under load."""
        if self.result is None or self.loaded is None:
            return None
        return replace(self.result, per_token=self.loaded[0], quadratic=self.loaded[1])


def gather(settings: ObrSettings, findings: ObrFindings, progress: Callable[[str], None] = ignore_progress) -> None:
    """Fill ``findings`` from what is given and measure the rest; what was found is kept whatever happens."""
    findings.bytes_per_token = settings.bytes_per_token
    findings.decoder = _decoder(settings)
    _take_given(settings, findings)
    budget = Budget(_QUICK_S if settings.quick else _DEFAULT_S)
    if settings.measures_here:
        progress("loading torch")
        require_torch("probe obr")
    if settings.logs:
        _from_logs(settings, findings)
    elif settings.measures_bandwidth:
        _measure_bandwidth(settings, findings, _H2D_SHARE * budget.left_s, progress)
    if findings.per_token is None:
        _find_prefill(settings, findings, budget.left_s, progress)


def _decoder(settings: ObrSettings) -> Decoder | None:
    """The model's matrices, where they are needed and known; a method that needs them raises what is wrong."""
    if settings.config is None or settings.prefill_method in (None, "server"):
        return None
    try:
        return read_decoder(settings.config, model=settings.model)
    except UsageError:
        if settings.prefill_method == "bound" and settings.active_parameters is not None:
            return None
        raise


def _take_given(settings: ObrSettings, findings: ObrFindings) -> None:
    given, peak = settings.given, settings.peak
    if given.bandwidths:
        findings.bandwidth = Figure.exact(min(given.bandwidths))
        _judge_ranks(given.bandwidths, findings)
    elif peak.link_bytes_per_s and not settings.logs:
        findings.bandwidth = Figure.exact(peak.link_bytes_per_s, "datasheet")
        findings.notices.add(
            "datasheet-link", "the link rate is the datasheet's: real copies reach 80 to 90 % of it at best",
            "give the measured rate with --bandwidth",
        )  # fmt: skip
    if given.d2h_bandwidth is not None:
        findings.d2h_bandwidth = Figure.exact(given.d2h_bandwidth)
    elif findings.bandwidth is not None:
        findings.d2h_bandwidth = replace(findings.bandwidth, source="assumed equal to host to device")
    if given.overhead_s is not None:
        findings.overhead = Figure.exact(given.overhead_s)
    if given.prefill_s is not None:
        findings.per_token = Figure.exact(given.prefill_s)
    if given.quadratic_s is not None:
        findings.quadratic = Figure.exact(given.quadratic_s)
    if given.loaded_prefill_s is not None:
        findings.loaded = (Figure.exact(given.loaded_prefill_s), findings.quadratic)


def _judge_ranks(rates: tuple[float, ...], findings: ObrFindings) -> None:
    if len(rates) > 1:
        findings.limited_by = f"rank {rates.index(min(rates))}, the slowest of {len(rates)}"
    for index in lagging_ranks(rates):
        findings.notices.add(
            "lagging-rank",
            f"rank {index} copies at {rates[index] / GIB:.1f} GiB/s, the others at up to {max(rates) / GIB:.1f}: "
            "every restore waits for it",
            "check its slot, its NUMA node and whether it shares a switch (nvidia-smi topo -m)",
        )


def _from_logs(settings: ObrSettings, findings: ObrFindings) -> None:
    log = read_restore_logs(settings.logs, settings.bytes_per_token, findings.notices)
    findings.log = log
    findings.bandwidth = log.bandwidth
    findings.d2h_bandwidth = log.d2h_bandwidth or findings.d2h_bandwidth
    findings.limited_by = f"{log.events} restores in the log"
    if findings.bytes_per_token is None:
        findings.bytes_per_token = log.bytes_per_token
    if findings.bytes_per_token is None:
        raise UsageError(
            "no KV size, and the log does not tell it", where="--model, --kv-bytes-per-token", hint="give one"
        )


def _measure_bandwidth(
    settings: ObrSettings, findings: ObrFindings, seconds: float, progress: Callable[[str], None]
) -> None:
    layers = findings.decoder.layers if findings.decoder else None
    tier = (
        TierShape(int(settings.chunk_tokens * settings.bytes_per_token), layers) if settings.bytes_per_token else None
    )
    numa: Numa = "all" if settings.numa == "all" else "off" if settings.numa == "off" else "local"
    findings.h2d = H2dFindings()
    h2d = H2dSettings(
        device=settings.device,
        sizes=QUICK_SIZES if settings.quick else SIZES,
        tier=tier,
        numa=numa,
        ranks=settings.tp if settings.tp > 1 else None,
        budget_s=seconds,
        least_samples=3 if settings.quick else 5,
    )
    try:
        measure_h2d(h2d, findings.h2d, progress)
    finally:
        rate = restore_rate(findings.h2d)
        if rate is not None:
            findings.bandwidth, findings.overhead, findings.limited_by = rate.bandwidth, rate.overhead, rate.limited_by
            back = [s.bandwidth for s in findings.h2d.series if s.direction == "d2h" and s.bandwidth]
            findings.d2h_bandwidth = min(back, key=lambda figure: figure.value) if back else None
    if settings.given.overhead_s is not None:
        findings.overhead = Figure.exact(settings.given.overhead_s)


def _find_prefill(
    settings: ObrSettings, findings: ObrFindings, seconds: float, progress: Callable[[str], None]
) -> None:
    method = settings.prefill_method or "given"
    prefill = findings.prefill = PrefillFindings(method)
    how = PrefillSettings(
        method=method, decoder=findings.decoder, tp=settings.tp, active_parameters=settings.active_parameters,
        flop_per_s=settings.peak.flop_per_s, url=settings.url, concurrency=settings.concurrency,
        device=settings.device, quick=settings.quick, seconds=seconds,
    )  # fmt: skip
    try:
        run_prefill(how, prefill, progress)
    finally:
        figures, loaded = prefill.figures(), prefill.figures(loaded=True)
        if figures is not None:
            findings.per_token, findings.quadratic = figures
        findings.loaded = loaded or findings.loaded
