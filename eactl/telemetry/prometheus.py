"""Prometheus text, as far as totals over label sets need it, and the names one figure has had over the versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

# figure -> names, newest first. A figure under none of them is "not exported", which is not 0.
ALIASES: dict[str, tuple[str, ...]] = {
    "gpu_hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits",
                       "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits"),
    "gpu_query_tokens": ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries",
                         "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries"),
    "host_hit_tokens": ("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_hits"),
    "host_query_tokens": ("vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_queries"),
    "prompt_tokens": ("vllm:prompt_tokens_total", "vllm:prompt_tokens"),
    "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
    "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "lookup_hit_tokens": ("lmcache_mp_lookup_hit_tokens_total", "lmcache:num_lookup_hits_total"),
    "lookup_tokens": ("lmcache_mp_lookup_requested_tokens_total", "lmcache:num_lookup_tokens_total"),
    "evicted_chunks": ("lmcache_mp_l1_evicted_chunks_total", "lmcache:local_cpu_evict_count_total"),
    "written_chunks": ("lmcache_mp_l1_write_chunks_total",),
    "read_chunks": ("lmcache_mp_l1_read_chunks_total",),
    "failed_allocation_chunks": ("lmcache_mp_l1_allocation_failure_chunks_total",),
}  # fmt: skip


def totals(text: str, names: Collection[str] | None = None) -> dict[str, float]:
    """Metric name -> its value summed over all label sets; lines that are none are skipped.

    With ``names`` only those are read. NaN values are left out.
    """
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line[0] == "#":
            continue
        brace = line.find("{")
        if brace >= 0:
            name, rest = line[:brace], line[line.rfind("}") + 1 :]
        else:
            name, _, rest = line.partition(" ")
        if names is not None and name not in names:
            continue
        try:
            value = float(rest.split()[0])
        except (ValueError, IndexError):
            continue
        if value == value:  # not NaN
            sums[name] = sums.get(name, 0.0) + value
    return sums


def figure(sums: Mapping[str, float], name: str) -> tuple[float | None, str | None]:
    """A figure's value and the metric it was found under; (None, None) when it is not exported."""
    for metric in ALIASES[name]:
        if metric in sums:
            return sums[metric], metric
    return None, None
