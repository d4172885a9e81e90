"""NVML facts from a stand-in library: no GPU is needed to see how each answer, and each refusal, is read."""

from __future__ import annotations

import inspect
import os
from types import SimpleNamespace
from typing import Any

import pytest

from eactl.model.link import LinkState
from eactl_probes import numa
from eactl_probes.gpu import GpuFacts, Nvml, nvml_session, pci_address
from eactl_probes.h2d import H2dFindings
from eactl_probes.h2d_document import h2d_fields
from eactl_probes.h2d_series import Series, SeriesPoint
from eactl_probes.notices import Notices
from eactl_probes.sampling import Samples


class NotSupportedError(Exception):
    """What the library raises for a question that the driver does not answer."""


class StandIn:
    """The few calls of pynvml that the probes make, over one GPU described by ``facts``; absent ones raise."""

    NVMLError = NotSupportedError

    def __init__(self, **facts: Any) -> None:
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name not in self.facts:
                raise NotSupportedError(name)
            return self.facts[name]

        return call


FULL = {
    "nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "gpu", "nvmlDeviceGetHandleByUUID": "gpu",
    "nvmlDeviceGetName": b"NVIDIA H20", "nvmlDeviceGetUUID": "GPU-abc",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=96 << 30, used=1 << 30),
    "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:FF:00.0"),
    "nvmlDeviceGetMaxPcieLinkGeneration": 4, "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrPcieLinkGeneration": 1, "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMigMode": [0, 0], "nvmlDeviceGetC2cModeInfoV1": SimpleNamespace(isC2cEnabled=0),
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1)],
    "nvmlSystemGetDriverVersion": "580.1",
}  # fmt: skip


def test_all_answers_are_read() -> None:
    nvml = Nvml(StandIn(**FULL))
    (facts,) = nvml.gpus()
    assert (facts.name, facts.uuid) == ("NVIDIA H20", "GPU-abc")
    assert (facts.link, facts.link_max) == (LinkState(1, 16), LinkState(4, 16))
    assert facts.other_processes == 1  # we are not another process
    assert (facts.mig, facts.nvlink_c2c) == (False, False)
    assert nvml.driver_version() == "580.1"


