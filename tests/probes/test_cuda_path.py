"""The GPU's code path from device choice to document, where no GPU is: torch.cuda stood in for, tensors on the CPU.

It proves nothing about a GPU's rates. It proves that the calls are made, in an order that a driver would accept, and
that what is registered is given back; tests/gpu does the rest where there is a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'eactl[probes]'")

from torch.overrides import TorchFunctionMode  # noqa: E402

from eactl.errors import CannotRunHereError  # noqa: E402
from eactl.model.decoder import read_decoder  # noqa: E402
from eactl_probes import arithmetic, gpu, h2d, torch_env  # noqa: E402
from eactl_probes.h2d import H2dFindings, H2dSettings, TierShape, measure_h2d  # noqa: E402
from eactl_probes.h2d_document import h2d_fields  # noqa: E402
from eactl_probes.prefill import PrefillFindings, measure_layers  # noqa: E402
from tests.probes.test_gpu_facts import FULL, StandIn  # noqa: E402
from tests.probes.test_prefill import DENSE  # noqa: E402

if torch.cuda.is_available():
    pytest.skip("there is a real GPU: tests/gpu", allow_module_level=True)

MIB = 1 << 20
SIZES = (MIB, 4 * MIB, 16 * MIB)


class OnCpu(TorchFunctionMode):
    """Makes what is asked for on a GPU on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


class Driver:
    """Two GPUs of 1 GiB; remembers what is registered, in which context streams and events are used."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}
        self.current = 0
        self.refuse_above: int | None = None
        self.initialised = False

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802 - the driver's name
        assert address % 4096 == 0 or size > 0
        if self.refuse_above is not None and size > self.refuse_above:
            return 2  # cudaErrorMemoryAllocation
        assert address not in self.registered
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        del self.registered[address]
        return 0

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        before, self.current = self.current, index
        try:
            yield
        finally:
            self.current = before

    def event(self, *, enable_timing: bool) -> Any:
        assert enable_timing
        return Event(self)

    def stream(self, device: int) -> Any:
        return SimpleNamespace(device=device, wait_stream=lambda other: None, synchronize=lambda: None)


class Event:
    """An event that takes the time when it is recorded: copies of the CPU are done when they return."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.device, self.at = driver, driver.current, 0.0

    def record(self, stream: Any = None) -> None:
        assert stream is None or stream.device == self.device, "an event belongs to the GPU it was made on"
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        assert self.at

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """torch.cuda and NVML of a machine with two GPUs."""
    found = Driver()
    properties = [SimpleNamespace(uuid=f"abc-{index}", name="NVIDIA H20", total_memory=1 << 30) for index in range(2)]
    calls = {
        "is_available": lambda: True, "is_initialized": lambda: found.initialised, "device_count": lambda: 2,
        "get_device_properties": lambda index: properties[index], "get_device_name": lambda index=0: "NVIDIA H20",
        "get_device_capability": lambda: (9, 0), "mem_get_info": lambda index=0: (1 << 30, 1 << 30),
        "cudart": lambda: found, "device": found.device, "Event": found.event, "Stream": found.stream,
        "current_stream": lambda: found.stream(found.current), "stream": lambda stream: found.device(stream.device),
        "_sleep": lambda cycles: None,
    }  # fmt: skip
    for name, call in calls.items():
        monkeypatch.setattr(torch.cuda, name, call)

    @contextmanager
    def session(notices: Any, *, expected: bool) -> Iterator[Any]:
        yield gpu.Nvml(StandIn(**FULL))

    monkeypatch.setattr(h2d, "nvml_session", session)
    monkeypatch.setattr("eactl_probes.prefill.nvml_session", session)
    # What a GPU does in a blink takes a CPU long.
    monkeypatch.setattr(arithmetic, "_SIDES", {"cuda": (64, 128)})
    monkeypatch.setattr(h2d, "_NUMA_SIZES", (MIB, 64 * MIB))
    monkeypatch.setattr(h2d, "_TOGETHER_BYTES", 16 * MIB)
    with OnCpu():
        yield found


