"""Restore rates out of LMCache's own lines and metrics, in the shapes that its versions write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eactl.errors import UsageError
from eactl_probes.notices import Notices
from eactl_probes.restore_logs import RestoreLog, read_restore_logs
from tests.cli_runner import eactl

GIB = 1 << 30


def read(tmp_path: Path, text: str, bytes_per_token: float | None = None) -> tuple[RestoreLog, Notices]:
    path = tmp_path / "lmcache.log"
    path.write_text(text)
    notices = Notices()
    return read_restore_logs([path], bytes_per_token, notices), notices


def test_in_process_lines_of_both_versions_where_gb_means_gib(tmp_path: Path) -> None:
    # 0.3.12 has no request id; both print 2^30 bytes as "gb". 24 MiB = 0.0234 GiB in 0.9 ms is 26.0 GiB/s.
    log, notices = read(
        tmp_path,
        "[2026-11-01 10:00:00,123] LMCache INFO: Retrieved 1024 out of 1024 required tokens (from 4096 total tokens). "
        "size: 0.0234 gb, cost 0.9000 ms, throughput: 26.0417 GB/s; (cache_engine.py:740:lmcache.v1.cache_engine)\n"
        "\x1b[32;20m[2026-11-01 10:00:01,123] LMCache INFO:\x1b[0m [req_id=cmpl-1] Retrieved 2048 out of 2048 "
        "required tokens (from 4096 total tokens). size: 0.0469 gb, cost 1.7000 ms, throughput: 27.6 GB/s; \x1b[3m(x)\n"
        "[2026-11-01 10:00:02,123] LMCache INFO: [req_id=cmpl-1] Stored 1024 out of total 1024 tokens. "
        "size: 0.0234 GB, cost 9.0000 ms, throughput: 2.6 GB/s; offload_time: 1.0000 ms, put_time: 8.0000 ms\n",
    )
    assert log.events == 2
    assert log.bandwidth.value / GIB == pytest.approx((0.0234 / 0.9e-3 + 0.0469 / 1.7e-3) / 2)
    # A store is the copy (offload_time), not the bookkeeping after it.
    assert log.d2h_bandwidth is not None
    assert log.d2h_bandwidth.value / GIB == pytest.approx(0.0234 / 1e-3)
    # 0.0703 GiB over 3,072 tokens: 24,571 bytes per token, within rounding of 24 KiB.
    assert log.bytes_per_token == pytest.approx(24576, rel=1e-3)
    assert notices.entries == []


def test_the_servers_extra_lines_count_in_powers_of_ten(tmp_path: Path) -> None:
    window = (
        "[2026-11-01] LMCache INFO: L0<->L1 stats [cuda:0] last 10.0s: store ops=3 tokens=3072 size=0.08GB "
        "avg_copy=20.00GB/s | retrieve ops=5 tokens=5120 size=0.13GB avg_copy=25.00GB/s\n"
    )
    total = window.replace("last 10.0s", "cumulative")
    idle = window.replace("avg_copy=25.00GB/s", "avg_copy=n/a")
    log, _ = read(tmp_path, window + total + idle)
    # Cumulative lines repeat the windows and a window without a timed copy has no rate: one restore window, two stores.
    assert log.load_rates == [pytest.approx(25e9)]
    assert log.store_rates == [pytest.approx(20e9)] * 2
    assert log.events == 5


def test_server_lines_without_bytes_need_the_kv_size_and_say_what_they_time(tmp_path: Path) -> None:
    text = (
        "LMCache INFO: Retrieved 8192 tokens in 0.010 seconds\nLMCache INFO: Retrieved 4096 tokens in 0.005 seconds\n"
    )
    log, notices = read(tmp_path, text, 24576)
    assert log.bandwidth.value == pytest.approx(12288 * 24576 / 0.015)
    assert notices.has("queue-times")
    with pytest.raises(UsageError, match="counts restored tokens but not bytes"):
        read(tmp_path, text)


METRICS = """\
# HELP lmcache_mp_l0_l1_load_throughput_GB_per_second x
# TYPE lmcache_mp_l0_l1_load_throughput_GB_per_second histogram
lmcache_mp_l0_l1_load_throughput_GB_per_second_bucket{device="cuda:0",le="25.0"} 1.0
lmcache_mp_l0_l1_load_throughput_GB_per_second_count{device="cuda:0"} 3.0
lmcache_mp_l0_l1_load_throughput_GB_per_second_sum{device="cuda:0"} 60.0
lmcache_mp_l0_l1_load_throughput_GB_per_second_count{device="cuda:1"} 1.0
lmcache_mp_l0_l1_load_throughput_GB_per_second_sum{device="cuda:1"} 20.0
"""


def test_a_page_of_metrics_gives_the_mean_of_the_requests(tmp_path: Path) -> None:
    log, _ = read(tmp_path, METRICS)
    assert log.bandwidth.value == pytest.approx(20e9)  # (60 + 20) / 4 requests, GB of 10^9
    assert log.events == 4


def test_bytes_over_copy_time_are_better_than_a_mean_of_rates(tmp_path: Path) -> None:
    log, _ = read(
        tmp_path,
        METRICS
        + 'lmcache_mp_transfer_phase_bytes_total{direction="h2d",phase="staging"} 5e+09\n'
        + 'lmcache_mp_transfer_phase_bytes_total{direction="h2d",phase="kernel"} 7e+09\n'
        + 'lmcache_mp_transfer_phase_bytes_total{direction="d2h",phase="staging"} 9e+09\n'
        + 'lmcache_mp_transfer_phase_elapsed_seconds_total{direction="h2d",phase="staging"} 0.25\n'
        + 'lmcache_mp_transfer_phase_elapsed_seconds_total{direction="d2h",phase="staging"} 0.5\n',
    )
    # Kernel sections mostly wait for the GPU's cores: only staging is the copy. 5e9 / 0.25 = 20 GB/s.
    assert log.bandwidth.value == pytest.approx(20e9)
    assert log.d2h_bandwidth is not None
    assert log.d2h_bandwidth.value == pytest.approx(18e9)


def test_a_warm_run_whose_hits_were_all_on_the_gpu_gives_no_verdict(tmp_path: Path) -> None:
    # Public report: 25 times faster when warm, with and without a tier; the GPU cache did it.
    page = "vllm:prefix_cache_hits_total 14808\nvllm:external_prefix_cache_hits_total 0\n"
    with pytest.raises(UsageError, match="inconclusive: all hits were on the GPU"):
        read(tmp_path, page)
    line = "INFO: Avg prompt: 1.0 tokens/s, Prefix cache hit rate: 55.0%, External prefix cache hit rate: 0.0%\n"
    with pytest.raises(UsageError, match="inconclusive: all hits were on the GPU"):
        read(tmp_path, line)


def test_hits_without_copy_times_are_told_from_no_hits(tmp_path: Path) -> None:
    page = "vllm:prefix_cache_hits_total 10\nvllm:external_prefix_cache_hits_total 4000\n"
    with pytest.raises(UsageError, match="the tier had hits, but neither bytes nor times"):
        read(tmp_path, page)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "nothing of interest\n", "\0\0\0\n", "Retrieved many out of few\n", "size: 0.0234 gb, cost 0 ms\n"],
)
def test_a_log_without_restores_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="no restores from the host tier in the log"):
        read(tmp_path, text)


def test_broken_lines_do_no_harm(tmp_path: Path) -> None:
    good = "Retrieved 1024 out of 1024 required tokens (from 1024 total tokens). size: 0.0234 gb, cost 0.9 ms, t\n"
    bad = "Retrieved 1 out of 1 tokens. size: 0.0000 gb, cost 0.0 ms\nRetrieved 1024 out of 10"
    log, _ = read(tmp_path, "\0" + good + bad)
    assert log.events == 1


def test_a_tier_that_weighs_other_than_the_model_is_noticed(tmp_path: Path) -> None:
    # Public report: the GPU's KV was compressed, the tier's copy was not, 7 times more bytes per token.
    text = "Retrieved 1000 out of 1000 required tokens (from 1000 total tokens). size: 0.1221 gb, cost 5.0 ms, t\n"
    _, notices = read(tmp_path, text, 18_900)
    assert notices.has("tier-weight")
    assert "131,104 bytes per token" in notices.entries[0]["text"]  # 0.1221 GiB / 1000


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_restore_logs([tmp_path / "absent.log"], None, Notices())


def test_the_command_takes_a_log_instead_of_measuring(tmp_path: Path) -> None:
    path = tmp_path / "lmcache.log"
    line = "Retrieved 1024 out of 1024 required tokens (from 1024 total tokens). size: 0.0234 gb, cost {} ms, t\n"
    path.write_text("".join(line.format(cost) for cost in (0.8, 0.9, 1.0, 0.88, 0.92)))
    result = eactl(
        "probe",
        "obr",
        "--from-logs",
        path,
        "--model",
        "Qwen3-Coder-30B-A3B",
        "--tp",
        "8",
        "--us-per-token",
        "5.6",
        "--json",
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["sources"]["bandwidth_gib_s"] == "logs"
    assert document["bandwidth_gib_s"] == pytest.approx(26.0, abs=0.01)  # the median, 0.0234 GiB / 0.9 ms
    low, high = document["bands"]["bandwidth_gib_s"]
    assert low < 26.0 < high
    assert document["bandwidth_limited_by"] == "5 restores in the log"
    assert document["log"]["events"] == 5
