"""Stacked bars of prompt tokens per turn, as SVG that takes its colours from the page around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from eactl.units import human_count

if TYPE_CHECKING:
    from eactl.condense.result import Turn

MOST_BARS = 600
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 270, 64, 40, 16
_WIDEST_BAR = 64


def turn_chart(turns: Sequence[Turn]) -> str:
    """Bars per turn: stable, fresh and lost stacked, what was removed dashed above; a mark over each break."""
    shown = turns[:MOST_BARS]
    highest = max((turn.prompt_tokens + turn.removed_tokens for turn in shown), default=0) or 1
    step = _step(highest)
    top = -(-highest // step) * step
    wide = min(_WIDEST_BAR * 1.25, (_WIDTH - _LEFT) / max(1, len(shown)))
    scale = (_HEIGHT - _BOTTOM - _TOP) / top
    note = f'<p class="soft">The first {MOST_BARS} of {len(turns):,} turns.</p>' if len(turns) > len(shown) else ""
    return (
        f'<div class="scroll"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Prompt tokens per turn">'
        f"{''.join(_axis(top, step, scale))}{''.join(_bars(shown, wide, scale))}</svg></div>{note}"
    )


def _step(highest: int) -> int:
    """Distance of the lines: 1, 2 or 5 times a power of ten, so that there are three to seven."""
    power = 1
    while highest > 60 * power:
        power *= 10
    return next((factor * power for factor in (1, 2, 5) if highest <= 6 * factor * power), 10 * power)


def _round(tokens: int) -> str:
    return human_count(tokens).replace(".0", "")


def _axis(top: int, step: int, scale: float) -> Iterator[str]:
    base = _HEIGHT - _BOTTOM
    for tokens in range(0, top + 1, step):
        y = base - tokens * scale
        yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_round(tokens)}</text>'
    yield f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">turn</text>'
    middle = (base + _TOP) / 2
    turned = f'text-anchor="middle" transform="rotate(-90 12 {middle:.0f})"'
    yield f'<text x="12" y="{middle:.0f}" {turned}>prompt tokens</text>'


def _bars(turns: Sequence[Turn], wide: float, scale: float) -> Iterator[str]:
    base = _HEIGHT - _BOTTOM
    every = max(1, -(-len(turns) // 24))
    for number, turn in enumerate(turns):
        x, width = _LEFT + number * wide + wide * 0.1, max(0.8, wide * 0.8)
        lost = min(turn.lost_tokens, turn.fresh_tokens)
        y = float(base)
        yield f"<g><title>{escape(_label(turn))}</title>"
        for kind, tokens in (("stable", turn.stable_tokens), ("fresh", turn.fresh_tokens - lost), ("lost", lost),
                             ("removed", turn.removed_tokens)):  # fmt: skip
            height = tokens * scale
            y -= height
            if height > 0:
                yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        if turn.is_break:
            at = x + width / 2
            yield f'<path class="lost" d="M{at - 4:.1f} {y - 9:.1f}h8l-4 6z"/>'
        yield "</g>"
        if number % every == 0:
            yield f'<text x="{x + width / 2:.1f}" y="{base + 16}" text-anchor="middle">{turn.turn}</text>'


def _label(turn: Turn) -> str:
    cause = f"{turn.cause} ({turn.kind})" if turn.kind else turn.cause
    parts = [f"{turn.prompt_tokens:,} prompt tokens", f"{turn.stable_tokens:,} stable", f"{turn.fresh_tokens:,} fresh"]
    if turn.lost_tokens:
        parts.append(f"of which {turn.lost_tokens:,} lost")
    if turn.removed_tokens:
        parts.append(f"{turn.removed_tokens:,} removed")
    return f"turn {turn.turn}, {cause}: {', '.join(parts)}"
