"""What ``eactl size`` was asked, checked once and frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from eactl.errors import UsageError
from eactl.model.obr import ObrResult
from eactl.model.orders import ServiceRates

ORDERS = ("recorded", "closed-loop", "round-robin")
GPU_BLOCK_TOKENS = 16  # METHOD.md: the GPU cache is counted in blocks of 16 tokens


@dataclass(frozen=True)
class TokenWeight:
    """What one token of KV occupies in the host tier of one rank, and how many ranks hold such a tier.

    ``state_bytes_rank`` is the snapshot of the recurrent state that every chunk of a hybrid model carries.
    ``loads_from`` is what ``eactl serve --model`` takes for ``model``, where that is another name.
    """

    bytes_per_token_rank: int
    state_bytes_rank: int = 0
    tp: int = 1
    tier_ranks: int = 1
    model: str | None = None
    loads_from: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.bytes_per_token_rank < 1:
            raise UsageError(
                f"{self.bytes_per_token_rank} bytes per token and rank", where="--kv-bytes-per-token",
                hint="give the KV bytes of one token on one rank, see 'eactl probe footprint'",
            )  # fmt: skip


@dataclass(frozen=True)
class SizeSettings:
    """Every default and cross-check of ``eactl size``.

    ``capacities_bytes`` are tier sizes per rank (None: a grid around the working set), ``agents`` the number of
    task slots (None: as recorded), ``target`` the share of the best recovery that the recommendation must reach,
    ``replicas`` the number of data-parallel engines, each with a tier of its own.
    """

    weight: TokenWeight
    chunk_tokens: int = 256
    gpu_kv_tokens: int | None = None
    capacities_bytes: tuple[int, ...] | None = None
    agents: int | None = None
    orders: tuple[str, ...] | None = None
    target: float = 0.95
    replicas: int = 1
    host_memory_bytes: int | None = None
    rates: ServiceRates = field(default_factory=ServiceRates)
    bound: bool = True
    obr: ObrResult | None = None

    def __post_init__(self) -> None:
        if not 0 < self.target <= 1:
            raise UsageError(f"target {self.target} is not a share", where="--target", hint="give 0.95 for 95 %")
        for name in self.orders or ():
            if name not in ORDERS:
                raise UsageError(f"no order {name!r}", where="--order", hint=f"choose from {', '.join(ORDERS)}")

    @property
    def chunk_bytes_rank(self) -> int:
        """b·β: what one chunk weighs on one rank (plus a hybrid model's state)."""
        return self.chunk_tokens * self.weight.bytes_per_token_rank + self.weight.state_bytes_rank

    @property
    def tier_bytes_per_token_rank(self) -> float:
        """What one token costs in the tier, its share of the chunk's state included."""
        return self.chunk_bytes_rank / self.chunk_tokens

    @property
    def tiers(self) -> int:
        """How many host tiers of the recommended size this deployment has: ranks times engines."""
        return self.weight.tier_ranks * self.replicas

    @property
    def order_names(self) -> tuple[str, ...]:
        """Orders to evaluate; the first one decides the recommendation."""
        if self.orders:
            return self.orders
        return ("recorded",) if self.agents is None else ("closed-loop", "round-robin", "recorded")