def test_what_the_driver_does_not_answer_is_unknown_not_zero() -> None:
    only = {name: FULL[name] for name in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")}
    (facts,) = Nvml(StandIn(**only)).gpus()
    assert facts == GpuFacts(0, "unknown GPU", "", None, None, None, None, None, None, None, None, None)
    assert Nvml(StandIn()).gpus() == ()


def test_a_mig_slice_has_the_link_of_its_board() -> None:
    slice_of = {**FULL, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": "board", "nvmlDeviceGetUUID": "MIG-1"}
    facts = Nvml(StandIn(**slice_of)).by_uuid("MIG-1", 0)
    assert facts is not None
    assert facts.link_max == LinkState(4, 16)


def test_a_driver_older_than_the_binding_leaves_the_fact_unknown() -> None:
    # nvidia-ml-py raises this for unversioned calls, and it is no NVMLError.
    class MismatchError(Exception):
        pass

    class Old(StandIn):
        NVMLLibraryMismatchError = MismatchError

        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetComputeRunningProcesses":

                def refuse(handle: Any) -> Any:
                    raise MismatchError

                return refuse
            return super().__getattr__(name)

    (facts,) = Nvml(Old(**FULL)).gpus()
    assert facts.other_processes is None
    assert facts.name == "NVIDIA H20"


def test_every_nvml_call_is_one_that_nvidia_ml_py_has() -> None:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py: pip install 'eactl[probes]'")
    asked: dict[str, int] = {}

    class Asking(StandIn):
        def __getattr__(self, name: str) -> Any:
            answer = super().__getattr__(name)

            def call(*arguments: Any) -> Any:
                asked[name] = len(arguments)
                return answer(*arguments)

            return call

    nvml = Nvml(Asking(**FULL))
    nvml.gpus(), nvml.driver_version(), nvml.by_uuid("GPU-abc", 0), nvml.link_now("GPU-abc")
    assert len(asked) >= 15
    for name, count in asked.items():
        inspect.signature(getattr(pynvml, name)).bind(*range(count))


def test_coherent_memory_of_a_gpu_is_no_host_node_and_its_link_is_no_pcie() -> None:
    coherent = {**FULL, "nvmlDeviceGetC2cModeInfoV1": SimpleNamespace(isC2cEnabled=1), "nvmlDeviceGetNumaNodeId": 4}
    (facts,) = Nvml(StandIn(**coherent)).gpus()
    assert (facts.nvlink_c2c, facts.memory_numa_node) == (True, 4)
    found = with_gpus(400e9, busy={0: LinkState(4, 1)})
    found.gpus[0] = facts
    document = h2d_fields(found, "complete")
    assert document["link"]["kind"] == "NVLink-C2C"
    assert "NVLink-C2C" in document["gpus"][0]["link_text"]
    assert not any(warning["code"].startswith("link-") for warning in document["warnings"])


def test_a_device_of_torch_alone_still_has_its_address() -> None:
    # Without NVML the address leads to the NUMA node; older versions of torch do not tell it.
    properties = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x17, pci_device_id=0)
    assert pci_address(properties) == "0000:17:00.0"
    assert pci_address(SimpleNamespace(pci_bus_id=0x17)) is None


def test_a_machine_with_a_gpu_but_without_nvml_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    notices = Notices()
    with nvml_session(notices, expected=True) as nvml:
        assert nvml is None
    assert notices.has("no-nvml")
    silent = Notices()
    with nvml_session(silent, expected=False):
        pass
    assert silent.entries == []


def with_gpus(*rates: float, busy: dict[int, LinkState] | None = None) -> H2dFindings:
    """Findings of a machine with one GPU per rate, measured at two sizes."""
    found = H2dFindings(device="cuda", links=busy or {})
    for index, rate in enumerate(rates):
        found.gpus.append(
            GpuFacts(
                index,
                "NVIDIA H20",
                f"GPU-{index}",
                None,
                None,
                None,
                LinkState(1, 16),
                LinkState(4, 16),
                0,
                None,
                None,
                0,
            )
        )
        for direction in ("h2d", "d2h"):
            points = [SeriesPoint(size, Samples((size / rate,) * 5)) for size in (1 << 20, 1 << 26)]
            found.series.append(Series(index, direction, "pinned", 0, points))  # type: ignore[arg-type]
    return found


def test_the_slowest_gpu_leads_the_document_and_is_flagged() -> None:
    document = h2d_fields(with_gpus(57.06e9, 14.2e9, 56.68e9, 57.07e9), "complete")
    assert document["bandwidth_gib_s"] == pytest.approx(14.2e9 / 2**30)
    assert document["pinned"] is True
    lagging = [warning for warning in document["warnings"] if warning["code"] == "lagging-rank"]
    assert len(lagging) == 1
    assert "rank 1 copies at 13.2 GiB/s alone" in lagging[0]["text"]


def test_a_downgraded_slot_is_told_from_an_idle_one() -> None:
    # Public report: gen 1 when idle is normal; x8 of x16 during a copy is not.
    document = h2d_fields(with_gpus(20e9, busy={0: LinkState(4, 8)}), "complete")
    assert document["link"] == {
        "kind": "PCIe", "gen": 4, "width": 8, "max_gen": 4, "max_width": 16, "idle_gen": 1, "idle_width": 16,
    }  # fmt: skip
    assert any(w["code"] == "link-downgrade" and "x8 of x16" in w["text"] for w in document["warnings"])
    idle = h2d_fields(with_gpus(20e9), "complete")
    assert (idle["link"]["gen"], idle["link"]["width"]) == (None, None)
    assert any(w["code"] == "link-idle" for w in idle["warnings"])
    assert not any(w["code"] == "link-downgrade" for w in idle["warnings"])


def test_memory_is_placed_where_the_kernel_is_asked_to() -> None:
    import ctypes
    import mmap

    from eactl import hostinfo

    nodes = hostinfo.numa_nodes()
    if not nodes:
        pytest.skip("the kernel lists no NUMA nodes")
    last = nodes[-1].index
    area = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(view := ctypes.c_char.from_buffer(area))
    try:
        with numa.allocating_on(last):
            ctypes.memset(address, 1, 1 << 20)
    except numa.NumaError as error:
        pytest.skip(f"placement is not allowed here: {error}")
    finally:
        found = numa.node_of(address)
        del view
        area.close()
    assert found in (last, None)


def test_the_policy_from_outside_holds_again_after_a_placement() -> None:
    import ctypes
    import platform

    from eactl import hostinfo

    nodes = hostinfo.numa_nodes()
    get_mempolicy = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
    if not nodes or get_mempolicy is None:
        pytest.skip("the kernel lists no NUMA nodes")

    def policy() -> tuple[int, list[int]]:
        mode, mask = ctypes.c_int(-1), (ctypes.c_ulong * 16)()
        call = ctypes.CDLL(None).syscall
        call(ctypes.c_long(get_mempolicy), ctypes.byref(mode), mask, ctypes.c_ulong(1024), None, ctypes.c_ulong(0))
        return mode.value, list(mask)

    try:
        with numa.allocating_on(nodes[0].index):  # as numactl --membind does around a whole process
            outside = policy()
            with numa.allocating_on(nodes[-1].index):
                pass
            assert policy() == outside
            assert outside[0] != 0
    except numa.NumaError as error:
        pytest.skip(f"placement is not allowed here: {error}")
    assert policy()[0] == 0


def test_a_node_that_does_not_exist_is_refused() -> None:
    with pytest.raises(numa.NumaError), numa.allocating_on(900):
        pass


def test_a_size_far_off_the_line_is_pointed_out() -> None:
    found = with_gpus(20e9)
    found.series[0].points.extend(
        [
            SeriesPoint(1 << 24, Samples(((1 << 24) / 20e9,) * 5)),
            SeriesPoint(1 << 28, Samples((2 * (1 << 28) / 20e9,) * 5)),
        ]
    )
    document = h2d_fields(found, "complete")
    # 256 MiB took twice what the others' line says: half of its time is off.
    assert any(w["code"] == "poor-fit" and "GPU 0 h2d pinned" in w["text"] for w in document["warnings"])
    assert not any(w["code"] == "poor-fit" for w in h2d_fields(with_gpus(20e9), "complete")["warnings"])
