"""What this machine's memory allows: free memory, cgroup limits, locked memory, huge pages, /dev/shm, NUMA nodes.

Values only. Every reader takes ``root`` so that a test can point it at a made-up ``/proc`` and ``/sys``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, nothing is written there
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes "no limit" as a number near 2^63


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """The tightest memory limit among this process's control groups; ``limit_bytes`` is None where there is none."""

    version: int | None
    limit_bytes: int | None
    used_bytes: int | None

    @property
    def available_bytes(self) -> int | None:
        """Bytes left below the limit, page cache that can be dropped not counted as used."""
        if self.limit_bytes is None:
            return None
        return max(0, self.limit_bytes - (self.used_bytes or 0))


@dataclass(frozen=True, slots=True)
class HugePages:
    """Explicit huge pages of the default size, and whether transparent ones are used."""

    size_bytes: int
    total: int
    free: int
    transparent: str | None


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The file system at ``path`` (/dev/shm) and offload buffers that a killed server left in it."""

    path: str
    total_bytes: int
    free_bytes: int
    leftover_files: tuple[str, ...]
    leftover_bytes: int


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node: its processors and its memory; page cache that can be dropped counts as free."""

    index: int
    cpus: tuple[int, ...]
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Physical memory: what is there, and what could be had without swapping."""

    total_bytes: int
    available_bytes: int
    swap_total_bytes: int


def host_memory() -> HostMemory:
    """Memory of the whole machine, as psutil reports it (MemAvailable on Linux)."""
    import psutil

    memory = psutil.virtual_memory()
    try:
        swap_total = psutil.swap_memory().total
    except (OSError, RuntimeError):  # some containers hide /proc/vmstat
        swap_total = 0
    return HostMemory(memory.total, memory.available, swap_total)


def available_memory_bytes(root: Path = ROOT) -> int:
    """Bytes that a tier could take here now: free memory, or what the cgroup limit leaves if that is less."""
    available = host_memory().available_bytes
    left = cgroup_memory(root).available_bytes
    return available if left is None else min(available, left)


def memory_limit_bytes(root: Path = ROOT) -> int:
    """Bytes this process may ever hold: physical memory, or the cgroup limit if that is less."""
    total = host_memory().total_bytes
    limit = cgroup_memory(root).limit_bytes
    return total if limit is None else min(total, limit)


def cgroup_memory(root: Path = ROOT) -> CgroupMemory:
    """The limit that leaves this process the least memory, over its own cgroup and all above it (v2 and v1)."""
    version: int | None = None
    tightest: tuple[int, int, int] | None = None  # bytes left, limit, used
    for level_version, folder in _cgroup_levels(root):
        version = version or level_version
        limit = _cgroup_limit(folder, level_version)
        if limit is None:
            continue
        used = _cgroup_used(folder, level_version)
        if tightest is None or limit - used < tightest[0]:
            tightest = (limit - used, limit, used)
            version = level_version
    return CgroupMemory(version, tightest[1] if tightest else None, tightest[2] if tightest else None)


def _cgroup_levels(root: Path) -> Iterator[tuple[int, Path]]:
    """Every memory cgroup folder of this process that can be seen, innermost first."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            version, mounts = 2, [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "memory" in controllers.split(","):
            version, mounts = 1, [root / "sys/fs/cgroup/memory"]
        else:
            continue
        mount = next((m for m in mounts if (m / "cgroup.procs").exists()), None)
        if mount is None:
            continue
        # Inside a container the path may be the host's and not exist here: then only the mount's root is visible.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            folder = mount.joinpath(*parts[:depth])
            if folder.is_dir():
                yield version, folder


def _cgroup_limit(folder: Path, version: int) -> int | None:
    # memory.high does not kill but throttles to a crawl, so a tier must stay below it as well.
    names = ("memory.max", "memory.high") if version == 2 else ("memory.limit_in_bytes",)
    limits = [int(text) for name in names if (text := _read(folder / name).strip()).isdigit()]
    return min((limit for limit in limits if limit < _UNLIMITED_BYTES), default=None)


