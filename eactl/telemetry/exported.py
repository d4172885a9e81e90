"""The plugin's metrics on vLLM's ``/metrics``: names, texts, and the record's fields that they carry."""

from __future__ import annotations

PREFIX = "eactl:"

# The policy in force, as the value of eactl:policy.
POLICY_NUMBERS = {"none": 0, "fixed": 1, "conditioned": 2, "lazy": 3}

# metric -> (field of TierRecord, text)
GAUGES = {
    "policy": ("policy", "Admission policy: 0 none, 1 fixed, 2 conditioned, 3 lazy."),
    "start_timestamp_seconds": ("started_at_s", "When the engine's gate was started (Unix time)."),
    "report_timestamp_seconds": ("at_s", "When the engine last published its state (Unix time)."),
    "report_age_seconds": ("age_s", "Age of the tier's own report at that time."),
    "chunk_tokens": ("chunk_tokens", "Tokens in a chunk of the host tier."),
    "registered_chunks": ("registered_chunks", "Chunks that the host tier holds."),
    "capacity_chunks": ("capacity_chunks", "Chunks that fit the host tier's configured size."),
    "evicted_window_chunks": ("evicted_window", "Chunks evicted to make room within the policy's window."),
    "full_and_evicting": ("full_and_evicting", "1 while the tier is full and evicts (Eq. 10)."),
    "active_agents": ("agents", "Tasks with a request in the policy's window."),
    "mean_prompt_tokens": ("mean_prompt_tokens", "Mean prompt length of the latest requests."),
    "working_set_bytes": ("working_set_bytes", "Reuse working set (Eq. 5), all ranks."),
    "host_bytes": ("host_bytes", "Configured size of the host tier, all ranks."),
    "kept_bytes": ("kept_bytes", "What of it the tier keeps where its server evicts early; Eq. 10 takes this."),
    "gpu_kv_tokens": ("gpu_kv_tokens", "Tokens that the GPU's KV cache holds."),
    "tier_bytes_per_token": ("tier_bytes_per_token", "Bytes that the tier takes for a token, all ranks."),
    "pressure": ("pressure", "1 while large refills are declined."),
}

# counter, without _total -> text; the record's field has the same name
COUNTERS = {
    "requests": "Requests that were decided.",
    "skipped_requests": "Requests whose new KV was not stored.",
    "saved_requests": "Requests that were allowed to store.",
    "pressure_requests": "Requests that were decided under pressure.",
    "skipped_chunks": "New full chunks of declined requests.",
    "client_skipped_requests": "Requests that asked not to be stored.",
    "missed_after_skip_tokens": "Tokens looked for in vain after their task had been declined.",
    "evicted_chunks": "Chunks evicted to make room.",
    "failed_allocation_chunks": "Chunks dropped because the tier had no room at that moment.",
    "stored_tokens": "Tokens written to the host tier.",
    "restored_tokens": "Tokens restored from the host tier.",
    "gpu_hit_tokens": "Prompt tokens found in the GPU's cache.",
    "computed_tokens": "Prompt tokens computed (prefill).",
    "preemptions": "Preemptions of requests.",
    "faults": "Faults of the plugin that were passed over.",
}


def exported_names() -> list[str]:
    """Every metric name as it stands on ``/metrics``."""
    return [PREFIX + name for name in GAUGES] + [f"{PREFIX}{name}_total" for name in COUNTERS]
