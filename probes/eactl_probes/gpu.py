"""What NVML says about the GPUs: memory, link, NUMA node, MIG, other processes, driver. Everything may be absent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from eactl import hostinfo
from eactl.model.link import LinkState
from eactl_probes.notices import Notices

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU (or MIG slice) as NVML describes it; None is "NVML does not say"."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    link: LinkState | None
    link_max: LinkState | None
    numa_node: int | None
    mig: bool | None
    nvlink_c2c: bool | None
    other_processes: int | None
    memory_numa_node: int | None = None  # of the GPU's own memory, where the kernel lists it as a node


class Nvml:
    """An open NVML session."""

    def __init__(self, module: Any) -> None:
        self._nvml = module
        # AttributeError: a binding older than the question. The mismatch (no NVMLError): a driver older than it.
        mismatch = getattr(module, "NVMLLibraryMismatchError", module.NVMLError)
        self._unanswered = (module.NVMLError, mismatch, AttributeError)

    def driver_version(self) -> str | None:
        """The driver's version."""
        return self._ask(lambda: _text(self._nvml.nvmlSystemGetDriverVersion()))

    def gpus(self) -> tuple[GpuFacts, ...]:
        """All GPUs of the machine that this process may see through NVML, in NVML's order."""
        count = self._ask(lambda: int(self._nvml.nvmlDeviceGetCount())) or 0
        handles = [self._by_index(index) for index in range(count)]
        return tuple(self._facts(index, handle) for index, handle in enumerate(handles) if handle is not None)

    def _by_index(self, index: int) -> Any | None:
        return self._ask(lambda: self._nvml.nvmlDeviceGetHandleByIndex(index))

    def by_uuid(self, uuid: str, index: int) -> GpuFacts | None:
        """The GPU, or MIG slice, with this UUID (``GPU-…`` or ``MIG-…``), under the caller's number ``index``."""
        handle = self._handle(uuid)
        return None if handle is None else self._facts(index, handle)

    def link_now(self, uuid: str) -> LinkState | None:
        """Link generation and width at this moment: only meaningful while something is being copied."""
        handle = self._handle(uuid)
        return None if handle is None else self._link(self._parent(handle))

    def _handle(self, uuid: str) -> Any | None:
        for prefix in ("",) if uuid.startswith(("GPU-", "MIG-")) else ("GPU-", "MIG-"):  # torch leaves it out
            handle = self._by_full_uuid(prefix + uuid)
            if handle is not None:
                return handle
        return None

    def _by_full_uuid(self, uuid: str) -> Any | None:
        return self._ask(lambda: self._nvml.nvmlDeviceGetHandleByUUID(uuid))

    def _parent(self, handle: Any) -> Any:
        """The physical GPU of a MIG slice; the GPU itself otherwise. Links and PCI addresses belong to it."""
        return self._ask(lambda: self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)) or handle

    def _facts(self, index: int, handle: Any) -> GpuFacts:
        nvml, board = self._nvml, self._parent(handle)
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        pci = self._ask(lambda: _text(nvml.nvmlDeviceGetPciInfo(board).busId))
        maximum = self._ask(
            lambda: LinkState(
                int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(board)), int(nvml.nvmlDeviceGetMaxPcieLinkWidth(board))
            )
        )
        mig = self._ask(lambda: int(nvml.nvmlDeviceGetMigMode(board)[0]) == 1)
        return GpuFacts(
            index=index,
            name=self._ask(lambda: _text(nvml.nvmlDeviceGetName(handle))) or "unknown GPU",
            uuid=self._ask(lambda: _text(nvml.nvmlDeviceGetUUID(handle))) or "",
            pci_bus_id=pci,
            memory_total_bytes=int(memory.total) if memory else None,
            memory_used_bytes=int(memory.used) if memory else None,
            link=self._link(board),
            link_max=maximum,
            numa_node=hostinfo.pci_numa_node(pci) if pci else None,
            mig=mig,
            nvlink_c2c=self._ask(lambda: bool(nvml.nvmlDeviceGetC2cModeInfoV1(board).isC2cEnabled)),
            other_processes=self._ask(lambda: self._others(handle)),
            memory_numa_node=self._ask(lambda: int(nvml.nvmlDeviceGetNumaNodeId(board))),
        )

    def _link(self, handle: Any) -> LinkState | None:
        nvml = self._nvml
        return self._ask(
            lambda: LinkState(
                int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)), int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
            )
        )

    def _others(self, handle: Any) -> int:
        # In a container NVML reports pids of the host, so our own may not match: it is not there before we use the GPU.
        return sum(process.pid != os.getpid() for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))

    def _ask(self, question: Callable[[], T]) -> T | None:
        """The answer, None when this driver or GPU does not support the question."""
        try:
            return question()
        except self._unanswered:
            return None


def gpus_of_torch(nvml: Nvml | None, notices: Notices) -> Iterator[GpuFacts]:
    """The GPUs as torch numbers them, with what NVML adds. Other processes are counted before torch becomes one."""
    before = {facts.uuid: facts for facts in nvml.gpus()} if nvml else {}
    import torch

    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        uuid = str(getattr(properties, "uuid", ""))
        facts = nvml.by_uuid(uuid, index) if nvml and uuid else None
        if facts is None:
            total = int(properties.total_memory)
            pci = pci_address(properties)
            node = hostinfo.pci_numa_node(pci) if pci else None
            facts = GpuFacts(index, properties.name, uuid, pci, total, None, None, None, node, None, None, None)
        earlier = before.get(facts.uuid)
        facts = replace(facts, other_processes=earlier.other_processes if earlier else None)
        if facts.other_processes:
            notices.add(
                "gpu-busy", f"{facts.other_processes} other process(es) on GPU {index}: rates may be too low",
                "stop them, or read the result as the rate under their load",
            )  # fmt: skip
        # A GPU in MIG mode computes only through its slices, whether torch names the slice or the board.
        if facts.mig or facts.uuid.startswith("MIG-"):
            notices.add(
                "mig-slice", f"GPU {index} is a MIG slice: it shares the host link with the other slices",
                "measure with the neighbours as busy as in production",
            )  # fmt: skip
        yield facts


@contextmanager
def nvml_session(notices: Notices, *, expected: bool) -> Iterator[Nvml | None]:
    """An NVML session, or None with a warning where ``expected`` (there is a GPU, so NVML should be there too)."""
    try:
        import pynvml
    except ImportError:
        if expected:
            notices.add(
                "no-nvml", "nvidia-ml-py is not installed: link, NUMA node and other processes are not known",
                "pip install 'eactl[probes]'",
            )  # fmt: skip
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if expected:
            notices.add(
                "no-nvml", f"NVML does not start ({error}): link, NUMA node and other processes are not known",
                "give the container the driver's utility capability (NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
            )  # fmt: skip
        yield None
        return
    try:
        yield Nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()


def pci_address(properties: Any) -> str | None:
    """``0000:17:00.0`` from what torch knows of a device, None where its version does not say."""
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    parts = [getattr(properties, name, None) for name in names]
    if not all(isinstance(part, int) for part in parts):
        return None
    domain, bus, device = parts
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
