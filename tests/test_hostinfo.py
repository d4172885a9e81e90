"""Memory facts read from made-up /proc and /sys trees, so that every kind of limit is tried on any machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from eactl import hostinfo
from eactl.hostinfo import HostMemory

MIB = 1 << 20
GIB = 1 << 30


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write ``files`` (path below root -> text) and return root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def plant_v2(root: Path, files: dict[str, str], inside: str = "/") -> Path:
    """Write ``files`` (path below the cgroup v2 mount -> text) for a process in the group ``inside``."""
    mount = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    return plant(root, {"proc/self/cgroup": f"0::{inside}\n", "sys/fs/cgroup/cgroup.procs": "", **mount})


@pytest.fixture
def big_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 512 GiB, 400 of them free, whatever runs the test."""
    monkeypatch.setattr(hostinfo, "host_memory", lambda: HostMemory(512 * GIB, 400 * GIB, 0))


def test_a_v2_limit_counts_and_droppable_page_cache_is_not_use(tmp_path: Path, big_machine: None) -> None:
    root = plant_v2(tmp_path, {
        "memory.max": f"{64 * GIB}\n",
        "memory.high": "max\n",
        "memory.current": f"{20 * GIB}\n",
        "memory.stat": f"anon {8 * GIB}\ninactive_file {12 * GIB}\n",
    })  # fmt: skip
    # 64 GiB limit, 20 in use of which 12 are clean cache: 64 - (20 - 12) = 56 left.
    assert hostinfo.available_memory_bytes(root) == 56 * GIB
    assert hostinfo.memory_limit_bytes(root) == 64 * GIB
    assert hostinfo.cgroup_memory(root).version == 2


def test_the_tightest_of_nested_limits_decides(tmp_path: Path, big_machine: None) -> None:
    pod = {"pod/memory.max": f"{10 * GIB}", "pod/memory.current": f"{7 * GIB}"}
    box = {"pod/box/memory.max": f"{8 * GIB}", "pod/box/memory.current": f"{1 * GIB}"}
    root = plant_v2(tmp_path, pod | box, inside="/pod/box")
    # The box has 7 GiB left of its own 8, but the pod above it only 3 of 10.
    assert hostinfo.available_memory_bytes(root) == 3 * GIB


def test_memory_high_is_a_limit_too(tmp_path: Path, big_machine: None) -> None:
    root = plant_v2(tmp_path, {"memory.max": "max", "memory.high": f"{5 * GIB}", "memory.current": "0"})
    assert hostinfo.available_memory_bytes(root) == 5 * GIB


def test_a_v1_limit_is_found_beside_a_v2_mount_without_memory(tmp_path: Path, big_machine: None) -> None:
    root = plant(tmp_path, {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu:/docker/abc\n0::/docker/abc\n",
        "sys/fs/cgroup/unified/cgroup.procs": "",
        "sys/fs/cgroup/memory/cgroup.procs": "",
        # A container sees its own cgroup as the mount's root; /docker/abc does not exist inside.
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{512 * MIB}",
        "sys/fs/cgroup/memory/memory.stat": f"cache 0\ntotal_inactive_file {256 * MIB}\n",
    })  # fmt: skip
    facts = hostinfo.cgroup_memory(root)
    assert (facts.version, facts.limit_bytes) == (1, 2 * GIB)
    assert facts.available_bytes == 2 * GIB - 256 * MIB


def test_no_limit_means_the_machine(tmp_path: Path, big_machine: None) -> None:
    v1_unlimited = plant(tmp_path, {
        "proc/self/cgroup": "4:memory:/\n",
        "sys/fs/cgroup/memory/cgroup.procs": "",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    })  # fmt: skip
    assert hostinfo.cgroup_memory(v1_unlimited).limit_bytes is None
    assert hostinfo.available_memory_bytes(v1_unlimited) == 400 * GIB
    assert hostinfo.available_memory_bytes(tmp_path / "no-proc-at-all") == 400 * GIB


def test_a_group_above_its_limit_has_nothing_left(tmp_path: Path, big_machine: None) -> None:
    root = plant_v2(tmp_path, {"memory.max": f"{1 * GIB}", "memory.current": f"{2 * GIB}"})
    assert hostinfo.available_memory_bytes(root) == 0


def test_huge_pages_and_numa_nodes_are_read_in_bytes(tmp_path: Path) -> None:
    root = plant(tmp_path, {
        "proc/meminfo": "HugePages_Total:      16\nHugePages_Free:       4\nHugepagesize:       2048 kB\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/node/node1/cpulist": "4-7,12\n",
        "sys/devices/system/node/node1/meminfo":
            "Node 1 MemTotal:  1024 kB\nNode 1 MemFree:   512 kB\nNode 1 Inactive(file):   64 kB\n",
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  2048 kB\nNode 0 MemFree:   1 kB\n",
        "sys/devices/system/node/node10/cpulist": "\n",
    })  # fmt: skip
    pages = hostinfo.huge_pages(root)
    assert pages is not None
    assert (pages.size_bytes, pages.total, pages.free, pages.transparent) == (2 * MIB, 16, 4, "madvise")
    assert [node.index for node in hostinfo.numa_nodes(root)] == [0, 1, 10]
    assert hostinfo.numa_nodes(root)[1].cpus == (4, 5, 6, 7, 12)
    assert hostinfo.numa_nodes(root)[1].free_bytes == (512 + 64) * 1024  # page cache that can be dropped is free


def test_offload_buffers_left_by_a_killed_server_are_named(tmp_path: Path) -> None:
    root = plant(tmp_path, {"dev/shm/vllm_offload_ab.mmap": "x" * 5000, "dev/shm/other": "y"})
    shm = hostinfo.shared_memory(root)
    assert shm is not None
    assert shm.leftover_files == ("vllm_offload_ab.mmap",)
    assert shm.leftover_bytes >= 5000
    assert hostinfo.shared_memory(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("address", "node"),
    [("00000000:3B:00.0", 1), ("0000:3b:00.0", 1), ("0000:af:00.0", None), ("0000:ff:00.0", None), ("", None)],
)
def test_the_numa_node_of_a_gpu_comes_from_its_pci_address(tmp_path: Path, address: str, node: int | None) -> None:
    root = plant(tmp_path, {
        "sys/bus/pci/devices/0000:3b:00.0/numa_node": "1\n",
        "sys/bus/pci/devices/0000:af:00.0/numa_node": "-1\n",  # firmware that does not say
    })  # fmt: skip
    assert hostinfo.pci_numa_node(address, root) == node


def test_this_machine_answers_without_a_made_up_tree() -> None:
    assert 0 < hostinfo.available_memory_bytes() <= hostinfo.memory_limit_bytes()
    assert hostinfo.usable_cpus() >= 1
    limit = hostinfo.locked_memory_limit_bytes()
    assert limit is None or limit >= 0
