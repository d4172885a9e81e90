"""``eactl condenser-check --html``: one page without scripts or outside files, a stacked chart per session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from eactl.report.condense import ledger_sentence, place, quoted, strategy_rows
from eactl.units import human_count

if TYPE_CHECKING:
    from eactl.condense.result import CauseTotal, CheckResult, Session, Turn

_MOST_SESSIONS = 12
_MOST_BARS = 240
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 960, 260, 56, 26, 12

_NUMBER = ' class="num"'

_STYLE = """
:root{--stable:#0b6e74;--fresh:#e08e45;--lost:#c8553d;--removed:#9a9d9a;--ink:#222;--soft:#666;--line:#ddd;
--paper:#fff;--box:#f6f6f4}
@media (prefers-color-scheme:dark){:root{--stable:#3fa9ad;--fresh:#e6a468;--lost:#e0775f;--removed:#8d918d;
--ink:#e8e8e4;--soft:#a5a8a5;--line:#3a3d3d;--paper:#191b1b;--box:#232626}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}h3{font-size:1rem;margin:1.6rem 0 .3rem}
.verdict{font-size:1.1rem}.soft{color:var(--soft)}.num{text-align:right;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}th{font-weight:600}
.scroll{overflow-x:auto}code{font:13px/1.45 ui-monospace,monospace;background:var(--box);padding:.1rem .3rem;
overflow-wrap:anywhere}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.stable{fill:var(--stable)}.fresh{fill:var(--fresh)}.lost{fill:var(--lost)}
.removed{fill:none;stroke:var(--removed);stroke-dasharray:3 2}
.key{display:inline-block;width:.8rem;height:.8rem;margin:0 .35rem 0 1rem;vertical-align:-1px}
details summary{cursor:pointer}
"""

_LEGEND = (
    '<span class="key" style="background:var(--stable)"></span>stable: unchanged since the previous turn'
    '<span class="key" style="background:var(--fresh)"></span>fresh: new at this turn'
    '<span class="key" style="background:var(--lost)"></span>lost: computed again because of a break'
    '<span class="key" style="border:1px dashed var(--removed);box-sizing:border-box"></span>removed from the prompt'
)


def condense_page(result: CheckResult) -> str:
    """The whole report as one HTML document."""
    sums = result.summary
    sessions = sorted(result.sessions, key=lambda s: (-sum(t.lost_tokens for t in s.turns), -len(s.turns)))
    shown = [session for session in sessions if len(session.turns) > 1][:_MOST_SESSIONS] or sessions[:1]
    left_out = len(result.sessions) - len(shown)
    notes = [w["text"] + (f" ({w['hint']})" if w.get("hint") else "") for w in result.warnings]
    warnings = "".join(f"<li>{escape(note)}</li>" for note in notes)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Prefix report</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<style>{_STYLE}</style></head><body><h1>What breaks the prefix</h1>",
        f'<p class="verdict">{escape(sums.verdict)}</p>',
        f'<p class="soft">{sums.requests:,} requests, {len(result.sessions):,} sessions, '
        f"{human_count(sums.prompt_tokens)} prompt tokens; tokens by {escape(result.tokenizer)}"
        f"{'' if result.exact_tokens else ' (an approximation)'}; chunks of {result.chunk_tokens} tokens.</p>",
        "<h2>Causes</h2>" if result.causes else "",
        *(_cause(cause, result) for cause in result.causes),
        _strategies(result),
        "<h2>Turn by turn</h2>",
        f'<p class="soft">{_LEGEND}</p>',
        *(_session(session) for session in shown),
        f'<p class="soft">{left_out:,} more sessions are in the JSON document.</p>' if left_out > 0 else "",
        f"<h2>Notes on the input</h2><ul>{warnings}</ul>" if warnings else "",
        "</body></html>\n",
    ]
    return "".join(parts)


def _cause(cause: CauseTotal, result: CheckResult) -> str:
    total = result.summary.prompt_tokens
    kinds = "; ".join(kind for kind in cause.kinds if kind)
    quotes = "<br>".join(f"{label} <code>{escape(text)}</code>" for label, text in quoted(cause.worst.where))
    ledger = ledger_sentence(cause, result)
    return (
        f"<h3>{escape(cause.cause)}{f': {escape(kinds)}' if kinds else ''}</h3>"
        f"<p>{cause.breaks:,} {'time' if cause.breaks == 1 else 'times'} in {cause.sessions:,} "
        f"{'session' if cause.sessions == 1 else 'sessions'}; {human_count(cause.lost_tokens)} tokens lost "
        f"({cause.lost_tokens / total if total else 0:.1%} of all), {cause.chunks_lost:,} whole chunks. "
        f'Worst: <span class="soft">{escape(place(cause.worst))}</span></p>'
        f"{f'<p>{quotes}</p>' if quotes else ''}{f'<p>{escape(ledger)}</p>' if ledger else ''}"
        f"<p><strong>To do:</strong> {escape(cause.remedy)}</p>"
    )


def _strategies(result: CheckResult) -> str:
    blocks = []
    if result.strategies:
        blocks.append("<h2>Condensers on the same messages</h2>" + _table(*strategy_rows(result.strategies)))
    if result.against is not None:
        blocks.append(f"<h2>Against the other log, {result.against.tasks:,} tasks</h2>")
        blocks.append(
            _table(*strategy_rows(result.against.rows, pays=False)) + f"<p>{escape(result.against.verdict)}</p>"
        )
    return "".join(blocks)


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    head = "".join(f"<th{_NUMBER if n else ''}>{escape(text)}</th>" for n, text in enumerate(headers))
    body = "".join(
        "<tr>" + "".join(f"<td{_NUMBER if n else ''}>{escape(cell)}</td>" for n, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _session(session: Session) -> str:
    lost = sum(turn.lost_tokens for turn in session.turns)
    headers = ["turn", "prompt", "stable", "fresh", "lost", "removed", "cause"]
    rows = [
        [str(t.turn), f"{t.prompt_tokens:,}", f"{t.stable_tokens:,}", f"{t.fresh_tokens:,}", f"{t.lost_tokens:,}",
         f"{t.removed_tokens:,}", t.cause + (f": {t.kind}" if t.kind else "")]
        for t in session.turns[:_MOST_BARS]
    ]  # fmt: skip
    return (
        f'<h3>Session {escape(session.session)} <span class="soft">{len(session.turns):,} turns, '
        f"{human_count(lost)} tokens lost</span></h3>{_chart(session.turns)}"
        f"<details><summary>Table</summary>{_table(rows, headers)}</details>"
    )


def _chart(turns: Sequence[Turn]) -> str:
    """Bars per turn: stable, fresh and lost stacked, what was removed dashed above."""
    shown = turns[:_MOST_BARS]
    top = max((turn.prompt_tokens + turn.removed_tokens for turn in shown), default=0) or 1
    wide = (_WIDTH - _LEFT) / len(shown) if shown else 1.0
    scale = (_HEIGHT - _BOTTOM - _TOP) / top
    more = f" (the first {_MOST_BARS} of {len(turns):,} turns)" if len(turns) > len(shown) else ""
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Prompt tokens per turn{more}">'
        f"{''.join(_axis(top, scale))}{''.join(_bars(shown, wide, scale))}</svg>"
    )


def _axis(top: int, scale: float) -> Iterator[str]:
    base = _HEIGHT - _BOTTOM
    for share in (0, 0.5, 1):
        y = base - top * share * scale
        yield f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{human_count(top * share)}</text>'


def _bars(turns: Sequence[Turn], wide: float, scale: float) -> Iterator[str]:
    base = _HEIGHT - _BOTTOM
    every = max(1, len(turns) // 24)
    for number, turn in enumerate(turns):
        x, width = _LEFT + number * wide + wide * 0.1, max(0.8, wide * 0.8)
        lost = min(turn.lost_tokens, turn.fresh_tokens)
        label = f"turn {turn.turn}: {turn.prompt_tokens:,} prompt, {turn.stable_tokens:,} stable, {turn.cause}"
        label += f" ({turn.kind})" if turn.kind else ""
        y = float(base)
        yield f"<g><title>{escape(label)}</title>"
        for kind, tokens in (("stable", turn.stable_tokens), ("fresh", turn.fresh_tokens - lost), ("lost", lost),
                             ("removed", turn.removed_tokens)):  # fmt: skip
            height = tokens * scale
            y -= height
            if height > 0:
                yield f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        yield "</g>"
        if number % every == 0:
            yield f'<text x="{x + width / 2:.1f}" y="{base + 16}" text-anchor="middle">{turn.turn}</text>'
