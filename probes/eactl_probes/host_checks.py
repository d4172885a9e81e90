"""What each fact of a host means for a tier. Pure: facts in, judgement out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eactl.hostinfo import CgroupMemory, HugePages, NumaNode, SharedMemory
from eactl.model.link import link_text
from eactl.units import GIB, human_bytes
from eactl_probes.gpu import GpuFacts

Level = Literal["ok", "warn", "fail"]

# A shared tier's file system also holds the queues and metadata of the engine.
_SHM_MARGIN = 1.2
_BIND = "bind each worker to its GPU's node (vLLM --numa-bind, or numactl); probe h2d --numa all shows the difference"


@dataclass(frozen=True, slots=True)
class Check:
    """One fact, its judgement for a tier, and what to do about it."""

    name: str
    level: Level
    value: str
    text: str
    hint: str | None = None


def memory_check(available_bytes: int, cgroup: CgroupMemory, tiers_bytes: int | None) -> Check:
    """Whether all ranks' tiers together fit into what is free, by the machine or by its cgroup."""
    limited = cgroup.limit_bytes is not None and cgroup.available_bytes == available_bytes
    who = f"cgroup limit {human_bytes(cgroup.limit_bytes or 0)}" if limited else "free memory"
    room = human_bytes(available_bytes)
    value = f"{room} ({who})"
    if tiers_bytes is None:
        return Check("memory", "ok", value, f"all tiers of this host together can take at most {room}")
    need = human_bytes(tiers_bytes)
    if tiers_bytes > available_bytes:
        short = human_bytes(tiers_bytes - available_bytes)
        text = f"the tiers need {need} in all, {short} more than there is"
        return Check("memory", "fail", value, text, "give fewer GiB per rank, or raise the container's memory limit")
    if tiers_bytes > 0.9 * available_bytes:
        return Check(
            "memory", "warn", value, f"the tiers need {need} and leave less than 10 % to all else", "leave some"
        )
    return Check("memory", "ok", value, f"the tiers take {need} of it")


def memlock_check(limit_bytes: int | None, tier_bytes: int | None, locked_bytes: int | None) -> Check:
    """Whether a tier's buffer can be locked. ``locked_bytes`` is the most that was really locked in a trial."""
    value = "unlimited" if limit_bytes is None else human_bytes(limit_bytes)
    tried = "" if locked_bytes is None else f"; locking {human_bytes(locked_bytes)} worked"
    if limit_bytes is None:
        return Check("locked memory", "ok", value, f"buffers of any size can be locked{tried}")
    if locked_bytes is not None and locked_bytes > limit_bytes:
        return Check("locked memory", "ok", value, f"the limit does not bind this process (it is privileged){tried}")
    hint = "set LimitMEMLOCK=infinity for containerd.service or docker.service, or --ulimit memlock=-1"
    if tier_bytes is not None and tier_bytes > limit_bytes:
        size = human_bytes(tier_bytes)
        text = f"a tier of {size} per rank cannot be locked{tried}: pinning it fails, at the latest over RDMA or in WSL"
        return Check("locked memory", "fail", value, text, hint)
    if tier_bytes is not None:
        return Check("locked memory", "ok", value, f"a tier of {human_bytes(tier_bytes)} can be locked{tried}")
    level: Level = "warn" if limit_bytes < GIB else "ok"
    return Check(
        "locked memory", level, value, f"nothing larger can be locked{tried}; CUDA on Linux pins past it", hint
    )


