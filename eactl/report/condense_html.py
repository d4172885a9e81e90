"""``eactl condenser-check --html``: one page without scripts or outside files, a stacked chart per session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from eactl.report.condense import (
    facts,
    ledger_sentence,
    one_line,
    place,
    quoted,
    strategy_note,
    strategy_rows,
    window_sentence,
)
from eactl.report.condense_chart import MOST_BARS, turn_chart
from eactl.units import human_count, human_many

if TYPE_CHECKING:
    from eactl.condense.result import CauseTotal, CheckResult, Session, Turn

_MOST_SESSIONS = 12
_MOST_CAUSES = 24
_MOST_NAMED = 12
_NAMED_LOGS = 3

_NUMBER = ' class="num"'

_STYLE = """
:root{color-scheme:light dark;--stable:#0b6e74;--fresh:#e08e45;--lost:#c8553d;--removed:#7f827f;--ink:#222;
--soft:#5d5d5d;--line:#ddd;--paper:#fff;--box:#f4f4f1}
@media (prefers-color-scheme:dark){:root{--stable:#3fa9ad;--fresh:#e6a468;--lost:#e0775f;--removed:#a0a4a0;
--ink:#e8e8e4;--soft:#b0b3b0;--line:#3a3d3d;--paper:#191b1b;--box:#262a2a}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;
padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2.4rem}
h3{font-size:1rem;margin:1.8rem 0 .3rem}p{margin:.5rem 0}
.verdict{font-size:1.1rem;margin-top:1.2rem}.soft{color:var(--soft)}h3 .soft{font-weight:400}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:.8rem 0}dt{color:var(--soft)}dd{margin:0}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}th{font-weight:600}
.scroll{overflow-x:auto}code{font:13px/1.45 ui-monospace,monospace;background:var(--box);padding:.1rem .3rem}
.cause{border-left:3px solid var(--lost);padding-left:.9rem;margin:1.4rem 0}.cause h3{margin-top:0}
.todo{background:var(--box);padding:.5rem .7rem}.quotes dt{min-width:1.6rem}
svg{width:100%;min-width:40rem;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.stable{fill:var(--stable)}.fresh{fill:var(--fresh)}.lost{fill:var(--lost)}
.removed{fill:none;stroke:var(--removed);stroke-dasharray:3 2}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;padding:0;margin:.6rem 0}
.key{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;vertical-align:-1px}
details summary{cursor:pointer;color:var(--soft)}
@media print{details{display:none}.cause,svg{break-inside:avoid}}
"""

_INTRO = (
    "An inference server keeps what it computed for a prompt (its KV cache) and takes it up again for the next request "
    "as far as both prompts begin alike, to the token. An agent sends its whole history at every turn, so nearly all "
    "of a prompt could be taken up again. It cannot where something early in the prompt changed: everything behind "
    "that place is computed once more. This page shows where that happened and what to change."
)
_LEGEND = (
    '<ul class="legend"><li><span class="key" style="background:var(--stable)"></span>stable: unchanged since the '
    "previous turn, can be reused</li>"
    '<li><span class="key" style="background:var(--fresh)"></span>fresh: new at this turn</li>'
    '<li><span class="key" style="background:var(--lost)"></span>lost: seen before, computed again because of a break '
    "(&#9660;)</li>"
    '<li><span class="key" style="border:1px dashed var(--removed);box-sizing:border-box"></span>removed from the '
    "prompt</li></ul>"
)


def condense_page(result: CheckResult) -> str:
    """The whole report as one HTML document."""
    sessions = sorted(result.sessions, key=lambda s: (-sum(t.lost_tokens for t in s.turns), -len(s.turns)))
    shown = [session for session in sessions if len(session.turns) > 1][:_MOST_SESSIONS] or sessions[:1]
    left_out = len(result.sessions) - len(shown)
    more = f"{left_out:,} more {'sessions are' if left_out > 1 else 'session is'} in the JSON document (--json)."
    notes = [w["text"] + (f" ({w['hint']})" if w.get("hint") else "") for w in result.warnings]
    warnings = "".join(f"<li>{escape(note)}</li>" for note in notes)
    rest = len(result.causes) - _MOST_CAUSES
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>What breaks the prefix</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<style>{_STYLE}</style></head><body><h1>What breaks the prefix</h1>",
        f'<p class="soft">{escape(_logs(result))}</p>',
        f'<p class="verdict">{escape(result.summary.verdict)}</p>',
        _list(facts(result)),
        f'<p class="soft">{_INTRO}</p>',
        "<h2>Causes</h2>" if result.causes else "",
        *(_cause(cause, result) for cause in result.causes[:_MOST_CAUSES]),
        f"<p>{rest:,} smaller causes are in the JSON document (--json).</p>" if rest > 0 else "",
        _strategies(result),
        f"<h2>Turn by turn</h2>{_LEGEND}" if shown else "",
        *(_session(session) for session in shown),
        f'<p class="soft">{more}</p>' if left_out > 0 else "",
        f"<h2>Notes on the input</h2><ul>{warnings}</ul>" if warnings else "",
        "</body></html>\n",
    ]
    return "".join(parts)


def _logs(result: CheckResult) -> str:
    names = [one_line(str(source.get("path"))) for source in result.sources]
    more = f" and {len(names) - _NAMED_LOGS:,} more files" if len(names) > _NAMED_LOGS else ""
    return ", ".join(names[:_NAMED_LOGS]) + more


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f"<dl>{rows}</dl>" if rows else ""


def _cause(cause: CauseTotal, result: CheckResult) -> str:
    total = result.summary.prompt_tokens
    kind, *more = [kind for kind in cause.kinds if kind] or [""]
    quotes = [f"<dt>{label}</dt><dd><code>{escape(text)}</code></dd>" for label, text in quoted(cause.worst.where)]
    ledger = ledger_sentence(cause, result)
    share = cause.lost_tokens / total if total else 0
    title = f"{cause.cause}: {kind}" if kind else cause.cause
    times = "Once" if cause.breaks == 1 else f"{cause.breaks:,} times"
    parts = [
        f'<div class="cause"><h3>{escape(title)}</h3>',
        f'<p class="soft">Also: {escape("; ".join(more))}.</p>' if more else "",
        f"<p>{times} in {human_many(cause.sessions, 'session')}: {human_count(cause.lost_tokens)} tokens lost "
        f"({share:.1%} of all), {human_many(cause.chunks_lost, 'whole chunk')}. "
        f"{'At' if cause.breaks == 1 else 'Worst at'} "
        f'<span class="soft">{escape(place(cause.worst))}</span></p>',
        f'<dl class="quotes">{"".join(quotes)}</dl>' if quotes else "",
        f"<p>{escape(ledger)}</p>" if ledger else "",
        f'<p class="todo"><strong>To do:</strong> {escape(cause.remedy)}</p></div>',
    ]
    return "".join(parts)


def _strategies(result: CheckResult) -> str:
    blocks = []
    if result.strategies:
        blocks.append("<h2>Condensers on the same messages</h2>" + _table(*strategy_rows(result.strategies)))
        blocks.append(f'<p class="soft">{escape(strategy_note(result))}</p>')
    if result.hysteresis is not None:
        blocks.append(f"<h2>Cutting in steps</h2><p>{escape(window_sentence(result))}</p>")
    if result.against is not None:
        blocks.append(f"<h2>Against the other log, {human_many(result.against.tasks, 'task')}</h2>")
        blocks.append(
            _table(*strategy_rows(result.against.rows, pays=False)) + f"<p>{escape(result.against.verdict)}</p>"
        )
    return "".join(blocks)


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str], *, text: Sequence[int] = (0,)) -> str:
    kinds = ["" if n in text else _NUMBER for n in range(len(headers))]
    head = "".join(f"<th{kind}>{escape(header)}</th>" for kind, header in zip(kinds, headers, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _session(session: Session) -> str:
    lost = sum(turn.lost_tokens for turn in session.turns)
    headers = ["turn", "prompt", "stable", "fresh", "lost", "removed", "cause"]
    rows = [
        [str(t.turn), f"{t.prompt_tokens:,}", f"{t.stable_tokens:,}", f"{t.fresh_tokens:,}",
         f"{t.lost_tokens:,}" if t.lost_tokens else "", f"{t.removed_tokens:,}" if t.removed_tokens else "",
         _cause_text(t)]
        for t in session.turns[:MOST_BARS]
    ]  # fmt: skip
    what = f"{human_count(lost)} tokens lost" if lost else "nothing lost"
    turns = human_many(len(session.turns), "turn")
    return (
        f'<h3>Session {escape(one_line(session.session))} <span class="soft">{turns}, {what}</span></h3>'
        f"{turn_chart(session.turns)}{_breaks(session.turns)}"
        f"<details><summary>All turns as a table</summary>{_table(rows, headers, text=(6,))}</details>"
    )


def _breaks(turns: Sequence[Turn]) -> str:
    """Which turns broke and why, for those who read the chart on paper."""
    by_cause: dict[str, list[str]] = {}
    for turn in turns:
        if turn.is_break:
            by_cause.setdefault(_cause_text(turn), []).append(str(turn.turn))
    if not by_cause:
        return ""
    said = []
    for cause, numbers in list(by_cause.items())[:_MOST_NAMED]:
        more = f" and {len(numbers) - _MOST_NAMED} more" if len(numbers) > _MOST_NAMED else ""
        word = "turn" if len(numbers) == 1 else "turns"
        said.append(f"{word} {', '.join(numbers[:_MOST_NAMED])}{more}: {cause}")
    if len(by_cause) > _MOST_NAMED:
        said.append(f"{len(by_cause) - _MOST_NAMED} more kinds in the table")
    return f'<p class="soft">Breaks at {escape("; ".join(said))}.</p>'


def _cause_text(turn: Turn) -> str:
    return turn.cause + (f": {one_line(turn.kind)}" if turn.kind else "")
