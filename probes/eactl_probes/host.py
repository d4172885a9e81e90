"""``probe host``: what this machine allows a host tier, each fact with what it means."""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eactl import hostinfo
from eactl.units import GIB, MIB, gib
from eactl_probes.gpu import GpuFacts, nvml_session
from eactl_probes.host_checks import (
    Check,
    gpu_checks,
    huge_page_check,
    memlock_check,
    memory_check,
    numa_check,
    shm_check,
)
from eactl_probes.notices import Notices

_LOCK_STEPS_BYTES = (64 << 10, 1 * MIB, 8 * MIB, 64 * MIB, 256 * MIB, 1 * GIB)


@dataclass
class HostFindings:
    """All facts of the host, and the checks made of them."""

    memory: hostinfo.HostMemory
    available_bytes: int
    cgroup: hostinfo.CgroupMemory
    huge_pages: hostinfo.HugePages | None
    memlock_bytes: int | None
    locked_bytes: int | None
    shm: hostinfo.SharedMemory | None
    numa: tuple[hostinfo.NumaNode, ...]
    gpus: tuple[GpuFacts, ...]
    driver: str | None
    checks: list[Check] = field(default_factory=list)
    notices: Notices = field(default_factory=Notices)


def look(tier_bytes: int | None = None, ranks: int = 1) -> HostFindings:
    """Read all facts; with ``tier_bytes`` per rank judge whether ``ranks`` such tiers fit."""
    notices = Notices()
    with nvml_session(notices, expected=Path("/dev/nvidiactl").exists()) as nvml:
        gpus = nvml.gpus() if nvml else ()
        driver = nvml.driver_version() if nvml else None
    limit = hostinfo.locked_memory_limit_bytes()
    findings = HostFindings(
        memory=hostinfo.host_memory(),
        available_bytes=hostinfo.available_memory_bytes(),
        cgroup=hostinfo.cgroup_memory(),
        huge_pages=hostinfo.huge_pages(),
        memlock_bytes=limit,
        locked_bytes=largest_lock(limit),
        shm=hostinfo.shared_memory(),
        numa=hostinfo.numa_nodes(),
        gpus=gpus,
        driver=driver,
        notices=notices,
    )
    if not gpus:
        notices.add(
            "no-gpu", "no GPU is to be seen: link, driver and NUMA placement are not known", "run it on a GPU host"
        )
    tiers = tier_bytes * ranks if tier_bytes is not None else None
    findings.checks.extend([
        memory_check(findings.available_bytes, findings.cgroup, tiers),
        memlock_check(limit, tier_bytes, findings.locked_bytes),
        shm_check(findings.shm, tiers),
        huge_page_check(findings.huge_pages),
        numa_check(findings.numa, gpus, tiers),
        *gpu_checks(gpus),
    ])  # fmt: skip
    return findings


def largest_lock(limit_bytes: int | None) -> int | None:
    """The most memory that mlock took in growing steps, up to 1 GiB, a quarter of what is free, or just past the limit.

    Past the limit is enough to see whether it binds. None where mlock cannot be tried; all is unlocked again.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    room = hostinfo.available_memory_bytes() // 4
    worked = 0
    for size in _LOCK_STEPS_BYTES:
        if size > room or (limit_bytes is not None and worked > limit_bytes) or not _locks(libc, size):
            break
        worked = size
    return worked


def _locks(libc: ctypes.CDLL, size: int) -> bool:
    with mmap.mmap(-1, size) as area:
        view = ctypes.c_char.from_buffer(area)
        locked = bool(libc.mlock(ctypes.byref(view), ctypes.c_size_t(size)) == 0)
        if locked:
            libc.munlock(ctypes.byref(view), ctypes.c_size_t(size))
        del view  # the mapping cannot be closed while something points into it
    return locked


def host_fields(findings: HostFindings) -> dict[str, Any]:
    """The document of ``probe host``."""
    shm, pages = findings.shm, findings.huge_pages
    return {
        "available_to_tier_bytes": findings.available_bytes,
        "available_to_tier_gib": gib(findings.available_bytes),
        "memory": {**asdict(findings.memory), "cpus_usable": hostinfo.usable_cpus(), "cpu": hostinfo.cpu_model()},
        "cgroup": {**asdict(findings.cgroup), "available_bytes": findings.cgroup.available_bytes},
        "huge_pages": asdict(pages) if pages else None,
        "memlock_bytes": findings.memlock_bytes,
        "memlock_unlimited": findings.memlock_bytes is None,
        "locked_bytes_tried": findings.locked_bytes,
        "shm": asdict(shm) if shm else None,
        "numa": [asdict(node) for node in findings.numa],
        "gpus": [asdict(gpu) for gpu in findings.gpus],
        "driver": findings.driver,
        "checks": [{**asdict(check), "ok": check.level != "fail"} for check in findings.checks],
        "warnings": findings.notices.entries,
    }
