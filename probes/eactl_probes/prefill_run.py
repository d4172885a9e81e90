"""Settings of ``probe prefill`` and the choice of its method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eactl.errors import UsageError
from eactl.model.decoder import Decoder, read_decoder
from eactl.model.footprint import footprint
from eactl.model.obr import Figure
from eactl_probes.prefill import PrefillFindings, bound_figures, measure_bound, measure_layers


@dataclass(frozen=True, slots=True)
class PrefillSettings:
    """What to time, and how long it may take."""

    method: str
    decoder: Decoder | None = None
    tp: int = 1
    tokens: tuple[int, ...] | None = None
    active_parameters: float | None = None
    flop_per_s: float | None = None
    url: str | None = None
    concurrency: int = 1
    device: str = "auto"
    quick: bool = False
    seconds: float = 40.0

    def __post_init__(self) -> None:
        if self.method == "layers" and self.decoder is None:
            raise UsageError("no model to time", where="--model", hint="give --model, or --url of a running server")
        if self.method == "bound" and self.decoder is None and self.active_parameters is None:
            raise UsageError("nothing to count", where="--model, --active-params", hint="give one of them")


def decoder_on(config: Mapping[str, object], tp: int, *, model: str | None) -> Decoder:
    """The decoder, once ``tp`` is known to divide its heads. Raises UsageError."""
    footprint(config, tp=tp, model=model)  # raises what is impossible
    return read_decoder(config, model=model)


def run_prefill(settings: PrefillSettings, findings: PrefillFindings, progress: Callable[[str], None]) -> None:
    """Fill ``findings`` by the chosen method."""
    if settings.method == "server":
        from eactl_probes.prefill_server import measure_server

        measure_server(
            findings, url=settings.url or "", lengths=settings.tokens, concurrency=settings.concurrency,
            seconds=settings.seconds, progress=progress,
        )  # fmt: skip
    elif settings.method == "bound":
        _bound(settings, findings, progress)
    elif settings.decoder is not None:
        measure_layers(
            findings, device=settings.device, decoder=settings.decoder, tp=settings.tp, lengths=settings.tokens,
            seconds=settings.seconds, quick=settings.quick, progress=progress,
        )  # fmt: skip


def _bound(settings: PrefillSettings, findings: PrefillFindings, progress: Callable[[str], None]) -> None:
    decoder = settings.decoder
    active = settings.active_parameters or (decoder.active_parameters if decoder else 0)
    findings.details |= {"active_parameters": active, "tp": settings.tp}
    if settings.flop_per_s is not None:
        # Given parameters are the maker's count of the whole model; attention goes with matrices counted here.
        counted = decoder if settings.active_parameters is None else None
        peak = Figure.exact(settings.flop_per_s)
        findings.bound = bound_figures(active, peak, settings.tp, counted, "bound at the given peak")
        return
    measure_bound(
        findings, device=settings.device, active_parameters=active, decoder=decoder, tp=settings.tp,
        seconds=settings.seconds, progress=progress,
    )  # fmt: skip
