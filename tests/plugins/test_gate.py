"""The gate without an engine: one decision per request, kept, counted; bounded; faults passed over."""

from __future__ import annotations

import random

import pytest

from eactl.policy import Admission, AdmissionSettings, Lineage, TierReport, TierSize
from eactl_plugins.gate import AdmissionGate, Lookup, TierState
from eactl_plugins.metrics import Metrics, StatsFeed, merge
from eactl_plugins.mp_server import ServerReading
from eactl_plugins.settings import PluginSettings

CHUNK = 32


def gate(policy: str = "fixed", host_chunks: int = 100) -> AdmissionGate:
    tier = TierSize(CHUNK, 1024, host_chunks * CHUNK * 1024)
    return AdmissionGate(Admission(policy, tier, AdmissionSettings(kappa_chunks=8)), Lineage(CHUNK), engine="e")


def lookup(request: str, tokens: int, hit: int = 0, **more: object) -> Lookup:
    prompt = list(range(tokens))
    hashes = [(request, end) for end in range(CHUNK, tokens + 1, CHUNK)]
    return Lookup(request, prompt, hashes, hit, tokens, **more)  # type: ignore[arg-type]


def test_a_decision_is_made_once_and_kept_until_the_request_ends() -> None:
    made = gate()
    assert not made.resolved(lookup("a", 1000))  # 31 new chunks
    assert made.known("a") and not made.saves("a")
    made.resolved_again("a", 1040, 1)  # preempted, looked up at every step since
    made.resolved_again("a", 1040, 1)
    assert not made.saves("a")
    assert (made.counters.requests, made.counters.preemptions) == (1, 1)
    made.finished("a", [])
    assert not made.known("a") and made.saves("a")


def test_a_request_too_short_to_be_stored_is_no_agent() -> None:
    made = gate("conditioned")
    for number in range(60):  # a health check each second
        made.resolved(lookup(f"ping-{number}", 10))
    assert made.record().agents == 0
    assert made.counters.saved_requests == 60


def test_tokens_of_a_prompt_are_told_apart_by_who_served_them() -> None:
    made = gate()
    made.resolved(lookup("a", 250, hit=224))
    made.loading("a", 96)  # the GPU had 128 of the tier's 224
    made.loading("a", 0)  # vLLM's second call, after the load
    made.started("a", 224)
    made.stepped({"a": 20, "b": 5})
    made.stepped({"a": 6})
    made.stepped({"a": 1})  # decoding
    counters = made.counters
    assert (counters.gpu_hit_tokens, counters.restored_tokens, counters.computed_tokens) == (128, 96, 26)


def test_more_on_the_gpu_than_in_the_tier_never_counts_as_negative() -> None:
    made = gate()
    made.resolved(lookup("a", 800, hit=768))
    made.loading("a", -64)
    made.started("a", 768)
    assert made.counters.restored_tokens == 0
    assert made.counters.gpu_hit_tokens == 768


def test_what_is_looked_for_after_it_was_declined_is_counted() -> None:
    made = gate()
    made.resolved(lookup("a", 1000, task="t"))
    made.finished("a", [])
    made.resolved(lookup("b", 1100, hit=64, task="t"))
    assert made.counters.missed_after_skip_tokens == 1000 - 64


def test_a_client_may_ask_not_to_be_stored_whatever_the_policy() -> None:
    made = gate("none")
    assert not made.resolved(lookup("a", 100, skip_asked=True))
    assert (made.counters.client_skipped_requests, made.counters.skipped_requests) == (1, 1)
    assert made.record().skipped_chunks == 3


def test_requests_that_come_and_go_leave_nothing_behind() -> None:
    made = gate("conditioned")
    order = random.Random(3)
    running: list[str] = []
    for number in range(5000):
        made.resolved(lookup(f"r{number}", order.randrange(1, 200)))
        running.append(f"r{number}")
        if len(running) > 20:
            made.finished(running.pop(order.randrange(len(running))), [])
    for request in running:
        made.finished(request, [])
        made.finished(request, [])  # twice is no fault
    assert not made._live and not made._prefilling
    assert len(made._skipped) <= 4096


