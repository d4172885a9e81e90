"""Numbers of measurements as people read them: three figures, never an exponent."""

from __future__ import annotations


def three_figures(value: float) -> str:
    """``0.86``, ``5.57``, ``142``, ``2,910``; very small values keep their exponent (``2.9e-09``)."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if value and abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:.3g}"


def unfinished(status: str) -> str | None:
    """A line for the end of a text whose measurement did not run to its own; None for one that did."""
    if status == "complete":
        return None
    reason = "was interrupted" if status == "interrupted" else "stopped on an error (see the last line)"
    return f"NOT COMPLETE: the measurement {reason}. All of this comes from what was measured until then."


def duration(seconds: float) -> str:
    """``8.03 ms``, ``1.2 s``: three figures in the unit that keeps them above one."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{three_figures(seconds * factor)} {unit}"
    return f"{three_figures(seconds * 1e6)} µs"
