"""Charts drawn with characters, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def lines(
    x: Sequence[float], y: Sequence[float], *, title: str, width: int, marks: Sequence[tuple[str, float]] = (),
    height: int = 14,
) -> str:  # fmt: skip
    """One curve through the points, with a vertical line per ``marks`` (label, x) that lies in range; no colours."""
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(max(30, width), height)
    plotext.title(title)
    plotext.plot(list(x), list(y), marker="braille")
    for _, at in marks:
        if 0 < at <= max(x):
            plotext.vline(at)
    plotext.ylim(0, max(y) or 1)
    drawn = plotext.build()
    names = ", ".join(f"{label} {at:.3g}" for label, at in marks if 0 < at <= max(x))
    body = "\n".join(line.rstrip() for line in str(plotext.uncolorize(drawn)).splitlines())
    return f"{body}\nvertical lines: {names}" if names else body
