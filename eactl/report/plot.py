"""The size curve as a picture: PNG, SVG, or one self-contained HTML page."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import TYPE_CHECKING

from eactl.errors import CannotRunHereError, UsageError
from eactl.report.files import atomic_writer
from eactl.report.size import sentence, size_text
from eactl.sizing.result import SizeResult
from eactl.units import GIB

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = (".png", ".svg", ".html")


def check_plot_target(path: Path) -> None:
    """Raise before any work: UsageError for an unknown suffix, CannotRunHereError without matplotlib."""
    if path.suffix.lower() not in _KINDS:
        raise UsageError(f"no plot format for {path.name!r}", where="--plot", hint=f"end it in {', '.join(_KINDS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CannotRunHereError(
            "matplotlib is not installed", where="--plot", hint="pip install 'eactl[plot]'"
        ) from error


def write_size_plot(result: SizeResult, path: Path) -> None:
    """Draw the result's curves to ``path``, atomically; the suffix chooses the format."""
    kind = path.suffix.lower()
    figure = _figure(result)
    if kind == ".html":
        data = _page(result, _svg(figure)).encode()
    else:
        picture = io.BytesIO()
        figure.savefig(picture, format=kind[1:], metadata={"Date": None} if kind == ".svg" else None, dpi=144)
        data = picture.getvalue()
    with atomic_writer(path) as stream:
        stream.write(data)


def _figure(result: SizeResult) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    colours = ("#0b6e74", "#c8553d", "#7d7f7c")
    for order, colour in zip(result.orders, colours, strict=False):
        axes.plot(
            [size / GIB for size, _ in order.drawn],
            [computed / 1e6 for _, computed in order.drawn],
            color=colour,
            label=f"{order.name} order, LRU",
        )
    primary = result.orders[0]
    least = [(p.host_bytes_rank / GIB, p.least_computed_tokens / 1e6) for p in primary.curve
             if p.least_computed_tokens is not None]  # fmt: skip
    if least:
        axes.plot(
            *zip(*least, strict=True), "o:", ms=3, color=colours[0], label=f"{primary.name} order, no less possible"
        )
    advice = result.recommendation
    axes.axvline(result.pool.working_set_bytes_rank / GIB, color="#999999", ls="--", lw=1, label="working set (Eq. 5)")
    if advice.host_bytes_rank:
        axes.axvline(advice.host_bytes_rank / GIB, color="#222222", lw=1, label="recommended")
    axes.set(
        xlabel="host tier, GiB per rank", ylabel="computed prefill, million tokens", xlim=(0, None), ylim=(0, None)
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _svg(figure: Figure) -> str:
    import matplotlib as mpl

    picture = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "eactl", "svg.fonttype": "none"}):  # the same input gives the same file
        figure.savefig(picture, format="svg", metadata={"Date": None})
    text = picture.getvalue()
    return text[text.index("<svg") :]


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#222;max-width:60rem;margin:2rem auto;padding:0 1rem}
svg{width:100%;height:auto}pre{font:13px/1.45 ui-monospace,monospace;overflow-x:auto;background:#f6f6f4;padding:1rem}
"""


def _page(result: SizeResult, svg: str) -> str:
    title = f"Host KV tier for {result.model or 'this model'}"
    warnings = "".join(f"<li>{html.escape(warning['text'])}</li>" for warning in result.warnings)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>"
        f"<p>{html.escape(sentence(result.recommendation, result.orders[0]))}</p>{svg}"
        f"<pre>{html.escape(size_text(result, width=96, chart=False))}</pre>"
        f"{f'<h2>Notes on the input</h2><ul>{warnings}</ul>' if warnings else ''}</body></html>\n"
    )
