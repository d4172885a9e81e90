"""Placing memory on a NUMA node and asking where it went, through the kernel's own calls."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Linux system call numbers; libnuma would be a dependency for these two calls alone.
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}  # set_mempolicy, get_mempolicy
_DEFAULT, _BIND = 0, 2
_NODE_OF_ADDRESS = 1 | 2  # MPOL_F_NODE | MPOL_F_ADDR
_MAX_NODES = 1024
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)
_NodeMask = ctypes.c_ulong * (_MAX_NODES // _WORD_BITS)
_MASK_BITS = ctypes.c_ulong(_MAX_NODES)


class NumaError(OSError):
    """The kernel refused to bind (no NUMA support, a seccomp filter, a node without memory)."""


@contextmanager
def allocating_on(node: int | None) -> Iterator[None]:
    """Pages first touched by this thread inside the block land on ``node``; no change for None.

    The policy that held before, for example numactl's, holds again afterwards. Raises NumaError when the kernel does
    not allow it.
    """
    if node is None:
        yield
        return
    mode, before = ctypes.c_int(_DEFAULT), _NodeMask()
    _call(1, ctypes.byref(mode), ctypes.byref(before), _MASK_BITS, None, ctypes.c_ulong(0))
    wanted = _NodeMask()
    wanted[node // _WORD_BITS] = 1 << (node % _WORD_BITS)
    _call(0, _BIND, ctypes.byref(wanted), _MASK_BITS)
    try:
        yield
    finally:
        # A mask is refused with the default policy and an empty one with any other.
        mask = ctypes.byref(before) if any(before) else None
        _call(0, mode.value, mask, _MASK_BITS if mask else ctypes.c_ulong(0))


def node_of(address: int) -> int | None:
    """The NUMA node that holds the page at ``address``, None where the kernel does not say."""
    node = ctypes.c_int(-1)
    try:
        _call(
            1, ctypes.byref(node), None, ctypes.c_ulong(0), ctypes.c_void_p(address), ctypes.c_ulong(_NODE_OF_ADDRESS)
        )
    except NumaError:
        return None
    return node.value if node.value >= 0 else None


def _call(which: int, *arguments: object) -> None:
    numbers = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if numbers is None:
        raise NumaError("memory placement is only known for Linux on x86_64 and aarch64")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(numbers[which]), *arguments) != 0:
        code = ctypes.get_errno()
        raise NumaError(code, "the kernel refused memory placement")
