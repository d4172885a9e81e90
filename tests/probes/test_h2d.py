"""Timed copies on the CPU device: the real code path, memory to memory."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path
from statistics import median

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'eactl[probes]'")

from eactl.errors import CannotRunHereError, UsageError  # noqa: E402
from eactl_probes import h2d, h2d_buffers  # noqa: E402
from eactl_probes.copying import CpuCopier, fill, same_bytes, time_copies  # noqa: E402
from eactl_probes.h2d import H2dFindings, H2dSettings, TierShape, fitting_sizes, measure_h2d  # noqa: E402
from eactl_probes.h2d_buffers import Placement, buffers  # noqa: E402
from eactl_probes.h2d_document import h2d_fields, restore_rate  # noqa: E402
from eactl_probes.h2d_series import Buffers, Series, measure_pattern, measure_series, measure_together  # noqa: E402
from eactl_probes.notices import Notices  # noqa: E402
from eactl_probes.sampling import Effort  # noqa: E402
from tests.cli_runner import COMMAND, eactl, environment  # noqa: E402

MIB = 1 << 20
FAST = H2dSettings(device="cpu", sizes=(64 * 1024, MIB, 4 * MIB), budget_s=0.3, least_samples=3)


@pytest.fixture(scope="module")
def findings() -> H2dFindings:
    """One quick run of everything."""
    found = H2dFindings()
    tier = TierShape(chunk_bytes=MIB, layers=4)
    measure_h2d(H2dSettings(device="cpu", sizes=FAST.sizes, tier=tier, budget_s=0.5, ranks=2, least_samples=3), found)
    return found


def test_both_directions_are_measured_and_verified(findings: H2dFindings) -> None:
    assert [(s.direction, s.memory, s.verified) for s in findings.series] == [
        ("h2d", "pageable", True),
        ("d2h", "pageable", True),
    ]
    assert all([p.size_bytes for p in s.points] == list(FAST.sizes) for s in findings.series)
    assert findings.notices.has("cpu-device")


def test_the_document_keeps_the_contract_and_every_sample(findings: H2dFindings) -> None:
    document = h2d_fields(findings, "complete")
    for name in (
        "device",
        "pinned",
        "points",
        "bandwidth_gib_s",
        "overhead_us",
        "d2h_gib_s",
        "concurrent_gib_s",
        "numa_node",
    ):
        assert name in document
    assert (document["device"], document["pinned"], document["link"]) == ("cpu", False, None)
    assert any(warning["code"] == "no-link" for warning in document["warnings"])
    for series in document["series"]:
        for point in series["points"]:
            samples = sorted(point["samples_s"])
            assert len(samples) >= 3
            assert samples[0] <= point["median_s"] <= samples[-1]
    assert document["verified"] is True


def test_the_rate_of_a_restore_is_the_slowest_of_what_was_measured(findings: H2dFindings) -> None:
    document = h2d_fields(findings, "complete")
    chunks = next(p["gib_s"] for p in document["patterns"] if p["name"] == "chunks")
    candidates = [document["bandwidth_gib_s"], document["concurrent_gib_s"], chunks]
    assert document["restore_gib_s"] == pytest.approx(min(candidates))
    assert [(p["name"], p["piece_bytes"]) for p in document["patterns"]] == [
        ("chunks", MIB),
        ("layer pieces", MIB // 4),
    ]
    rate = restore_rate(findings)
    assert rate is not None
    assert rate.bandwidth.low <= rate.bandwidth.value <= rate.bandwidth.high


class CorruptingCopier(CpuCopier):
    """A link that flips one byte of every copy."""

    def start(self, pairs):  # type: ignore[no-untyped-def]
        wait = super().start(pairs)
        for destination, _ in pairs:
            destination[-1] ^= 1
        return wait


def test_a_copy_that_changes_a_byte_is_caught() -> None:
    notices = Notices()
    copier = CorruptingCopier()
    series = Series(None, "h2d", "pageable")
    with buffers(copier, 16 * MIB, Placement(False, None), notices) as pair:
        list(measure_series(copier, pair, series, [MIB, 16 * MIB], Effort(0.01, least=2)))
    assert series.verified is False


def test_verification_sees_a_misplaced_copy() -> None:
    source, destination = (torch.zeros(80 * MIB, dtype=torch.uint8) for _ in range(2))
    fill(source)
    time_copies(CpuCopier(), [(destination, source)])
    assert same_bytes(destination, source)
    # One mebibyte shifted by a mebibyte: the same pattern but for its number.
    destination[8 * MIB : 9 * MIB] = source[9 * MIB : 10 * MIB]
    assert not same_bytes(destination[: 64 * MIB], source[: 64 * MIB])


def test_too_little_memory_reduces_the_sizes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # 256 MiB free: half of it for both ends of the copy, so 64 MiB each.
    monkeypatch.setattr(h2d_buffers.hostinfo, "available_memory_bytes", lambda: 256 * MIB)
    notices = Notices()
    with buffers(CpuCopier(), 1 << 30, Placement(False, None), notices) as pair:
        assert pair.host.numel() == 64 * MIB
    assert notices.has("sizes-reduced")
    assert "largest copy 64 MiB instead of 1 GiB" in notices.entries[0]["text"]


@pytest.mark.parametrize(
    ("wanted", "room", "sizes"),
    [
        ((MIB, 64 * MIB), 64 * MIB, [MIB, 64 * MIB]),  # all fit
        ((MIB, 1024 * MIB), 64 * MIB, [MIB, 64 * MIB]),  # the largest that can be had stands in for what cannot
        ((256 * MIB, 1024 * MIB), 64 * MIB, [4 * MIB, 64 * MIB]),  # none fits: still a line
    ],
)
def test_sizes_beyond_memory_give_way_to_the_largest_that_fits(
    wanted: tuple[int, ...], room: int, sizes: list[int]
) -> None:
    assert fitting_sizes(wanted, room) == sizes


class PoorCopier(CpuCopier):
    """A machine that cannot pin more than a given size."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def host_buffer(self, size: int, *, pinned: bool, node: int | None) -> torch.Tensor:
        if size > self.most:
            raise RuntimeError(f"cudaHostRegister of {size} bytes failed")
        return super().host_buffer(size, pinned=pinned, node=node)


