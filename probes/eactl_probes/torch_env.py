"""Getting torch and a device, or saying plainly why there is none."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eactl import hostinfo
from eactl.errors import CannotRunHereError, UsageError
from eactl_probes.notices import Notices

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cuda", "cpu")


def require_torch(what: str) -> Any:
    """The torch module. Raises CannotRunHereError with the line that installs it."""
    # On a busy CPU, threads that spin at torch's barriers wait for a time slice each time: many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ImportError as error:
        missing = error.name in (None, "torch")
        reason = "needs torch, which is not installed" if missing else f"needs torch, which does not load ({error})"
        raise CannotRunHereError(
            f"{what} {reason}", where=sys.executable, hint="install it with: pip install 'eactl[probes]'"
        ) from error
    return torch


def choose_device(asked: str, notices: Notices, what: str) -> str:
    """``cuda`` or ``cpu``. Raises UsageError for an unknown name, CannotRunHereError for cuda without a GPU."""
    if asked not in DEVICES:
        raise UsageError(f"unknown device {asked!r}", where="--device", hint=f"choose from {', '.join(DEVICES)}")
    torch = require_torch(what)
    if asked != "cpu":
        if torch.cuda.is_available():
            return "cuda"
        reason = _why_no_cuda(torch)
        if asked == "cuda":
            raise CannotRunHereError(f"no CUDA device: {reason}", where="--device cuda", hint="try --device cpu")
        notices.add(
            "cpu-device",
            f"no GPU here ({reason}): rates are from memory to memory and this CPU's arithmetic",
            "run on the serving machine, or give its figures (--bandwidth, --us-per-token)",
        )
    else:
        notices.add(
            "cpu-device",
            "--device cpu: rates are from memory to memory and this CPU's arithmetic, not those of a GPU",
            "leave --device out on a machine with a GPU",
        )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > hostinfo.usable_cpus():
        notices.add(
            "host-busy",
            f"other work keeps this machine busy (load {load:.1f} on {hostinfo.usable_cpus()} CPUs): rates are too low",
            "measure again when it is quiet",
        )
    return "cpu"


def _why_no_cuda(torch: Any) -> str:
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        return "this torch is a CPU build"
    return "torch finds no usable device: check nvidia-smi and CUDA_VISIBLE_DEVICES"


@contextmanager
def device_faults(what: str) -> Iterator[None]:
    """Make torch's errors (a GPU that is taken, lost or full) CannotRunHereErrors, so that what was found is kept."""
    try:
        yield
    except RuntimeError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CannotRunHereError(
            f"{what} stopped: {reason}", where="torch",
            hint="check the device (nvidia-smi, dmesg) and free its memory; EACTL_DEBUG=1 shows where it happened",
        ) from error  # fmt: skip


def device_name(device: str, index: int = 0) -> str:
    """The GPU's name, or the processor's."""
    if device == "cuda":
        import torch

        return str(torch.cuda.get_device_name(index))
    return hostinfo.cpu_model() or platform.machine()


def preferred_dtype(device: str) -> torch.dtype:
    """bfloat16 where the device multiplies it natively, else float32 on a CPU and float16 on an old GPU."""
    import torch

    if device == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability()[0] >= 8 else torch.float16
    flags = hostinfo.cpu_flags()
    return torch.bfloat16 if flags & {"amx_bf16", "avx512_bf16", "bf16"} else torch.float32


def environment(device: str) -> dict[str, object]:
    """What a reader needs to know to compare two results."""
    import torch

    facts: dict[str, object] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "host_cpu": hostinfo.cpu_model(),
        "host_cpus_usable": hostinfo.usable_cpus(),
        "kernel": platform.release(),
        "device_name": device_name(device),
    }
    if device == "cuda":
        facts |= {"cuda": torch.version.cuda, "gpus": torch.cuda.device_count()}
    else:
        facts["threads"] = torch.get_num_threads()
    return facts