def shm_check(shm: SharedMemory | None, tiers_bytes: int | None) -> Check:
    """Whether shared memory holds a tier (vLLM's native offloading, LMCache's server), and what was left there."""
    if shm is None:
        text = "vLLM's native offloading and LMCache's server share memory through it"
        return Check("shared memory", "warn", "absent", text, "mount a tmpfs at /dev/shm")
    value = f"{human_bytes(shm.free_bytes)} free of {human_bytes(shm.total_bytes)} in {shm.path}"
    if shm.leftover_files:
        text = f"{len(shm.leftover_files)} buffer(s) of a killed server take {human_bytes(shm.leftover_bytes)}"
        return Check("shared memory", "warn", value, text, f"if no vLLM runs: rm {shm.path}/{shm.leftover_files[0]}")
    grow = "docker run --shm-size, or an emptyDir with medium: Memory and a sizeLimit"
    need = None if tiers_bytes is None else int(tiers_bytes * _SHM_MARGIN)
    if need is not None and need > shm.free_bytes:
        text = f"a shared tier needs {human_bytes(need)}, {human_bytes(need - shm.free_bytes)} more than is free"
        return Check("shared memory", "fail", value, text, grow)
    if shm.total_bytes < GIB:
        return Check("shared memory", "warn", value, "too small for a tier; containers default to 64 MiB", grow)
    return Check("shared memory", "ok", value, f"a shared tier can take up to {human_bytes(shm.free_bytes)}")


def huge_page_check(pages: HugePages | None) -> Check:
    """Whether a tier's buffer can use huge pages, which make allocating and pinning it faster."""
    if pages is None:
        return Check("huge pages", "ok", "unknown", "the kernel does not say")
    value = f"{pages.free} free of {pages.total} x {human_bytes(pages.size_bytes)}"
    value += f", transparent: {pages.transparent or 'unknown'}"
    if pages.total and not pages.free:
        return Check("huge pages", "warn", value, "all explicit huge pages are taken", "raise vm.nr_hugepages")
    if not pages.total and pages.transparent == "never":
        text = "a large tier is mapped 4 KiB at a time: slow to allocate and to pin"
        return Check("huge pages", "warn", value, text, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    return Check("huge pages", "ok", value, "a large tier can be mapped in large pages")


def numa_check(nodes: Sequence[NumaNode], gpus: Sequence[GpuFacts], tiers_bytes: int | None) -> Check:
    """Whether the tier's memory can be near its GPU."""
    if len(nodes) < 2:
        return Check("NUMA", "ok", "one node" if nodes else "unknown", "all memory is equally near")
    value = ", ".join(
        f"node {node.index}: {human_bytes(node.free_bytes)} free of {human_bytes(node.total_bytes)}" for node in nodes
    )
    if tiers_bytes is not None and tiers_bytes > min(node.free_bytes for node in nodes):
        return Check(
            "NUMA", "warn", value, "the tiers do not fit into one node: a part will be far from its GPU", _BIND
        )
    homes = sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None})
    if not homes:
        return Check("NUMA", "warn", value, "which node each GPU hangs on is not known", "nvidia-smi topo -m")
    return Check("NUMA", "ok", value, f"the GPUs hang on node {', '.join(map(str, homes))}; {_BIND}")


def gpu_checks(gpus: Sequence[GpuFacts]) -> list[Check]:
    """One check per GPU: its link (only read idle here), other processes, MIG."""
    return [_gpu_check(gpu) for gpu in gpus]


def _gpu_check(gpu: GpuFacts) -> Check:
    name = f"GPU {gpu.index}"
    value = f"{gpu.name}, NUMA node {'unknown' if gpu.numa_node is None else gpu.numa_node}"
    if gpu.nvlink_c2c:
        link = "NVLink-C2C to the host"
    elif gpu.link_max:
        idle = link_text(None, gpu.link_max, gpu.link)[1]
        link = f"PCIe up to gen {gpu.link_max.gen} x{gpu.link_max.width}; {idle}"
    else:
        link = "its link is not known"
    if gpu.other_processes:
        return Check(name, "warn", value, f"{gpu.other_processes} process(es) use it; {link}", "stop them to measure")
    if gpu.mig:
        return Check(
            name, "warn", value, f"MIG is on, slices share the host link; {link}", "measure with all slices busy"
        )
    return Check(name, "ok", value, link)