def test_every_gpu_is_measured_alone_and_all_at_once_and_nothing_stays_pinned(driver: Driver) -> None:
    found = H2dFindings()
    measure_h2d(H2dSettings(sizes=SIZES, tier=TierShape(MIB, 4), numa="all", budget_s=0.5, least_samples=3), found)
    document = h2d_fields(found, "complete")
    assert [(s["gpu"], s["direction"], s["memory"]) for s in document["series"]] == [
        (0, "h2d", "pinned"), (0, "d2h", "pinned"), (0, "h2d", "pageable"), (0, "d2h", "pageable"),
        (1, "h2d", "pinned"), (1, "d2h", "pinned"),
    ]  # fmt: skip
    assert document["verified"] is True
    assert document["pinned"] is True
    assert [rank["gpu"] for rank in document["concurrent"]] == [0, 1]
    # Gen 1 of 4 even while copying, as the stand-in has it: that is what a downgraded slot looks like.
    assert document["link"]["gen"] == 1
    assert any(warning["code"] == "link-downgrade" for warning in document["warnings"])
    for entry in document["numa"]["rates"]:
        assert entry["observed_node"] in (0, None)
        assert all(point["samples_s"] for point in entry["points"])
    assert driver.registered == {}


def test_pinning_that_fails_is_tried_with_less_and_said(driver: Driver) -> None:
    driver.refuse_above = 20 * MIB
    found = H2dFindings()
    measure_h2d(H2dSettings(sizes=(MIB, 64 * MIB), budget_s=0.3, least_samples=3), found)
    assert any("largest copy 16 MiB instead of 64 MiB" in entry["text"] for entry in found.notices.entries)
    assert driver.registered == {}


def test_a_gpu_that_another_process_owns_cannot_be_measured(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(device: int) -> Any:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might …")

    monkeypatch.setattr(torch.cuda, "Stream", taken)
    with pytest.raises(CannotRunHereError, match=r"probe h2d stopped: CUDA error: .*busy or unavailable, torch"):
        measure_h2d(H2dSettings(sizes=SIZES, budget_s=0.3), H2dFindings())


def test_layers_are_timed_between_events_and_neighbours_are_told(driver: Driver) -> None:
    found = PrefillFindings("layers")
    measure_layers(found, device="auto", decoder=read_decoder(DENSE), tp=1, lengths=(8, 16), seconds=60)
    assert [point.tokens for point in found.points] == [8, 16]
    assert found.details["dtype"] == "bfloat16"
    assert found.matrix_rate is not None
    assert [entry["code"] for entry in found.notices.entries].count("gpu-busy") == 2  # one other process on each GPU


def test_neighbours_are_not_counted_once_we_are_on_the_gpu_ourselves(driver: Driver) -> None:
    driver.initialised = True  # in a container NVML may list us under a pid that we do not know
    found = PrefillFindings("layers")
    measure_layers(found, device="cuda", decoder=read_decoder(DENSE), tp=1, lengths=(8,), seconds=1)
    assert not found.notices.has("gpu-busy")


def test_a_prompt_that_does_not_fit_leaves_the_shorter_ones(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(q: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        if q.shape[-2] > 8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64 GiB.\nmore")
        return q

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    found = PrefillFindings("layers")
    measure_layers(found, device="cuda", decoder=read_decoder(DENSE), tp=1, lengths=(8, 16, 32), seconds=60)
    assert [point.tokens for point in found.points] == [8]
    reduced = next(entry for entry in found.notices.entries if entry["code"] == "lengths-reduced")
    assert reduced["text"].startswith("prompts of 16 tokens and longer were left out (CUDA out of memory.")


def test_a_device_error_becomes_one_paragraph() -> None:
    with pytest.raises(CannotRunHereError) as raised, torch_env.device_faults("probe x"):
        raise RuntimeError("boom\nlong advice")
    assert str(raised.value).startswith("probe x stopped: boom, torch, check the device")
