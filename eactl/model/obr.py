"""The offload benefit ratio: what restoring a prefix from host memory saves over computing it again (Eq. 2, 3, 7).

T_load(n) = n·β/B + τ, T_rec(n) = n·a + n²·q, OBR(n) = 1 − T_load/T_rec. One is a free restore, zero no saving,
negative a restore that is slower than computing. With q = 0 these are the paper's equations; a measured q is the
attention that grows with the prefix, which a restore saves as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from eactl.errors import UsageError
from eactl.units import GIB

Verdict = Literal["restore", "recompute", "unclear"]

SCHEMA = "eactl.obr/1"


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity with the band its samples span and where it comes from (``given``, ``measured``, ``bound`` …)."""

    value: float
    low: float
    high: float
    source: str

    @classmethod
    def exact(cls, value: float, source: str = "given") -> Figure:
        """A figure without a band."""
        return cls(value, value, value, source)

    def scaled(self, factor: float) -> Figure:
        """The same figure in another unit, or under another assumption."""
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)


ASSUMED_ZERO = Figure.exact(0.0, "assumed")


@dataclass(frozen=True, slots=True)
class ObrPoint:
    """Eq. 2 at one prefix length; ``obr_low`` and ``obr_high`` carry the bands of the figures."""

    tokens: int
    load_s: float
    recompute_s: float
    obr: float
    obr_low: float
    obr_high: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class ObrResult:
    """The figures of one machine and model, per rank, and what follows from them at any length.

    ``bandwidth`` (host to device) and ``d2h_bandwidth`` in bytes/s, ``overhead`` in s, ``per_token`` in s/token,
    ``quadratic`` in s/token².
    """

    bytes_per_token: float
    bandwidth: Figure
    per_token: Figure
    overhead: Figure = ASSUMED_ZERO
    quadratic: Figure = ASSUMED_ZERO
    d2h_bandwidth: Figure | None = None

    @property
    def us_per_token(self) -> float:
        """The linear prefill cost in µs per token: t_pf without the attention that grows with the prefix."""
        return self.per_token.value * 1e6

    def load_s(self, tokens: float) -> float:
        """T_load(n): seconds to bring ``tokens`` of KV back from host memory; 0 for none."""
        return _load(tokens, self.bytes_per_token, self.bandwidth.value, self.overhead.value)

    def recompute_s(self, tokens: float) -> float:
        """T_rec(n): seconds of prefill that a restored prefix of ``tokens`` saves."""
        return _recompute(tokens, self.per_token.value, self.quadratic.value)

    def store_s(self, tokens: float) -> float | None:
        """Seconds of copying ``tokens`` of KV to the host; None when that direction is not known."""
        if self.d2h_bandwidth is None:
            return None
        return tokens * self.bytes_per_token / self.d2h_bandwidth.value

    def obr(self, tokens: float) -> float:
        """OBR(n) of Eq. 2."""
        return 1 - self.load_s(tokens) / self.recompute_s(tokens)

    def point(self, tokens: int) -> ObrPoint:
        """Eq. 2 at one length with its band: the slowest load over the fastest prefill, and the reverse."""
        slow_load = _load(tokens, self.bytes_per_token, self.bandwidth.low, self.overhead.high)
        fast_load = _load(tokens, self.bytes_per_token, self.bandwidth.high, self.overhead.low)
        low = 1 - slow_load / _recompute(tokens, self.per_token.low, self.quadratic.low)
        high = 1 - fast_load / _recompute(tokens, self.per_token.high, self.quadratic.high)
        verdict: Verdict = "restore" if low > 0 else "recompute" if high < 0 else "unclear"
        return ObrPoint(tokens, self.load_s(tokens), self.recompute_s(tokens), self.obr(tokens), low, high, verdict)

    @property
    def limit_obr(self) -> float:
        """1 − β/(B·t_pf): what OBR approaches as the overhead is amortised (Eq. 7), by the linear cost alone."""
        return 1 - self.bytes_per_token / (self.bandwidth.value * self.per_token.value)

    @property
    def break_even_tokens(self) -> float | None:
        """n*: the length above which a restore is faster; None when it never is.

        τ/(t_pf − β/B), or the positive root of q·n² + (t_pf − β/B)·n − τ = 0 where attention was measured.
        """
        gain = self.per_token.value - self.bytes_per_token / self.bandwidth.value
        overhead, quadratic = self.overhead.value, self.quadratic.value
        if quadratic > 0:
            root = math.sqrt(gain * gain + 4 * quadratic * overhead)
            # The form without cancellation for a positive gain, the plain one for a negative.
            tokens = 2 * overhead / (gain + root) if gain > 0 else (root - gain) / (2 * quadratic)
            return tokens if math.isfinite(tokens) else None
        return overhead / gain if gain > 0 else None

    def restores_per_store(self, tokens: float) -> float | None:
        """How often a stored token must be restored before its copy to the host is paid for.

        None when that never happens, or when the device-to-host rate is not known.
        """
        store, gain = self.store_s(tokens), self.recompute_s(tokens) - self.load_s(tokens)
        return store / gain if store is not None and gain > 0 else None

    def serving_balance_s(
        self, computed_without: float, computed_with: float, restored: float, stored: float = 0
    ) -> float:
        """ΔT_serve of Eq. 3 in seconds, negative when the tier saves time; all arguments are tokens.

        Stores are counted when their rate is known; attention and fixed overheads are not part of the balance.
        """
        saved = (computed_without - computed_with) * self.per_token.value
        moved = restored * self.bytes_per_token / self.bandwidth.value
        return moved + (self.store_s(stored) or 0.0) - saved

    def critical_bandwidth(self, tokens: float) -> float | None:
        """The host-to-device rate in bytes/s at which OBR(tokens) is zero; None when the overhead alone is too much."""
        left = self.recompute_s(tokens) - self.overhead.value
        return tokens * self.bytes_per_token / left if left > 0 else None

    def critical_per_token_s(self, tokens: float) -> float | None:
        """The prefill cost in s/token at which OBR(tokens) is zero; None when attention alone outweighs the load."""
        left = self.load_s(tokens) - self.quadratic.value * tokens * tokens
        return left / tokens if left > 0 else None

    def fields(self) -> dict[str, Any]:
        """The figures as the contract names them; ``from_document`` reads them back."""
        figures = {
            "bandwidth_gib_s": self.bandwidth.scaled(1 / GIB),
            "overhead_us": self.overhead.scaled(1e6),
            "us_per_token": self.per_token.scaled(1e6),
            "quadratic_us_per_token2": self.quadratic.scaled(1e6),
        }
        if self.d2h_bandwidth is not None:
            figures["d2h_gib_s"] = self.d2h_bandwidth.scaled(1 / GIB)
        return {
            "bytes_per_token_rank": self.bytes_per_token,
            **{name: figure.value for name, figure in figures.items()},
            "sources": {name: figure.source for name, figure in figures.items()},
            "bands": {name: [figure.low, figure.high] for name, figure in figures.items()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any], *, where: str = "--obr") -> ObrResult:
        """The result that ``probe obr --output`` saved. Raises UsageError when a figure is missing or no number."""
        if document.get("schema") != SCHEMA:
            raise UsageError(
                f"not a result of eactl probe obr (schema {document.get('schema')!r})", where=where,
                hint="make one with: eactl probe obr --output obr.json",
            )  # fmt: skip
        reader = _FigureReader(document, where)
        d2h = reader.figure("d2h_gib_s", GIB, required=False)
        return cls(
            bytes_per_token=reader.number("bytes_per_token_rank", positive=True),
            bandwidth=reader.figure("bandwidth_gib_s", GIB),
            per_token=reader.figure("us_per_token", 1e-6),
            overhead=reader.figure("overhead_us", 1e-6, positive=False),
            quadratic=reader.figure("quadratic_us_per_token2", 1e-6, positive=False),
            d2h_bandwidth=d2h if d2h.source != "absent" else None,
        )


