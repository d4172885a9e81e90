"""``probe prefill``: seconds of computing a prompt, by a bound, by timing the model's layers, or from a server."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from eactl import hostinfo
from eactl.errors import CannotRunHereError, UsageError
from eactl.model.decoder import Decoder
from eactl.model.obr import ASSUMED_ZERO, Figure
from eactl.units import human_bytes
from eactl_probes.arithmetic import MatrixRate, measure_matrix_rate, random_tensor, time_work
from eactl_probes.gpu import gpus_of_torch, nvml_session
from eactl_probes.notices import Notices, ignore_progress
from eactl_probes.sampling import Budget, Effort, PrefillFit, Samples, fit_prefill, sample
from eactl_probes.torch_env import choose_device, device_faults, environment, preferred_dtype

METHODS = ("bound", "layers", "server")
# Four at least: three terms through three lengths leave no residual that could speak against them.
LENGTHS = {"cuda": (512, 2048, 8192, 32768), "cpu": (128, 512, 1024, 2048)}
QUICK_LENGTHS = {"cuda": (512, 2048, 4096, 8192), "cpu": (64, 128, 256, 512)}


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """All times of one length; ``cached_tokens`` that a server found in its cache are never part of a kept sample."""

    tokens: int
    samples: Samples


@dataclass
class PrefillFindings:
    """What was found so far; grows while the probe runs, so that an interruption keeps it."""

    method: str
    device: str | None = None
    points: list[PrefillPoint] = field(default_factory=list)
    loaded_points: list[PrefillPoint] = field(default_factory=list)
    bound: tuple[Figure, Figure] | None = None  # seconds per token and per token squared
    matrix_rate: MatrixRate | None = None
    details: dict[str, object] = field(default_factory=dict)
    environment: dict[str, object] = field(default_factory=dict)
    notices: Notices = field(default_factory=Notices)

    @property
    def empty(self) -> bool:
        """Whether nothing worth keeping was measured yet."""
        return not self.points and self.bound is None

    def fit(self, edge: Literal["median", "low", "high"] = "median", *, loaded: bool = False) -> PrefillFit | None:
        """Time over length through the medians, or through the fast or slow edge of the samples."""
        points = self.loaded_points if loaded else self.points
        if not points:
            return None
        return fit_prefill([p.tokens for p in points], [getattr(p.samples, f"{edge}_s") for p in points])

    def figures(self, *, loaded: bool = False) -> tuple[Figure, Figure] | None:
        """(seconds per token, seconds per token squared) with the band of the samples; None before the first length."""
        if self.bound is not None and not loaded:
            return self.bound
        middle, low, high = self.fit(loaded=loaded), self.fit("low", loaded=loaded), self.fit("high", loaded=loaded)
        if middle is None or low is None or high is None:
            return None
        source = f"measured ({self.method})"
        return (
            _banded(middle.linear, low.linear, high.linear, source),
            _banded(middle.quadratic, low.quadratic, high.quadratic, source),
        )


def _banded(middle: float, one: float, other: float, source: str) -> Figure:
    return Figure(middle, min(middle, one, other), max(middle, one, other), source)


def bound_figures(
    active_parameters: float, flop_per_s: Figure, tp: int, decoder: Decoder | None, source: str
) -> tuple[Figure, Figure]:
    """The least seconds per token and per token²: all ranks at the matrix rate, nothing else (App. C of the paper)."""
    rate = flop_per_s.scaled(tp)
    flop = 2 * active_parameters
    per_token = Figure(flop / rate.value, flop / rate.high, flop / rate.low, source)
    if decoder is None:
        return per_token, ASSUMED_ZERO
    pairs = decoder.quadratic_flop_per_token2
    return per_token, Figure(pairs / rate.value, pairs / rate.high, pairs / rate.low, source)


def measure_bound(
    findings: PrefillFindings,
    *,
    device: str,
    active_parameters: float,
    decoder: Decoder | None,
    tp: int,
    seconds: float,
    progress: Callable[[str], None] = ignore_progress,
) -> None:
    """Measure the matrix rate of this device and derive the bound. Raises CannotRunHereError without torch."""
    findings.device = choose_device(device, findings.notices, "probe prefill")
    with device_faults("probe prefill"):
        _note_neighbours(findings)
        findings.environment |= environment(findings.device)
        rate = measure_matrix_rate(findings.device, preferred_dtype(findings.device), seconds, progress)
    findings.matrix_rate = rate
    findings.bound = bound_figures(active_parameters, rate.flop_per_s, tp, decoder, "bound")


def measure_layers(
    findings: PrefillFindings,
    *,
    device: str,
    decoder: Decoder,
    tp: int,
    lengths: tuple[int, ...] | None,
    seconds: float,
    quick: bool = False,
    progress: Callable[[str], None] = ignore_progress,
) -> None:
    """Time one of each different block on this rank's shapes, times the layers that have it, at several lengths.

    Raises CannotRunHereError without torch, the device, or memory for the weights of one layer.
    """
    findings.device = choose_device(device, findings.notices, "probe prefill")
    with device_faults("probe prefill"):
        _note_neighbours(findings)
        _time_layers(findings, findings.device, decoder, tp, lengths, seconds, quick=quick, progress=progress)


def _time_layers(
    findings: PrefillFindings,
    kind: str,
    decoder: Decoder,
    tp: int,
    lengths: tuple[int, ...] | None,
    seconds: float,
    *,
    quick: bool,
    progress: Callable[[str], None],
) -> None:
    import torch

    from eactl_probes.layers import build_blocks, weight_elements

    findings.environment |= environment(kind)
    rank, dtype = decoder.on_rank(tp), preferred_dtype(kind)
    findings.details |= {
        "dtype": str(dtype).removeprefix("torch."),
        "layers": decoder.layers,
        "different_blocks": len(rank.attention) + len(rank.feed_forward),
    }
    _check_memory(kind, weight_elements(rank) * dtype.itemsize)
    wanted = lengths or (QUICK_LENGTHS if quick else LENGTHS)[kind]
    budget = Budget(seconds)
    # First, as it also brings the clocks up, and as FLOP per host byte needs it however long the layers take.
    findings.matrix_rate = measure_matrix_rate(kind, dtype, min(1.0, seconds / 10), progress)
    progress("building one layer")
    with torch.inference_mode():
        blocks = build_blocks(rank, dtype, kind)
        for position, tokens in enumerate(wanted):
            if findings.points and _too_long(findings, tokens, budget.left_s):
                hint = "leave --quick out" if quick else "measure again on a quiet machine, or probe prefill --tokens"
                text = f"prompts of {tokens} tokens and longer were left out: no time for them"
                findings.notices.add("lengths-reduced", text, hint)
                break
            progress(f"layers at {tokens} tokens")
            x = random_tensor((tokens, rank.hidden), dtype, kind)

            def measure(x: torch.Tensor = x) -> float:
                return sum(count * time_work(kind, lambda block=block: block(x)) for block, count in blocks)  # type: ignore[misc]

            warm_ups = 1 if quick else 3
            effort = Effort(budget.share(len(wanted) - position), least=3, most=30, warm_ups=warm_ups)
            try:
                findings.points.append(PrefillPoint(tokens, sample(measure, effort)))
            except RuntimeError as error:  # torch's OutOfMemoryError is one
                reason = str(error).splitlines()[0]
                if not findings.points:
                    raise CannotRunHereError(
                        f"one layer at {tokens} tokens does not run here ({reason})", where="--method layers",
                        hint="use shorter --tokens, a higher --tp, or --method bound",
                    ) from error  # fmt: skip
                findings.notices.add(
                    "lengths-reduced", f"prompts of {tokens} tokens and longer were left out ({reason})",
                    "free memory on the device, or use the --tp that the model is served with",
                )  # fmt: skip
                break


def _note_neighbours(findings: PrefillFindings) -> None:
    """Warn of other processes and MIG, unless copies were timed before: then it was said, and we are on the GPU too."""
    if findings.device != "cuda":
        return
    import torch

    if not torch.cuda.is_initialized():
        with nvml_session(findings.notices, expected=True) as nvml:
            list(gpus_of_torch(nvml, findings.notices))


def _too_long(findings: PrefillFindings, tokens: int, left_s: float) -> bool:
    """Whether four passes over this length, growing with its power 1.5, would not fit into the time left."""
    last = findings.points[-1]
    layers = int(str(findings.details["layers"]))
    growth = math.pow(tokens / last.tokens, 1.5)
    return 4 * last.samples.median_s / layers * growth > left_s


def _check_memory(device: str, weight_bytes: int) -> None:
    if device == "cuda":
        import torch

        room = torch.cuda.mem_get_info()[0]
    else:
        room = hostinfo.available_memory_bytes()
    if weight_bytes > 0.7 * room:
        raise CannotRunHereError(
            f"one layer's weights take {human_bytes(weight_bytes)} and {human_bytes(room)} are free",
            where=f"--device {device}",
            hint="use the --tp that the model is served with, or --method bound",
        )  # fmt: skip


def check_method(method: str) -> str:
    """The method itself. Raises UsageError that lists the known ones."""
    if method not in METHODS:
        raise UsageError(f"unknown method {method!r}", where="--method", hint=f"choose from {', '.join(METHODS)}")
    return method
