"""What a host's facts mean for a tier."""

# ruff: noqa: S108
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from eactl.hostinfo import CgroupMemory, HugePages, NumaNode, SharedMemory
from eactl.model.link import LinkState
from eactl_probes import host
from eactl_probes.gpu import GpuFacts
from eactl_probes.host_checks import (
    gpu_checks,
    huge_page_check,
    memlock_check,
    memory_check,
    numa_check,
    shm_check,
)
from tests.cli_runner import eactl

GIB = 1 << 30
MIB = 1 << 20
NO_CGROUP = CgroupMemory(None, None, None)


def gpu(**facts: Any) -> GpuFacts:
    given: dict[str, Any] = {
        "index": 0, "name": "NVIDIA H20", "uuid": "GPU-1", "pci_bus_id": None, "memory_total_bytes": 96 * GIB,
        "memory_used_bytes": 0, "link": LinkState(1, 16), "link_max": LinkState(5, 16), "numa_node": 0, "mig": False,
        "nvlink_c2c": False, "other_processes": 0,
    }  # fmt: skip
    return GpuFacts(**{**given, **facts})


def test_eight_ranks_of_a_512_gib_setting_are_4_tib() -> None:
    # Public report: the size is per rank; 512 on eight ranks asked for 4 TB and was killed without a word.
    check = memory_check(1000 * GIB, NO_CGROUP, 8 * 512 * GIB)
    assert check.level == "fail"
    assert "the tiers need 4 TiB in all, 3.02 TiB more than there is" in check.text


def test_a_containers_limit_is_named_as_the_reason() -> None:
    cgroup = CgroupMemory(2, 64 * GIB, 10 * GIB)
    check = memory_check(54 * GIB, cgroup, 60 * GIB)
    assert check.level == "fail"
    assert check.value == "54 GiB (cgroup limit 64 GiB)"
    assert memory_check(54 * GIB, cgroup, 50 * GIB).level == "warn"  # less than a tenth is left
    assert memory_check(54 * GIB, cgroup, 40 * GIB).level == "ok"


def test_a_memlock_limit_below_the_tier_fails_early(case: Callable[[str], Any]) -> None:
    report = case("b19_memlock.json")
    limit, want = report["rlimit_memlock_bytes"], report["want_gib"] * GIB
    check = memlock_check(limit, want, 64 * MIB)
    assert check.level == "fail"
    assert "a tier of 64 GiB per rank cannot be locked; locking 64 MiB worked" in check.text
    assert "LimitMEMLOCK=infinity" in (check.hint or "")


def test_a_memlock_limit_that_does_not_bind_is_no_fault() -> None:
    assert memlock_check(64 * MIB, 64 * GIB, 256 * MIB).level == "ok"  # more was locked than the limit says
    assert memlock_check(None, 64 * GIB, None).level == "ok"
    assert memlock_check(128 * GIB, 64 * GIB, None).level == "ok"
    assert memlock_check(64 * 1024, None, 64 * 1024).level == "warn"


def test_a_small_dev_shm_says_by_how_much(case: Callable[[str], Any]) -> None:
    case("b03_shm_preflight.json")  # presets of 1 to 8 GiB crashed at the start in containers
    small = SharedMemory("/dev/shm", 64 * MIB, 64 * MIB, (), 0)
    check = shm_check(small, 8 * GIB)
    # 8 GiB and a fifth for the engine's own queues: 9.6 GiB, less the 0.0625 there are.
    assert check.level == "fail"
    assert "needs 9.6 GiB, 9.54 GiB more than is free" in check.text
    assert shm_check(small, None).level == "warn"
    assert shm_check(SharedMemory("/dev/shm", 64 * GIB, 64 * GIB, (), 0), 8 * GIB).level == "ok"


def test_buffers_of_a_killed_server_are_named() -> None:
    shm = SharedMemory("/dev/shm", 64 * GIB, 4 * GIB, ("vllm_offload_x.mmap",), 60 * GIB)
    check = shm_check(shm, None)
    assert check.level == "warn"
    assert "1 buffer(s) of a killed server take 60 GiB" in check.text
    assert check.hint == "if no vLLM runs: rm /dev/shm/vllm_offload_x.mmap"
    assert shm_check(None, None).value == "absent"


def test_huge_pages() -> None:
    assert huge_page_check(HugePages(2 * MIB, 0, 0, "never")).level == "warn"
    assert huge_page_check(HugePages(2 * MIB, 100, 0, "madvise")).level == "warn"
    assert huge_page_check(HugePages(2 * MIB, 0, 0, "madvise")).level == "ok"
    assert huge_page_check(None).level == "ok"


def test_numa_nodes_too_small_for_the_tiers() -> None:
    nodes = (NumaNode(0, (0,), 256 * GIB, 200 * GIB), NumaNode(1, (1,), 256 * GIB, 100 * GIB))
    assert numa_check(nodes, (gpu(),), 150 * GIB).level == "warn"
    assert numa_check(nodes, (gpu(),), 50 * GIB).level == "ok"
    assert numa_check(nodes, (gpu(numa_node=None),), None).level == "warn"
    assert numa_check(nodes[:1], (), None).level == "ok"


def test_an_idle_link_reading_is_no_verdict_on_the_gpu() -> None:
    (check,) = gpu_checks((gpu(),))
    assert check.level == "ok"
    assert "PCIe up to gen 5 x16" in check.text
    assert "no verdict" in check.text
    (busy,) = gpu_checks((gpu(other_processes=2),))
    assert busy.level == "warn"
    (mig,) = gpu_checks((gpu(mig=True),))
    assert "MIG is on" in mig.text
    (grace,) = gpu_checks((gpu(nvlink_c2c=True, link_max=None),))
    assert grace.text == "NVLink-C2C to the host"


def test_locking_is_really_tried() -> None:
    locked = host.largest_lock(None)
    assert locked is None or locked in (0, 64 << 10, 1 * MIB, 8 * MIB, 64 * MIB, 256 * MIB, 1 * GIB)


def test_the_command_lists_facts_and_what_they_mean() -> None:
    result = eactl("probe", "host")
    assert result.returncode == 0, result.stderr
    for name in ("memory:", "locked memory:", "shared memory:", "huge pages:", "NUMA:"):
        assert name in result.stdout
    document = json.loads(eactl("probe", "host", "--json").stdout)
    assert document["schema"] == "eactl.host/1"
    assert document["available_to_tier_bytes"] > 0
    assert {check["name"] for check in document["checks"]} >= {"memory", "locked memory", "shared memory"}


def test_a_tier_that_does_not_fit_is_a_no() -> None:
    result = eactl("probe", "host", "--tier-gib", "100000", "--ranks", "8", "--json")
    assert result.returncode == 1
    assert "memory: the tiers need" in result.stderr
    document = json.loads(result.stdout)
    assert not next(check["ok"] for check in document["checks"] if check["name"] == "memory")
    assert eactl("probe", "host", "--tier-gib", "1MiB").returncode == 0
    assert eactl("probe", "host", "--tier-gib", "lots").returncode == 2
