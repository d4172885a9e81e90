"""Reading engines' metrics, state files and logs, and following them through restarts and gaps."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from eactl.errors import UsageError
from eactl.report.tier import sample_object, sample_text, warning_lines
from eactl.telemetry.explain import advice, state_in_words, useful_host_bytes
from eactl.telemetry.follow import Follower, follow
from eactl.telemetry.prometheus import figure, totals
from eactl.telemetry.record import TierRecord
from eactl.telemetry.sources import FileSource, from_log, from_metrics, local_sources, open_source
from eactl.telemetry.statefile import write_state

GIB = 1 << 30


def record(**fields: object) -> TierRecord:
    values = {
        "at_s": time.time(), "policy": "conditioned", "age_s": 0.5, "started_at_s": 100.0, "agents": 16,
        "mean_prompt_tokens": 33_234.0, "working_set_bytes": 11.4 * GIB, "host_bytes": 5 * GIB, "gamma_h": 2.3,
        "registered_chunks": 210, "capacity_chunks": 213, "occupancy": 0.986, "evicted_window": 40,
        "full_and_evicting": True, "pressure": True, "requests": 10, "skipped_requests": 4,
    }  # fmt: skip
    return TierRecord(**{**values, **fields})  # type: ignore[arg-type]


def test_old_and_new_names_of_one_figure_are_both_found_and_the_newer_wins() -> None:
    old = "vllm:gpu_prefix_cache_hits_total 10\nvllm:gpu_prefix_cache_queries_total 40\n"
    new = 'vllm:prefix_cache_hits_total{engine="0"} 6\nvllm:prefix_cache_hits_total{engine="1"} 5\n'
    assert figure(totals(old), "gpu_hit_tokens") == (10, "vllm:gpu_prefix_cache_hits_total")
    assert figure(totals(old + new), "gpu_hit_tokens") == (11, "vllm:prefix_cache_hits_total")
    assert figure(totals(old), "preemptions") == (None, None)
    reading = from_metrics(old, "x")
    assert reading.metrics["gpu_hit_tokens"] == "vllm:gpu_prefix_cache_hits_total"


def test_what_is_not_exported_is_null_with_a_warning_and_never_zero() -> None:
    sample = Follower(_Text("vllm:num_preemptions_total 12\n")).look()
    shown = sample_object(sample)
    assert shown["preemptions"] == 12
    assert shown["restored_tokens"] is None
    missing = next(warning for warning in shown["warnings"] if warning["code"] == "not-exported")
    assert "restored_tokens" in missing["text"]


def test_the_hit_rate_gauge_that_is_always_one_is_named_and_the_counters_are_used_instead() -> None:
    text = "lmcache:retrieve_hit_rate 1.0\nlmcache:num_lookup_hits_total 200\nlmcache:num_lookup_tokens_total 1000\n"
    (warning,) = from_metrics(text, "x").warnings
    assert warning["code"] == "hit-rate-gauge"
    assert "20%" in warning["hint"]  # 200 / 1,000


def test_a_negative_need_to_load_counts_as_nothing_and_never_against_others() -> None:
    reading = from_log(["hit tokens: 768, need to load: -64", "noise", "hit tokens: 1024, need to load: 256"], "x")
    assert reading.record is not None
    assert reading.record.restored_tokens == 256
    assert reading.warnings[0]["code"] == "negative-load"


@pytest.mark.parametrize(
    "text", ["", "# HELP x\n", "other_metric 3\n", "{\n", "vllm:num_preemptions_total abc\n", "\0\0"]
)
def test_text_without_a_known_figure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no metric of vLLM, LMCache or eactl"):
        from_metrics(text, "x")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "tier full and evicting, working set 2.3× the tier: declining refills"),
        ({"pressure": False, "gamma_h": 0.7}, "tier full and evicting, working set 0.7× the tier: storing everything"),
        ({"pressure": False, "full_and_evicting": False, "occupancy": 0.43, "evicted_window": 0},
         "tier 43% full, working set 2.3× the tier: storing everything"),
        # 11.4 GiB over 0.72 · 16 GiB
        ({"gamma_h": 11.4 / 16, "host_bytes": 16 * GIB, "kept_bytes": round(0.72 * 16 * GIB)},
         "tier full and evicting, working set 1.0× what the tier keeps: declining refills"),
        ({"age_s": 40.0},
         "last report of the tier is 40 s old: going by the working-set estimate alone, declining refills"),
        ({"registered_chunks": None}, "no report of the tier yet: declining refills"),
        ({"policy": "fixed"},
         "tier full and evicting, working set 2.3× the tier: declining every refill (policy fixed)"),
        ({"agents": 1, "pressure": False}, "tier full and evicting, no two agents at work: storing everything"),
    ],
)  # fmt: skip
def test_the_state_is_said_in_words(fields: dict[str, object], words: str) -> None:
    assert state_in_words(record(**fields)) == words


def codes(**fields: object) -> list[str]:
    return [entry["code"] for entry in advice(record(**fields))]


def test_stores_that_are_never_loaded_are_reported_with_their_likely_cause() -> None:
    (found,) = advice(record(stored_tokens=500_000, restored_tokens=0, gpu_hit_tokens=10, computed_tokens=900_000))
    assert found["code"] == "never-loaded"
    assert "PYTHONHASHSEED" in found["hint"].split(";")[0]
    assert codes(stored_tokens=500_000, restored_tokens=0, gpu_hit_tokens=900_000, computed_tokens=10) == [
        "tier-is-a-copy"
    ]
    assert codes(stored_tokens=500_000, restored_tokens=1) == []
    assert codes(stored_tokens=500_000, restored_tokens=None) == []  # not known is not never
    assert codes(faults=1, failed_allocation_chunks=2, preemptions=11) == [
        "allocation-failed",
        "faults",
        "preemption-thrash",
    ]


def test_a_tier_hardly_larger_than_the_gpu_cache_is_mostly_a_copy_of_it() -> None:
    # 32 GiB of tier beside 30 GiB of GPU cache: 2 GiB can be of use
    eager = record(
        policy="none", host_bytes=32 * GIB, gpu_kv_tokens=30 * GIB // 1024, tier_bytes_per_token=1024.0, age_s=0.1
    )
    assert useful_host_bytes(eager) == 2 * GIB
    (found,) = advice(eager)
    assert found["code"] == "tier-overlaps-gpu" and "2 GiB of its 32 GiB" in found["text"]
    assert advice(replace(eager, policy="conditioned")) == []
    assert useful_host_bytes(record()) is None


class _Text:
    """A source whose text a test changes."""

    name = "http://x"

    def __init__(self, text: str) -> None:
        self.text: str | None = text

    def read(self) -> object:
        if self.text is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return from_metrics(self.text, self.name)


def test_following_survives_a_gap_and_a_restart_and_says_both() -> None:
    source = _Text("eactl:requests_total 10\neactl:restored_tokens_total 1000\neactl:start_timestamp_seconds 50\n")
    follower = Follower(source)  # type: ignore[arg-type]
    assert follower.look().rates == {}
    time.sleep(0.02)
    source.text = "eactl:requests_total 12\neactl:restored_tokens_total 1100\neactl:start_timestamp_seconds 50\n"
    assert follower.look().rates["restored_tokens"] > 0
    source.text = None
    gone = follower.look()
    assert gone.error == "Connection refused"
    assert sample_text(gone, name_source=False)[0].endswith(f"no report from {source.name}: Connection refused")
    assert sample_text(gone, name_source=True)[0].endswith(f"{source.name}: no report: Connection refused")
    assert sample_object(gone)["requests"] is None
    source.text = "eactl:requests_total 1\neactl:restored_tokens_total 7\neactl:start_timestamp_seconds 90\n"
    back = follower.look()
    assert back.restarted and back.gap_s is not None and back.rates == {}
    assert "restarted" in sample_text(back, name_source=False)[0]


def test_a_file_that_is_no_longer_written_shows_its_age(tmp_path: Path) -> None:
    path = tmp_path / "tier-1.json"
    write_state(path, record(at_s=time.time() - 100))
    reading = FileSource(path).read()
    assert reading.record is not None and 100 <= (reading.record.age_s or 0) < 110
    assert reading.warnings[0]["code"] == "not-written"


def test_engines_of_this_user_are_found_in_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EACTL_STATE_DIR", str(tmp_path))
    assert local_sources() == []
    for name in ("b", "a"):
        write_state(tmp_path / f"tier-{name}.json", record(engine=name))
    samples = list(follow(local_sources(), 1, once=True))
    assert [sample.reading.record.engine for sample in samples if sample.reading and sample.reading.record] == [
        "a",
        "b",
    ]


def test_what_a_killed_engine_left_is_shown_only_where_no_engine_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EACTL_STATE_DIR", str(tmp_path))
    for name in ("dead", "live"):
        write_state(tmp_path / f"tier-{name}.json", record(engine=name))
    long_ago_s = time.time() - 3600
    os.utime(tmp_path / "tier-dead.json", (long_ago_s, long_ago_s))
    assert [Path(source.name).stem for source in local_sources()] == ["tier-live"]
    (tmp_path / "tier-live.json").unlink()
    assert [Path(source.name).stem for source in local_sources()] == ["tier-dead"]


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"eactl:pressure 1\neactl:policy 2\neactl:agents 3\n" if self.path == "/metrics" else b"no"
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


def test_a_server_is_read_by_address_with_and_without_scheme_and_path(server: str) -> None:
    for text in (server, f"http://{server}", f"http://{server}/", f"http://{server}/metrics"):
        reading = open_source(text).read()
        assert reading.record is not None
        assert (reading.record.pressure, reading.record.policy) == (True, "conditioned")
    with pytest.raises(OSError, match="404"):
        open_source(f"http://{server}/other").read()


def test_an_address_of_another_kind_is_refused() -> None:
    for text in ("ftp://host/x", "http://", "file:///etc/passwd"):
        with pytest.raises(UsageError, match="not an address"):
            open_source(text)


def test_a_reading_is_one_line_for_people() -> None:
    source = FileSource.__new__(FileSource)
    follower = Follower(source)
    shown = replace(record(), chunk_tokens=1024, tier_bytes_per_token=24576.0, skipped_chunks=100)
    follower._source = _Fixed(shown)
    sample = follower.look()
    (line,) = sample_text(sample, name_source=False)
    assert "16 agents × 33.2K tokens" in line
    assert "tier 210/213 chunks of 5 GiB" in line
    assert "declined 4 of 10 (2.34 GiB not written)" in line  # 100 · 1,024 · 24 KiB
    assert line.endswith("tier full and evicting, working set 2.3× the tier: declining refills")
    assert warning_lines(sample) == {}


class _Fixed:
    name = "x"

    def __init__(self, shown: TierRecord) -> None:
        self._shown = shown

    def read(self) -> object:
        from eactl.telemetry.sources import Reading

        return Reading(self._shown)
