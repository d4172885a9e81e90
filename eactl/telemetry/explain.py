"""A record in words: what the tier is doing, what the policy does about it, what an operator should look at."""

from __future__ import annotations

from eactl.telemetry.record import TierRecord
from eactl.units import human_bytes

FRESH_S = 5.0
_STORES_BEFORE_DOUBT = 100_000  # tokens written without one restored


def state_in_words(record: TierRecord) -> str:
    """One sentence on the tier, the working set and what is done with refills."""
    doing = _doing(record)
    if record.registered_chunks is None:
        if record.agents is None:
            return "no report of the tier here"
        return f"no report of the tier yet: {doing}"
    if record.age_s is not None and record.age_s > FRESH_S:
        return f"last report of the tier is {record.age_s:.0f} s old: going by the working-set estimate alone, {doing}"
    tier = "tier full and evicting" if record.full_and_evicting else _level(record)
    return f"{tier}, {_working_set(record)}: {doing}"


def advice(record: TierRecord) -> list[dict[str, str]]:
    """What in a record's counters deserves attention, each with a code, a text and a hint."""
    found = []
    stored, restored = record.stored_tokens, record.restored_tokens
    if stored is not None and restored == 0 and stored >= _STORES_BEFORE_DOUBT:
        gpu, computed = record.gpu_hit_tokens or 0, record.computed_tokens or 0
        if gpu > computed:
            found.append(_entry(
                "tier-is-a-copy", f"{stored:,} tokens were stored and none was ever loaded: the GPU's own cache "
                "serves the hits, the tier holds a copy of it",
                "a tier pays once the pool outgrows the GPU cache (γG > 1); until then it only costs writes: "
                "try --policy lazy or a smaller pool of memory",
            ))  # fmt: skip
        else:
            found.append(_entry(
                "never-loaded", f"{stored:,} tokens were stored and none was ever loaded",
                "first cause: PYTHONHASHSEED is not set to the same number for every process, so hashes never "
                "match (eactl serve sets it); else a tier far below the working set, or speculative decoding on "
                "a hybrid model that drops every match",
            ))  # fmt: skip
    useful = useful_host_bytes(record)
    if record.policy == "none" and useful is not None and record.host_bytes and useful < 0.5 * record.host_bytes:
        found.append(_entry(
            "tier-overlaps-gpu",
            f"storing everything, the tier holds first what the GPU's cache holds too: {human_bytes(useful)} of its "
            f"{human_bytes(record.host_bytes)} can be of use",
            "make the tier several times the GPU cache, or store less with --policy conditioned or lazy",
        ))  # fmt: skip
    if record.failed_allocation_chunks:
        found.append(_entry(
            "allocation-failed",
            f"{record.failed_allocation_chunks:,} chunks found no room when they came to be stored",
            "a burst outran the eviction loop: lower --eviction-watermark or give the tier more memory",
        ))  # fmt: skip
    if record.faults:
        found.append(_entry(
            "faults", f"{record.faults:,} faults of the plugin were passed over; those requests were stored unjudged",
            "see the engine's log for the first one",
        ))  # fmt: skip
    if record.preemptions and record.requests and record.preemptions > record.requests:
        share = (record.restored_tokens or 0) / max(1, (record.restored_tokens or 0) + (record.computed_tokens or 0))
        found.append(_entry(
            "preemption-thrash", f"{record.preemptions / record.requests:.1f} preemptions for each request; "
            f"{share:.0%} of what was then missing came back from the tier",
            "fewer requests at once (--max-num-seqs) or a larger GPU cache; a tier helps as far as it restores them",
        ))  # fmt: skip
    return found


def useful_host_bytes(record: TierRecord) -> float | None:
    """What a tier that gets every write can hold beyond the GPU's own cache; None where a size is not known."""
    if record.gpu_kv_tokens is None or record.host_bytes is None or record.tier_bytes_per_token is None:
        return None
    return max(0.0, record.host_bytes - record.gpu_kv_tokens * record.tier_bytes_per_token)


def _doing(record: TierRecord) -> str:
    if record.policy == "conditioned":
        if not record.pressure:
            return "storing everything"
        return "declining refills" if record.skipped_requests != 0 else "declining refills above κ, none so far"
    return {
        "none": "storing everything (policy none)", "fixed": "declining every refill (policy fixed)",
        "lazy": "LMCache stores what the GPU is about to drop (policy lazy)",
    }.get(record.policy, "policy not known")  # fmt: skip


def _level(record: TierRecord) -> str:
    if record.occupancy is None:
        return "tier of unknown level"
    return f"tier {record.occupancy:.0%} full" + (", evicting" if record.evicted_window else "")


def _working_set(record: TierRecord) -> str:
    if record.gamma_h is None:
        return "working set not known"
    if record.agents is not None and record.agents < 2:
        return "no two agents at work"
    kept = record.kept_bytes
    if kept and record.host_bytes and kept < record.host_bytes:
        return f"working set {record.gamma_h * record.host_bytes / kept:.1f}× what the tier keeps"
    return f"working set {record.gamma_h:.1f}× the tier"


def _entry(code: str, text: str, hint: str) -> dict[str, str]:
    return {"code": code, "text": text, "hint": hint}
