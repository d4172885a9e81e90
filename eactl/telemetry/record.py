"""One reading of a served tier, ``eactl.tier/1``: what the plugin publishes and ``eactl tail`` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, get_type_hints

SCHEMA = "eactl.tier/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRecord:
    """The tier, the pool of agents and the counters of one engine. None means "not known", never 0.

    Counters (from ``requests`` on) run from the engine's start. ``evicted_window`` covers the policy's window.
    ``gpu_hit_tokens``, ``restored_tokens`` (from the host tier) and ``computed_tokens`` (prefill) tell apart
    who served a prompt. Sizes are of the tier as a whole, all ranks.
    """

    at_s: float  # wall clock of the reading
    policy: str
    age_s: float | None = None  # of the tier's own report when the record was made
    source: str = ""  # where it was read
    engine: str = ""
    started_at_s: float | None = None
    chunk_tokens: int | None = None
    tier_bytes_per_token: float | None = None
    registered_chunks: int | None = None
    capacity_chunks: int | None = None
    occupancy: float | None = None
    evicted_window: int | None = None
    full_and_evicting: bool | None = None
    agents: int | None = None
    mean_prompt_tokens: float | None = None
    working_set_bytes: float | None = None
    host_bytes: int | None = None
    kept_bytes: int | None = None  # of host_bytes, where the server evicts before it is full
    gamma_h: float | None = None
    gpu_kv_tokens: int | None = None
    gamma_g: float | None = None
    pressure: bool | None = None
    requests: int | None = None
    skipped_requests: int | None = None
    saved_requests: int | None = None
    pressure_requests: int | None = None
    skipped_chunks: int | None = None
    client_skipped_requests: int | None = None  # those that asked not to be stored
    missed_after_skip_tokens: int | None = None  # declined earlier and then looked for
    evicted_chunks: int | None = None
    failed_allocation_chunks: int | None = None
    stored_tokens: int | None = None
    restored_tokens: int | None = None
    gpu_hit_tokens: int | None = None
    computed_tokens: int | None = None
    preemptions: int | None = None
    faults: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON object, ``schema`` first."""
        return {"schema": SCHEMA, **asdict(self)}

    def to_json(self) -> bytes:
        return json.dumps(self.as_dict(), separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TierRecord:
        """Read a JSON object, leaving out fields of later versions. Raises ValueError for anything else."""
        if values.get("schema") != SCHEMA:
            raise ValueError(f"not an {SCHEMA} object: schema is {values.get('schema')!r}")
        known = {name: values[name] for name in _TYPES if name in values}
        for name, value in known.items():
            if not _fits(value, _TYPES[name]):
                raise ValueError(f"field {name} holds {value!r}")
        if not {"at_s", "policy"} <= known.keys():
            raise ValueError("fields at_s and policy are missing")
        return cls(**known)


_HINTS = get_type_hints(TierRecord)
_TYPES: dict[str, str] = {field.name: str(_HINTS[field.name]) for field in fields(TierRecord)}


def _fits(value: Any, hint: str) -> bool:
    if value is None:
        return "None" in hint
    if isinstance(value, bool):
        return "bool" in hint
    if isinstance(value, int):
        return ("int" in hint or "float" in hint) and value >= 0
    if isinstance(value, float):
        return "float" in hint and isfinite(value) and value >= 0
    return isinstance(value, str) and "str" in hint