def obr_points(result: ObrResult, tokens: Sequence[int]) -> tuple[ObrPoint, ...]:
    """Eq. 2 at each length, shortest first."""
    return tuple(result.point(n) for n in sorted(set(tokens)))


def _load(tokens: float, bytes_per_token: float, bandwidth: float, overhead: float) -> float:
    return tokens * bytes_per_token / bandwidth + overhead if tokens > 0 else 0.0


def _recompute(tokens: float, per_token: float, quadratic: float) -> float:
    return tokens * per_token + tokens * tokens * quadratic


@dataclass(frozen=True, slots=True)
class _FigureReader:
    document: Mapping[str, Any]
    where: str

    def number(self, name: str, *, positive: bool) -> float:
        value = self.document.get(name)
        if value is None:
            status = self.document.get("status", "complete")
            raise UsageError(
                f"the saved result has no {name} (status {status})", where=self.where,
                hint="run eactl probe obr again to the end",
            )  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"{name} is not a number: {value!r}", where=self.where, hint="run eactl probe obr again")
        if value < 0 or (positive and value == 0):
            raise UsageError(f"{name} is {value}", where=self.where, hint="run eactl probe obr again")
        return float(value)

    def figure(self, name: str, factor: float, *, positive: bool = True, required: bool = True) -> Figure:
        if not required and self.document.get(name) is None:
            return Figure.exact(0.0, "absent")
        value = self.number(name, positive=positive)
        band, source = self._member("bands", name), self._member("sources", name)
        low, high = value, value
        if isinstance(band, list) and len(band) == 2 and all(isinstance(edge, int | float) for edge in band):
            # A band that does not hold its own value was edited by hand: the value alone is used then.
            sound = 0 <= band[0] <= value <= band[1] and (band[0] > 0 or not positive)
            low, high = (band[0], band[1]) if sound else (value, value)
        return Figure(value, low, high, source if isinstance(source, str) else "given").scaled(factor)

    def _member(self, group: str, name: str) -> Any:
        members = self.document.get(group)
        return members.get(name) if isinstance(members, Mapping) else None
