"""Buffers for timed copies, as large as asked for or as memory and pinning allow, and always given back."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eactl import hostinfo
from eactl.errors import CannotRunHereError
from eactl.units import MIB, human_bytes
from eactl_probes.copying import Copier, CpuCopier
from eactl_probes.h2d_series import Buffers
from eactl_probes.notices import Notices
from eactl_probes.numa import NumaError

if TYPE_CHECKING:
    import torch

SMALLEST_BUFFER_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Placement:
    """Kind of host memory: pinned or pageable, on a NUMA node or wherever the kernel likes."""

    pinned: bool
    node: int | None


@contextmanager
def buffers(copier: Copier, wanted_bytes: int, placement: Placement, notices: Notices) -> Iterator[Buffers]:
    """Host and device buffers of ``wanted_bytes``, or of half, a quarter … where memory or pinning is short (noted).

    Raises CannotRunHereError when not even 16 MiB can be had.
    """
    size = _fitting(copier, wanted_bytes, placement.node)
    while True:
        try:
            host = _host_buffer(copier, size, placement, notices)
            try:
                device = copier.device_buffer(size)
            except RuntimeError:
                copier.release(host)
                raise
            break
        except RuntimeError as error:  # torch's OutOfMemoryError is one
            if size // 2 < SMALLEST_BUFFER_BYTES:
                raise CannotRunHereError(
                    f"no buffer of {human_bytes(size)} can be had ({error})", where="probe h2d",
                    hint="free memory, or raise the locked-memory limit (eactl probe host)",
                ) from error  # fmt: skip
            size //= 2
    if size < wanted_bytes:
        notices.add(
            "sizes-reduced",
            f"largest copy {human_bytes(size)} instead of {human_bytes(wanted_bytes)}: not enough free memory",
            "free host or GPU memory to measure the larger sizes",
        )
    try:
        yield Buffers(host, device)
    finally:
        copier.release(host)
        del host, device
        gc.collect()


@contextmanager
def buffers_for_all(
    copiers: Sequence[Copier], wanted_bytes: int, placements: Sequence[Placement], notices: Notices
) -> Iterator[list[Buffers]]:
    """One pair of buffers for each copier."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(buffers(copier, wanted_bytes, placement, notices))
            for copier, placement in zip(copiers, placements, strict=True)
        ]


def _host_buffer(copier: Copier, size: int, placement: Placement, notices: Notices) -> torch.Tensor:
    try:
        return copier.host_buffer(size, pinned=placement.pinned, node=placement.node)
    except NumaError as error:
        notices.add(
            "numa-refused", f"host memory could not be placed on NUMA node {placement.node} ({error.strerror})",
            "allow set_mempolicy in the container (--cap-add SYS_NICE), or run under numactl --membind",
        )  # fmt: skip
        return copier.host_buffer(size, pinned=placement.pinned, node=None)


def _fitting(copier: Copier, wanted: int, node: int | None) -> int:
    """The largest half, quarter … of ``wanted`` that leaves half of the free memory alone, on ``node`` if given."""
    room = hostinfo.available_memory_bytes() // 2
    # A process that is bound to a full node is killed, however much the others have.
    room = min([room, *(place.free_bytes // 2 for place in hostinfo.numa_nodes() if place.index == node)])
    if isinstance(copier, CpuCopier):
        room //= 2  # both ends of the copy are in main memory
    elif copier.index is not None:
        import torch

        room = min(room, torch.cuda.mem_get_info(copier.index)[0] * 8 // 10)
    while wanted > room and wanted // 2 >= SMALLEST_BUFFER_BYTES:
        wanted //= 2
    return wanted
