"""Reading a child's log for the reason it failed."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Killed)): (\S.*)")
# What these mean is known, and the log's own words would send people the wrong way.
_KNOWN = (
    (re.compile(r"address already in use", re.I), "a port is taken by another process: choose another with --port"),
    (re.compile(r"CUDA out of memory|OutOfMemoryError", re.I),
     "the GPU has too little free memory: lower --gpu-memory-utilization or --max-model-len"),
    (re.compile(r"No available memory for the cache blocks", re.I),
     "no GPU memory is left for the KV cache: raise --gpu-memory-utilization or lower --max-model-len"),
    (re.compile(r"cudaHostRegister|cudaHostAlloc|cudaErrorMemoryAllocation.*(host|pin)", re.I),
     "host memory cannot be pinned: raise the memlock limit (ulimit -l unlimited, LimitMEMLOCK=infinity)"),
    (re.compile(r"No space left on device.*(/dev/shm|shm)|(/dev/shm|shm).*No space left on device", re.I),
     "/dev/shm is too small: raise it (docker run --shm-size, a larger emptyDir) or remove what was left there"),  # noqa: S108
    (re.compile(r"torchvision::nms does not exist"),
     "torchvision does not fit this torch: pip uninstall torchvision torchaudio torchcodec"),
)  # fmt: skip
# Said by every parent of the process that failed; the reason is further up.
_ECHOES = ("Engine core initialization failed", "EngineDeadError", "EngineCore encountered", "SystemExit")


def reason(lines: Iterable[str]) -> str | None:
    """Why a process failed, from its last log lines: a known cause first, else the last error that is not an echo."""
    found = None
    for raw in lines:
        line = _ANSI.sub("", raw)
        for pattern, meaning in _KNOWN:
            if pattern.search(line):
                return meaning
        match = _ERROR.search(line)
        if match and not any(echo in line for echo in _ECHOES):
            found = f"{match.group(1)}: {match.group(2)}"
    return found[:400] if found else None
