"""Timing arithmetic on a device, and the rate at which it multiplies matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eactl.model.obr import Figure
from eactl_probes.notices import ignore_progress
from eactl_probes.sampling import Budget, Effort, Samples, sample

if TYPE_CHECKING:
    import torch

_SIDES = {"cuda": (2048, 4096, 8192), "cpu": (512, 1024, 2048)}


def time_work(device: str, work: Callable[[], object]) -> float:
    """Seconds the device spent on ``work``: between events on a GPU, by the clock on a CPU."""
    if device == "cpu":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)  # about half a millisecond in which the kernels are queued behind it
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


@dataclass(frozen=True, slots=True)
class MatrixRate:
    """FLOP/s of the best square product, its side and data type, and the times it comes from."""

    flop_per_s: Figure
    side: int
    dtype: str
    samples: Samples


def measure_matrix_rate(
    device: str, dtype: torch.dtype, seconds: float, progress: Callable[[str], None] = ignore_progress
) -> MatrixRate:
    """Multiply square matrices of several sizes; the fastest size is what this device can do (2·n³ FLOP each).

    After the first size, one whose few samples would not fit into ``seconds`` is left out.
    """
    import torch

    budget = Budget(seconds)
    best: MatrixRate | None = None
    sides = _SIDES[device]
    for position, side in enumerate(sides):
        # Two warm-ups and five samples, of work that grows with the side's third power.
        if best is not None and 7 * best.samples.median_s * (side / best.side) ** 3 > budget.left_s:
            break
        progress(f"matrix product of {side} x {side}")
        left = random_tensor((side, side), dtype, device)
        right = random_tensor((side, side), dtype, device)
        out = torch.empty((side, side), dtype=dtype, device=device)

        def multiply(left: torch.Tensor = left, right: torch.Tensor = right, out: torch.Tensor = out) -> None:
            torch.mm(left, right, out=out)

        effort = Effort(budget.share(len(sides) - position), least=5, most=100)
        samples = sample(lambda work=multiply: time_work(device, work), effort)  # type: ignore[misc]
        flop = 2.0 * side**3
        rate = Figure(flop / samples.median_s, flop / samples.high_s, flop / samples.low_s, "measured")
        found = MatrixRate(rate, side, str(dtype).removeprefix("torch."), samples)
        if best is None or found.flop_per_s.value > best.flop_per_s.value:
            best = found
    if best is None:
        raise AssertionError("at least one size is always measured")
    return best


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random values of the size of weights; large tensors repeat a mebi of them, as drawing more takes longer than
    the whole measurement and changes nothing that is timed."""
    import torch

    count = 1
    for side in shape:
        count *= side
    flat = torch.empty(count, dtype=dtype, device=device)
    done = min(count, 1 << 20)
    flat[:done] = torch.randn(done, device=device).mul_(0.02).to(dtype)
    while done < count:
        step = min(done, count - done)
        flat[done : done + step].copy_(flat[:step])
        done += step
    return flat.view(shape)