def test_pinning_is_tried_in_halves_until_it_works() -> None:
    notices = Notices()
    with buffers(PoorCopier(40 * MIB), 256 * MIB, Placement(True, None), notices) as pair:
        assert pair.host.numel() == 32 * MIB
    assert notices.has("sizes-reduced")
    with (
        pytest.raises(CannotRunHereError, match="no buffer of 16 MiB can be had"),
        buffers(PoorCopier(MIB), 64 * MIB, Placement(True, None), notices),
    ):
        pass


class ScriptedCopier(CpuCopier):
    """A device whose copies take exactly a fixed cost and a rate, by its own word."""

    def __init__(self, index: int, bytes_per_s: float, overhead_s: float = 0.0) -> None:
        super().__init__(index)
        self.bytes_per_s, self.overhead_s = bytes_per_s, overhead_s
        self.moved = 0

    def start(self, pairs):  # type: ignore[no-untyped-def]
        total = sum(source.numel() for _, source in pairs)
        for destination, source in pairs:
            destination.copy_(source)
        self.moved += total
        return lambda: self.overhead_s * len(pairs) + total / self.bytes_per_s


def small_pair() -> Buffers:
    return Buffers(torch.zeros(16 * MIB, dtype=torch.uint8), torch.zeros(16 * MIB, dtype=torch.uint8))


def test_rate_and_overhead_come_out_of_the_times() -> None:
    copier, series = ScriptedCopier(0, 20e9, 12e-6), Series(0, "h2d", "pinned")
    list(measure_series(copier, small_pair(), series, FAST.sizes, Effort(0.01, least=2)))
    assert series.bandwidth is not None
    assert series.overhead is not None
    assert series.bandwidth.value == pytest.approx(20e9)
    assert series.overhead.value == pytest.approx(12e-6)


def test_small_pieces_pay_the_fixed_cost_each() -> None:
    # 1 MiB chunks in 16 pieces of 64 KiB at 20 GB/s and 12 us a copy: 65,536 / (12 us + 3.28 us) = 4.29 GB/s.
    copier = ScriptedCopier(0, 20e9, 12e-6)
    pattern = measure_pattern(copier, small_pair(), "layer pieces", MIB, 16, Effort(0.01, least=2))
    assert (pattern.piece_bytes, pattern.pieces) == (64 * 1024, 16 * 16)
    assert pattern.bytes_per_s == pytest.approx(65536 / (12e-6 + 65536 / 20e9))


