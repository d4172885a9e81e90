"""Charts drawn with characters, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def lines(
    x: Sequence[float], y: Sequence[float], *, x_label: str, y_label: str, width: int,
    marks: Sequence[tuple[str, float]] = (), height: int = 12,
) -> str:  # fmt: skip
    """One curve through the points, with a vertical line per ``marks`` (label, x) that lies in range; no colours."""
    import plotille

    figure = plotille.Figure()
    figure.width, figure.height = max(30, width - 20), height
    figure.with_colors = False
    figure.register_label_formatter(float, _tick)
    figure.register_label_formatter(int, _tick)
    figure.set_x_limits(min_=0, max_=max(x) or 1)
    figure.set_y_limits(min_=0, max_=(max(y) or 1) * 1.05)
    figure.x_label, figure.y_label = x_label, y_label
    figure.plot(list(x), list(y))
    inside = [(label, at) for label, at in marks if 0 < at <= max(x)]
    for _, at in inside:
        figure.axvline(at / max(x))
    body = "\n".join(line.rstrip("\u2800 ") for line in figure.show(legend=False).splitlines())
    names = ", ".join(f"{label} {_short(at)}" for label, at in inside)
    return f"{body}\nVertical lines: {names}" if names else body


def _tick(value: float, chars: int, delta: float, left: bool = False) -> str:
    text = _short(value)
    return text.ljust(chars) if left else text.rjust(chars)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
