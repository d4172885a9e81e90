"""What the policy knows of the tier: its size, which never changes by itself, and its last report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierSize:
    """A host tier in the units of the method: K_H = floor(C_H / (b β)) chunks of b tokens.

    ``host_bytes`` (C_H) and ``bytes_per_token`` (β) belong together: both of one rank, or both of all ranks.
    A tier whose server evicts before it is full (LMCache's multi-process server does so at a watermark) keeps
    less than its configured size: ``kept_share`` of ``host_bytes``. Both factors of Eq. 10 are taken against that
    level: at it the tier counts as full, o_t = 1, and what is larger does not fit. Raises ValueError for a size
    that cannot be: negative bytes, no tokens in a chunk, a share outside (0, 1].
    """

    chunk_tokens: int
    bytes_per_token: int
    host_bytes: int
    kept_share: float = 1.0

    def __post_init__(self) -> None:
        if self.chunk_tokens < 1 or self.bytes_per_token < 1 or self.host_bytes < 0:
            raise ValueError("a tier needs chunk_tokens and bytes_per_token above 0 and host_bytes of at least 0")
        if not 0 < self.kept_share <= 1:
            raise ValueError("kept_share is a share of the tier, above 0 and at most 1")

    @classmethod
    def with_watermark(
        cls, chunk_tokens: int, bytes_per_token: int, host_bytes: int, *, watermark: float, ratio: float
    ) -> TierSize:
        """A tier that drops ``ratio`` of its keys whenever its usage reaches ``watermark``.

        Its level saw-tooths between watermark·(1 − ratio) and watermark; what it keeps is the middle
        (docs/admission.md compares the readings).
        """
        return cls(chunk_tokens, bytes_per_token, host_bytes, kept_share=watermark * (1 - ratio / 2))

    @property
    def capacity_chunks(self) -> int:
        """K_H of the configured size, in chunks."""
        return self.host_bytes // (self.chunk_tokens * self.bytes_per_token)

    def holds(self, reuse_bytes: float) -> bool:
        """Whether the tier can be counted on to keep a working set of ``reuse_bytes``."""
        return reuse_bytes <= self.host_bytes * self.kept_share

    def occupancy(self, registered_chunks: int) -> float:
        """o_t: registered chunks over the level that the tier keeps; 1 for a tier that can hold nothing."""
        kept = self.capacity_chunks * self.kept_share
        return registered_chunks / kept if kept else 1.0


@dataclass(frozen=True, slots=True)
class TierReport:
    """One reading of the tier: chunks it holds, and chunks it has ever evicted to make room for others.

    Explicit removals do not belong in ``evicted_chunks_total``. Raises ValueError for counts that cannot be,
    so that a damaged report is treated as none.
    """

    registered_chunks: int
    evicted_chunks_total: int

    def __post_init__(self) -> None:
        for count in (self.registered_chunks, self.evicted_chunks_total):
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise ValueError(f"not a count of chunks: {count!r}")