def test_all_at_once_gives_each_rank_work_for_the_same_time() -> None:
    slow, fast = ScriptedCopier(0, 5e9), ScriptedCopier(1, 20e9)
    rates = measure_together([slow, fast], [small_pair(), small_pair()], seconds=0.3)
    assert [rate.bandwidth.value for rate in rates] == pytest.approx([5e9, 20e9])
    # Every rate comes from bytes and times that are kept.
    assert all(rate.copied_bytes / median(rate.samples.seconds) == rate.bandwidth.value for rate in rates)
    # After a first equal round the fast one copies about four times as much.
    assert 3 < fast.moved / slow.moved < 4.5


def test_a_size_that_would_take_longer_than_all_may_is_left_out_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # At 64 KiB/s by its own word the third copy takes 16 s and a fourth of 4 MiB would take 8 x 64 s.
    monkeypatch.setattr(h2d, "CpuCopier", lambda index=None: ScriptedCopier(index or 0, 65536.0))
    monkeypatch.setattr(h2d, "SIZES", (65536, 262144, MIB, 4 * MIB))
    found = H2dFindings()
    measure_h2d(H2dSettings(device="cpu", sizes=h2d.SIZES, budget_s=0.2, least_samples=3), found)
    assert [point.size_bytes for point in found.series[0].points] == [65536, 262144, MIB]
    assert any("4 MiB and more were left out: no time" in entry["text"] for entry in found.notices.entries)
    asked = H2dFindings()
    sizes = (65536, 262144, MIB, 2 * MIB)
    measure_h2d(H2dSettings(device="cpu", sizes=sizes, budget_s=0.2, least_samples=3), asked)
    assert len(asked.series[0].points) == 4


def test_an_interruption_keeps_what_was_measured() -> None:
    found = H2dFindings()

    def stop(text: str) -> None:
        if "device to host" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_h2d(FAST, found, stop)
    document = h2d_fields(found, "interrupted")
    assert document["status"] == "interrupted"
    assert document["bandwidth_gib_s"] > 0
    assert document["d2h_gib_s"] is None  # one size only: no line
    assert len(document["series"][1]["points"]) == 1


def test_settings_are_checked_at_the_door() -> None:
    with pytest.raises(UsageError, match="two different sizes"):
        H2dSettings(sizes=(1, 1))
    with pytest.raises(UsageError, match="0 ranks"):
        H2dSettings(ranks=0)


def test_the_command_prints_tables_and_one_sentence() -> None:
    result = eactl("probe", "h2d", "--device", "cpu", "--sizes", "64KiB,1MiB", "--quick")
    assert result.returncode == 0, result.stderr
    assert "Copies from memory to memory" in result.stdout
    assert "--device cpu: rates are from memory to memory" in result.stderr
    assert result.stdout.rstrip().splitlines()[-1].startswith("A restore moves ")


def test_cuda_without_a_gpu_cannot_run_here() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = eactl("probe", "h2d", "--device", "cuda")
    assert result.returncode == 3
    assert "no CUDA device" in result.stderr
    assert "try --device cpu" in result.stderr
    assert eactl("probe", "h2d", "--device", "tpu").returncode == 2


def test_without_torch_the_install_line_is_shown(tmp_path: Path) -> None:
    # A torch that fails to import, as in an environment without the extra.
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n")
    result = eactl("probe", "h2d", env={"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"})
    assert result.returncode == 3
    assert "needs torch, which is not installed" in result.stderr
    assert "pip install 'eactl[probes]'" in result.stderr


def test_ctrl_c_prints_a_partial_document_and_leaves_with_130(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "probe", "h2d", "--device", "cpu", "--json", "-o", str(tmp_path / "h2d.json")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    # Wait until it measures: its buffers of 1 GiB are then mapped. Then interrupt as a terminal would.
    interrupted = threading.Timer(6.0, lambda: process.send_signal(signal.SIGINT))
    interrupted.start()
    stdout, stderr = process.communicate(timeout=120)
    interrupted.cancel()
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr
    if (tmp_path / "h2d.json").exists():
        assert json.loads((tmp_path / "h2d.json").read_bytes())["status"] == "interrupted"
    assert stdout == b""
