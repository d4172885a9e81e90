"""Watching a file's clock: a file keeps its own order, but time that goes back is worth a word."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

TOLERANCE_S = 1e-3


class ClockWatch:
    """Counts steps back in time, over batches; NaN (no time recorded) is passed over."""

    def __init__(self) -> None:
        self._latest_s = -np.inf
        self.backward_steps = 0

    def watch(self, arrivals_s: npt.NDArray[np.float64]) -> None:
        """Take the next arrivals in file order."""
        known = arrivals_s[~np.isnan(arrivals_s)]
        if len(known):
            steps = np.diff(known, prepend=self._latest_s)
            self.backward_steps += int((steps < -TOLERANCE_S).sum())
            self._latest_s = float(known[-1])

    def notice(self) -> tuple[str, str, str] | None:
        """Code, text and hint of a warning, or None."""
        if not self.backward_steps:
            return None
        times = "once" if self.backward_steps == 1 else f"{self.backward_steps} times"
        return (
            "time-goes-back",
            f"timestamps go back {times}; the order of the file was kept",
            "sort the file by time if its order is not the order of scheduling",
        )
