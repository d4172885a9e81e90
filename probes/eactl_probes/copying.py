"""Timed copies between host and device buffers: CUDA events where there is a GPU, memory to memory where not."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from eactl_probes.numa import allocating_on, node_of

if TYPE_CHECKING:
    import torch

    Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]  # (destination, source) of each copy

_PATTERN_BYTES = 1 << 20
_VERIFY_WHOLE_BYTES = 64 << 20


class Copier(Protocol):
    """One device's copy engine. Buffers are flat uint8 tensors whose pages are mapped."""

    index: int | None

    def host_buffer(self, size: int, *, pinned: bool, node: int | None) -> torch.Tensor:
        """Host memory, on ``node`` if given. Raises NumaError, RuntimeError (out of memory, cannot pin)."""
        ...

    def device_buffer(self, size: int) -> torch.Tensor:
        """Device memory."""
        ...

    def release(self, buffer: torch.Tensor) -> None:
        """Undo the pinning of a host buffer; the memory goes when the last reference does."""
        ...

    def start(self, pairs: Pairs) -> Callable[[], float]:
        """Begin the copies in order; the returned call waits for them and gives their seconds."""
        ...


def time_copies(copier: Copier, pairs: Pairs) -> float:
    """Seconds that the copies took, one after the other."""
    return copier.start(pairs)()


class CpuCopier:
    """Memory to memory: the "device" is another buffer in main memory."""

    def __init__(self, index: int | None = None) -> None:
        self.index = index

    def host_buffer(self, size: int, *, pinned: bool, node: int | None) -> torch.Tensor:
        del pinned  # nothing to pin for: no device reads this memory by itself
        return _touched(size, node)

    def device_buffer(self, size: int) -> torch.Tensor:
        return _touched(size, None)

    def release(self, buffer: torch.Tensor) -> None:
        del buffer

    def start(self, pairs: Pairs) -> Callable[[], float]:
        seconds: list[float] = []

        def work() -> None:
            begin = time.perf_counter()
            for destination, source in pairs:
                destination.copy_(source)
            seconds.append(time.perf_counter() - begin)

        if self.index is None:
            work()
            return seconds.pop
        # As one of several ranks: a thread each, as torch copies without holding the interpreter.
        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def wait() -> float:
            thread.join()
            return seconds.pop()

        return wait


class CudaCopier:
    """Copies on a stream of one GPU, timed by events on that stream."""

    def __init__(self, index: int) -> None:
        import torch

        self.index: int | None = index
        self._torch = torch
        self._stream = torch.cuda.Stream(device=index)
        self._registered: set[int] = set()

    def host_buffer(self, size: int, *, pinned: bool, node: int | None) -> torch.Tensor:
        buffer = _touched(size, node)
        if pinned:
            # Registering memory that is already placed keeps the node; cudaHostAlloc would choose for itself.
            with self._torch.cuda.device(self.index):
                status = self._torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), size, 0)
            if int(status) != 0:
                # The failure also stays behind as the "last error" that the next launch would report as its own.
                with suppress(RuntimeError):
                    self._torch.zeros(1, device=f"cuda:{self.index}")
                raise RuntimeError(f"cudaHostRegister of {size} bytes failed (CUDA error {int(status)})")
            self._registered.add(buffer.data_ptr())
        return buffer

    def device_buffer(self, size: int) -> torch.Tensor:
        return self._torch.zeros(size, dtype=self._torch.uint8, device=f"cuda:{self.index}")

    def release(self, buffer: torch.Tensor) -> None:
        if buffer.data_ptr() in self._registered:
            self._stream.synchronize()
            self._torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr())
            self._registered.discard(buffer.data_ptr())

    def start(self, pairs: Pairs) -> Callable[[], float]:
        torch = self._torch
        with torch.cuda.device(self.index):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self._stream.wait_stream(torch.cuda.current_stream())  # buffers are filled and zeroed on that one
            with torch.cuda.stream(self._stream):
                # A spinning kernel holds the stream while the copies are queued behind it, so that the time
                # between the events is the copies' and not the launches' (about 5 µs each from Python).
                torch.cuda._sleep(200_000 + 20_000 * len(pairs))
                begin.record(self._stream)
                for destination, source in pairs:
                    destination.copy_(source, non_blocking=True)
                end.record(self._stream)

        def wait() -> float:
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3

        return wait


def _touched(size: int, node: int | None) -> torch.Tensor:
    """``size`` bytes of host memory whose pages are mapped, on ``node`` if given."""
    import torch

    with allocating_on(node):
        buffer = torch.empty(size, dtype=torch.uint8)
        # A placement rule belongs to one thread, and torch would zero large buffers from several.
        ctypes.memset(buffer.data_ptr(), 0, size)
    return buffer


def fill(buffer: torch.Tensor) -> None:
    """Write bytes that differ within and between the buffer's mebibytes, so that a misplaced copy shows."""
    import torch

    size = buffer.numel()
    first = buffer[:_PATTERN_BYTES]
    first.copy_(torch.randint(0, 256, (first.numel(),), dtype=torch.uint8))
    done = first.numel()
    while done < size:  # doubling: a few large copies instead of one per mebibyte
        step = min(done, size - done)
        buffer[done : done + step].copy_(buffer[:step])
        done += step
    whole = size // _PATTERN_BYTES
    numbers = torch.arange(whole, dtype=torch.int64).view(torch.uint8).view(whole, 8)
    buffer[: whole * _PATTERN_BYTES].view(whole, _PATTERN_BYTES)[:, :8].copy_(numbers)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two buffers hold the same bytes: all of them up to 64 MiB, beyond that both ends and every 4,099th."""
    import torch

    if one.numel() <= _VERIFY_WHOLE_BYTES:
        return bool(torch.equal(one.cpu(), other.cpu()))
    edge = _PATTERN_BYTES
    views = [(b[:edge], b[-edge:], b[::4099]) for b in (one, other)]
    return all(bool(torch.equal(a.cpu(), b.cpu())) for a, b in zip(*views, strict=True))


def observed_node(buffer: torch.Tensor) -> int | None:
    """The NUMA node that holds a host buffer's first page."""
    return node_of(buffer.data_ptr())