def test_the_record_says_when_the_tier_was_read_and_what_it_holds() -> None:
    made = gate("conditioned")
    assert made.record().age_s is None and made.record().registered_chunks is None
    made.reported(TierReport(99, 5), TierState(registered_chunks=99, evicted_chunks=5, stored_chunks=7))
    record = made.record()
    assert record.age_s is not None and record.age_s < 1
    assert (record.registered_chunks, record.capacity_chunks, record.occupancy) == (99, 100, 0.99)
    assert record.stored_tokens == 7 * CHUNK
    assert record.faults == 0


def test_increases_are_sent_once_and_add_up() -> None:
    made, feed = gate("none"), StatsFeed()
    made.resolved(lookup("a", 100))
    first = feed.take(made.record())
    made.resolved(lookup("b", 100))
    second = feed.take(made.record())
    assert first["counters"]["requests"] == second["counters"]["requests"] == 1
    both = merge(first, second)
    assert both is not None and both["counters"]["requests"] == 2
    assert merge(None, first) == first and merge(first, None) == first


def test_metrics_carry_every_exported_name() -> None:
    from eactl.telemetry.exported import exported_names

    seen: list[str] = []

    class Metric:
        def __init__(self, name: str, **_: object) -> None:
            seen.append(name)

        def labels(self, *_: object) -> Metric:
            return self

        def inc(self, rise: float) -> None: ...

        def set(self, value: float) -> None: ...

    class Counter(Metric):
        def __init__(self, name: str, **options: object) -> None:
            super().__init__(f"{name}_total", **options)

    made = Metrics(Metric, Counter, ["engine"], {0: ["0"]})
    assert sorted(seen) == sorted(exported_names())
    made.observe(StatsFeed().take(gate().record()), 0)
    made.observe({"counters": {"of_a_later_version": 1}, "gauges": {"too": 1.0}}, 0)
    made.observe(None, 0)


def test_what_a_token_takes_in_the_tier_is_measured_and_not_assumed() -> None:
    # an engine that keeps int8 on the GPU and stores 133,938 bytes a token: 4.93 GB for 36,808 tokens
    reading = ServerReading(
        objects=36_808, used_bytes=4_930_000_000, total_bytes=1 << 40, watermark=0.8, eviction_ratio=0.2,
        evicted_objects=0, written_objects=None, failed_objects=None,
    )  # fmt: skip
    assert reading.bytes_per_token(pieces=1, chunk_tokens=1) == 133_938
    assert reading.bytes_per_token(pieces=8, chunk_tokens=256) == 4_930_000_000 * 8 // (36_808 * 256)


def test_settings_are_read_from_the_connectors_configuration() -> None:
    settings = PluginSettings.from_extra_config(
        {"eactl.policy": "fixed", "eactl.host_bytes": 5, "eactl.status_urls": "http://h:1/", "eactl.theta": None,
         "lmcache.mp.port": 1}
    )  # fmt: skip
    assert (settings.policy, settings.host_bytes, settings.theta) == ("fixed", 5, 0.95)
    assert settings.status_urls == ("http://h:1",)
    assert settings.admission(1024).kappa_chunks == 8  # 8,192 tokens, as in the paper
    assert settings.admission(256).kappa_chunks == 32
    assert PluginSettings.from_extra_config(None) == PluginSettings()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("eactl.policy", "lru"), ("eactl.polcy", "none"), ("eactl.kappa_chunks", -1), ("eactl.kappa_chunks", True),
        ("eactl.theta", 2), ("eactl.window_s", 0), ("eactl.window_s", "60"), ("eactl.status_urls", ["ftp://x"]),
        ("eactl.host_bytes", 1.5),
    ],
)  # fmt: skip
def test_a_key_that_is_wrong_is_named(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key):
        PluginSettings.from_extra_config({key: value})