def _cgroup_used(folder: Path, version: int) -> int:
    usage = _read(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes")).strip()
    stat = dict(line.split(None, 1) for line in _read(folder / "memory.stat").splitlines() if " " in line)
    # Clean page cache is given back under pressure: the kernel's own MemAvailable does not count it either.
    cache = stat.get("inactive_file" if version == 2 else "total_inactive_file", "0")
    return max(0, int(usage or 0) - int(cache)) if usage.isdigit() else 0


def locked_memory_limit_bytes() -> int | None:
    """RLIMIT_MEMLOCK of this process (the soft limit), None for no limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def huge_pages(root: Path = ROOT) -> HugePages | None:
    """Explicit and transparent huge pages, None where the kernel does not say."""
    fields = _meminfo(_read(root / "proc/meminfo"))
    if "Hugepagesize" not in fields:
        return None
    chosen = re.search(r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    return HugePages(
        size_bytes=fields["Hugepagesize"],
        total=fields.get("HugePages_Total", 0),
        free=fields.get("HugePages_Free", 0),
        transparent=chosen.group(1) if chosen else None,
    )


def shared_memory(root: Path = ROOT) -> SharedMemory | None:
    """Size and room of /dev/shm, and offload buffers left there by a server that was killed; None without one."""
    path = root / _SHARED_MEMORY.lstrip("/")
    try:
        space = os.statvfs(path)
        # vLLM's native offloading maps its host buffer as vllm_offload_*.mmap and cannot unlink it after SIGKILL.
        leftovers = sorted(path.glob("vllm_offload_*.mmap"))
        size = sum(file.stat().st_blocks * 512 for file in leftovers)
    except OSError:
        return None
    names = tuple(file.name for file in leftovers)
    return SharedMemory(_SHARED_MEMORY, space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail, names, size)


def numa_nodes(root: Path = ROOT) -> tuple[NumaNode, ...]:
    """The NUMA nodes in order, empty where the system does not list them."""
    nodes = []
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda f: int(f.name[4:])):
        memory = _meminfo(re.sub(r"(?m)^Node \d+ ", "", _read(folder / "meminfo")))
        cpus = parse_cpu_list(_read(folder / "cpulist"))
        free = memory.get("MemFree", 0) + memory.get("Inactive(file)", 0)
        nodes.append(NumaNode(int(folder.name[4:]), cpus, memory.get("MemTotal", 0), free))
    return tuple(nodes)


def pci_numa_node(pci_bus_id: str, root: Path = ROOT) -> int | None:
    """The NUMA node a PCI device hangs on, None where the firmware does not say (−1) or there is no such device."""
    # NVML writes an eight-digit domain, sysfs a four-digit one.
    domain, _, rest = pci_bus_id.lower().partition(":")
    text = _read(root / "sys/bus/pci/devices" / f"{domain[-4:].rjust(4, '0')}:{rest}" / "numa_node").strip()
    return int(text) if text.isdigit() else None


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The kernel's ``0-3,8`` as (0, 1, 2, 3, 8)."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def usable_cpus() -> int:
    """Processors this process may run on (affinity, not the machine's count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model(root: Path = ROOT) -> str | None:
    """The processor's name."""
    match = re.search(r"(?m)^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo"))
    return match.group(1).strip() if match else None


def cpu_flags(root: Path = ROOT) -> frozenset[str]:
    """Instruction-set flags of the processor (x86 ``flags``, Arm ``Features``), empty where unknown."""
    match = re.search(r"(?m)^(?:flags|Features)\s*:\s*(.+)$", _read(root / "proc/cpuinfo"))
    return frozenset(match.group(1).split()) if match else frozenset()


def _meminfo(text: str) -> dict[str, int]:
    """Fields of a meminfo file; those in kB as bytes, counts as they are."""
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            fields[name.strip()] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return fields


def _read(path: Path) -> str:
    """The file's text, empty when it cannot be read: an absent fact is not an error here."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
