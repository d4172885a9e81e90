"""The probes on a real GPU, against plain loops of torch and against what the hardware can do at most."""

from __future__ import annotations

import json
from statistics import median

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'eactl[probes]'")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

from eactl.configs import resolve_model  # noqa: E402
from eactl.configs.feedforward import complete_config  # noqa: E402
from eactl.model.decoder import read_decoder  # noqa: E402
from eactl.model.gpus import find_gpu  # noqa: E402
from eactl_probes.arithmetic import measure_matrix_rate, time_work  # noqa: E402
from eactl_probes.copying import CudaCopier, fill, same_bytes, time_copies  # noqa: E402
from eactl_probes.h2d import H2dFindings, H2dSettings, TierShape, measure_h2d  # noqa: E402
from eactl_probes.h2d_document import h2d_fields  # noqa: E402
from eactl_probes.numa import NumaError, allocating_on  # noqa: E402
from eactl_probes.prefill import PrefillFindings, measure_layers  # noqa: E402
from tests.cli_runner import eactl  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(scope="module")
def findings() -> H2dFindings:
    found = H2dFindings()
    settings = H2dSettings(device="cuda", tier=TierShape(24 * MIB, 48), numa="all", budget_s=20)
    measure_h2d(settings, found)
    return found


def plain_loop_bytes_per_s(size: int, direction: str, node: int | None) -> float:
    """What anyone would write, on the GPU's own node: pinned by torch, an event before and one after some copies."""
    try:
        with allocating_on(node):
            host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except NumaError:  # a container that forbids it forbade it to the probe as well
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    destination, source = (device, host) if direction == "h2d" else (host, device)
    rates = []
    for _ in range(8):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(10):
            destination.copy_(source, non_blocking=True)
        end.record()
        end.synchronize()
        rates.append(10 * size / (begin.elapsed_time(end) / 1e3))
    return median(rates)


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_the_fitted_rate_is_that_of_a_plain_loop(findings: H2dFindings, direction: str) -> None:
    series = next(s for s in findings.series if s.direction == direction and s.memory == "pinned" and s.gpu == 0)
    assert series.bandwidth is not None
    plain = plain_loop_bytes_per_s(256 * MIB, direction, findings.gpus[0].numa_node)
    assert series.bandwidth.value == pytest.approx(plain, rel=0.1)


def test_copies_are_whole(findings: H2dFindings) -> None:
    assert all(series.verified for series in findings.series)


def test_no_rate_exceeds_the_link(findings: H2dFindings) -> None:
    sheet = find_gpu(torch.cuda.get_device_name(0))
    if sheet is None:
        pytest.skip("no datasheet for this GPU")
    document = h2d_fields(findings, "complete")
    assert document["bandwidth_gib_s"] * GIB < sheet.link_gb_s * 1e9


def test_pageable_memory_is_not_faster_than_pinned(findings: H2dFindings) -> None:
    document = h2d_fields(findings, "complete")
    assert document["pinned"] is True
    if document["link"] and document["link"]["kind"] == "NVLink-C2C":
        pytest.skip("this GPU reads pageable memory coherently")
    assert document["pageable_gib_s"] < 1.1 * document["bandwidth_gib_s"]


def test_the_link_is_read_while_it_works(findings: H2dFindings) -> None:
    if not any(gpu.link_max for gpu in findings.gpus):
        pytest.skip("NVML does not tell the link")
    document = h2d_fields(findings, "complete")
    if document["link"]["kind"] == "NVLink-C2C":
        pytest.skip("PCIe readings do not describe NVLink-C2C")
    assert document["link"]["gen"] is not None
    assert document["link"]["gen"] <= document["link"]["max_gen"]


def test_pinned_memory_is_where_it_was_asked_for(findings: H2dFindings) -> None:
    for rate in findings.numa_rates:
        assert rate.observed_node in (None, rate.node)


def test_a_copy_is_timed_by_events_on_its_own_stream() -> None:
    copier = CudaCopier(0)
    host = copier.host_buffer(64 * MIB, pinned=True, node=None)
    device = copier.device_buffer(64 * MIB)
    fill(host)
    assert time_copies(copier, [(device, host)]) > 0
    assert same_bytes(device, host)
    assert time_copies(copier, []) < 50e-6
    copier.release(host)


def test_the_matrix_rate_stays_below_the_datasheet_and_is_no_fraction_of_it() -> None:
    rate = measure_matrix_rate("cuda", torch.bfloat16, 3.0)
    sheet = find_gpu(torch.cuda.get_device_name(0))
    if sheet is None:
        pytest.skip("no datasheet for this GPU")
    assert 0.4 * sheet.bf16_tflops * 1e12 < rate.flop_per_s.value < 1.05 * sheet.bf16_tflops * 1e12


def test_work_is_timed_without_its_launch() -> None:
    x = torch.zeros(1, device="cuda")
    assert time_work("cuda", lambda: x.add_(1)) < 200e-6


def test_layers_do_not_beat_the_matrix_rate() -> None:
    decoder = read_decoder(complete_config(resolve_model("Qwen3-Coder-30B-A3B")))
    findings = PrefillFindings("layers")
    measure_layers(findings, device="cuda", decoder=decoder, tp=8, lengths=None, seconds=10)
    figures = findings.figures()
    assert figures is not None
    assert findings.matrix_rate is not None
    rate = 2 * decoder.on_rank(8).active_parameters / figures[0].value
    assert rate < 1.1 * findings.matrix_rate.flop_per_s.value


def test_the_default_command_answers() -> None:
    result = eactl("probe", "obr", "--model", "Qwen3-Coder-30B-A3B", "--tp", "8", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["device"] == "cuda"
    assert document["verdict"] in ("restore", "recompute", "unclear")
    assert document["flop_per_host_byte"] > 0
