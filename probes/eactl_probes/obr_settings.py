"""Settings of ``probe obr``: what is given, what is to be measured, and the checks between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eactl.errors import UsageError
from eactl.model.gpus import GpuDatasheet

TOKENS = (256, 1024, 4096, 16384, 65536)


@dataclass(frozen=True, slots=True)
class GivenFigures:
    """Figures the user gives, in SI units; None is to be measured (or assumed, where that is said)."""

    bandwidths: tuple[float, ...] = ()  # bytes/s, one per rank or one for all
    d2h_bandwidth: float | None = None
    overhead_s: float | None = None
    prefill_s: float | None = None  # per token
    quadratic_s: float | None = None  # per token squared
    loaded_prefill_s: float | None = None
    end_to_end_s: tuple[float, float] | None = None  # whole request without and with a hit


@dataclass(frozen=True, slots=True)
class GivenPeak:
    """A GPU's peak rates, from its datasheet or the options: FLOP/s and host-link bytes/s of one GPU."""

    flop_per_s: float | None = None
    link_bytes_per_s: float | None = None
    name: str | None = None

    @classmethod
    def of(cls, gpu: GpuDatasheet) -> GivenPeak:
        """The peaks on a datasheet."""
        return cls(gpu.bf16_tflops * 1e12, gpu.link_gb_s * 1e9, gpu.name)


@dataclass(frozen=True, slots=True)
class Load:
    """The operator's load, for γG and γH (Eq. 5); None is not known."""

    agents: int | None = None
    mean_prompt_tokens: float | None = None
    gpu_kv_tokens: int | None = None
    host_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.agents is None and (self.gpu_kv_tokens is not None or self.host_bytes is not None):
            raise UsageError(
                "no number of agents", where="--agents", hint="give it with --mean-prompt-tokens, or leave the load out"
            )
        if (self.agents is None) != (self.mean_prompt_tokens is None):
            missing = "--mean-prompt-tokens" if self.agents is not None else "--agents"
            raise UsageError("half of the load", where=missing, hint="give both --agents and --mean-prompt-tokens")


@dataclass(frozen=True, slots=True)
class ObrSettings:
    """Everything ``probe obr`` needs to know before it starts."""

    bytes_per_token: float | None
    tp: int = 1
    model: str | None = None
    config: dict[str, object] | None = None
    kv_dtype: str = "auto"
    active_parameters: float | None = None
    given: GivenFigures = field(default_factory=GivenFigures)
    peak: GivenPeak = field(default_factory=GivenPeak)
    load: Load = field(default_factory=Load)
    tokens: tuple[int, ...] = TOKENS
    logs: tuple[Path, ...] = ()
    method: str | None = None
    url: str | None = None
    concurrency: int = 1
    device: str = "auto"
    chunk_tokens: int = 256
    numa: str = "local"
    quick: bool = False

    def __post_init__(self) -> None:
        given = self.given
        if self.logs and given.bandwidths:
            raise UsageError("the rate is given twice", where="--from-logs, --bandwidth", hint="give one of them")
        if given.prefill_s is not None and self.method is not None:
            raise UsageError(
                "the prefill cost is given and measured", where="--us-per-token, --method", hint="give one of them"
            )
        if self.method == "server" and not self.url:
            raise UsageError("no server", where="--url", hint="give the address, for example http://127.0.0.1:8000")
        if self.url and self.method not in (None, "server"):
            raise UsageError(f"--url belongs to --method server, not {self.method}", where="--url", hint="leave it out")
        if self.prefill_method in ("layers", "bound") and self.config is None and self.active_parameters is None:
            raise UsageError(
                "nothing to derive the prefill cost from", where="--model",
                hint="give --model, or --us-per-token, or a running server with --url",
            )  # fmt: skip
        if self.bytes_per_token is None and not self.logs:
            raise UsageError("no KV size", where="--model, --kv-bytes-per-token", hint="give one of them")

    @property
    def prefill_method(self) -> str | None:
        """How the prefill cost will be found; None when it is given."""
        if self.given.prefill_s is not None:
            return None
        if self.method is not None:
            return self.method
        if self.url:
            return "server"
        return "bound" if self.peak.flop_per_s is not None or self.config is None else "layers"

    @property
    def measures_bandwidth(self) -> bool:
        """Whether copies have to be timed here."""
        return not (self.given.bandwidths or self.logs or self.peak.link_bytes_per_s)

    @property
    def measures_here(self) -> bool:
        """Whether this machine's copies or arithmetic have to be timed, which takes torch."""
        method = self.prefill_method
        return self.measures_bandwidth or method == "layers" or (method == "bound" and self.peak.flop_per_s is None)
