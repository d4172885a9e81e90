"""Datasheet peaks of common GPUs: dense BF16 matrix rate and host link, for planning before a machine is at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass

from eactl.errors import UsageError


@dataclass(frozen=True, slots=True)
class GpuDatasheet:
    """Peak dense BF16 TFLOP/s (no sparsity) and host-link GB/s (10^9, one direction) of one GPU."""

    name: str
    bf16_tflops: float
    link_gb_s: float
    link: str

    @property
    def flop_per_host_byte(self) -> float:
        """Peak FLOP that fit into the time of one byte over the host link (Table 1 of the paper)."""
        return self.bf16_tflops * 1e12 / (self.link_gb_s * 1e9)


# RTX 3090, H20 and H800 as in Table 1 of the paper; the others from the vendors' datasheets.
_TABLE = (
    GpuDatasheet("RTX 3090", 71, 32, "PCIe Gen4 x16"),
    GpuDatasheet("RTX 4090", 165.2, 32, "PCIe Gen4 x16"),
    GpuDatasheet("RTX 5090", 209.5, 64, "PCIe Gen5 x16"),
    GpuDatasheet("A10", 125, 32, "PCIe Gen4 x16"),
    GpuDatasheet("A40", 149.7, 32, "PCIe Gen4 x16"),
    GpuDatasheet("A100", 312, 32, "PCIe Gen4 x16"),
    GpuDatasheet("A800", 312, 32, "PCIe Gen4 x16"),
    GpuDatasheet("L4", 121, 32, "PCIe Gen4 x16"),
    GpuDatasheet("L40S", 362, 32, "PCIe Gen4 x16"),
    GpuDatasheet("H20", 148, 64, "PCIe Gen5 x16"),
    GpuDatasheet("H100", 989.5, 64, "PCIe Gen5 x16"),
    GpuDatasheet("H800", 989.5, 64, "PCIe Gen5 x16"),
    GpuDatasheet("H200", 989.5, 64, "PCIe Gen5 x16"),
    GpuDatasheet("GH200", 989.5, 450, "NVLink-C2C"),
    GpuDatasheet("B200", 2250, 64, "PCIe Gen5 x16"),
    GpuDatasheet("GB200", 2500, 450, "NVLink-C2C"),
)


def find_gpu(device_name: str) -> GpuDatasheet | None:
    """The datasheet of a device as the driver names it (``NVIDIA H100 80GB HBM3``), None when it is not listed.

    A MIG slice has none: it computes with a part of the GPU and shares the link.
    """
    words = re.sub(r"[^A-Z0-9]+", " ", device_name.upper()).split()
    if "MIG" in words:
        return None
    text = f" {' '.join(words)} "
    matches = [gpu for gpu in _TABLE if f" {gpu.name.upper()} " in text]
    return max(matches, key=lambda gpu: len(gpu.name), default=None)


def require_gpu(name: str, *, where: str = "--gpu") -> GpuDatasheet:
    """Like find_gpu. Raises UsageError that lists the known names."""
    gpu = find_gpu(name)
    if gpu is None:
        raise UsageError(
            f"no datasheet for {name!r}", where=where,
            hint=f"use --peak-tflops and --link, or one of {', '.join(gpu.name for gpu in _TABLE)}",
        )  # fmt: skip
    return gpu
