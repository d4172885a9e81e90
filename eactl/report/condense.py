"""``eactl condenser-check`` for people: verdict, causes with place and remedy, the worst session, what edits cost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eactl.report.table import table
from eactl.units import human_bytes, human_count, human_many

if TYPE_CHECKING:
    from eactl.condense.result import CauseTotal, CheckResult, Session, Strategy, Turn, Where

_MOST_TURNS = 40
_FEW_TURNS = 16
_MOST_CAUSES = 12
_INDENT = "   "
_HEADERS = ["turn", "prompt", "stable", "fresh", "removed", "lost", ""]


def condense_text(result: CheckResult, *, width: int = 100) -> str:
    """The whole answer as text, the verdict first."""
    parts = [_wrapped(result.summary.verdict, width), _facts(result, width)]
    parts += [_cause(number, cause, result, width) for number, cause in enumerate(result.causes[:_MOST_CAUSES], 1)]
    if len(result.causes) > _MOST_CAUSES:
        parts.append(f"{len(result.causes) - _MOST_CAUSES} smaller causes are in the JSON document (--json).")
    session = worst_session(result)
    if session is not None:
        parts.append(_session(session, result, width))
    parts += [_strategies(result, width), _hysteresis(result, width), _against(result, width)]
    return _printable("\n\n".join(part for part in parts if part))


def worst_session(result: CheckResult) -> Session | None:
    """The session that loses most; without any loss the one with most turns, if it has a second turn."""
    sessions = [session for session in result.sessions if len(session.turns) > 1]
    if not sessions:
        return None
    return max(sessions, key=lambda s: (sum(turn.lost_tokens for turn in s.turns), len(s.turns)))


def place(turn: Turn) -> str:
    """Where a break lies, in words."""
    parts = [f"session {one_line(turn.session)}", f"turn {turn.turn}"]
    where = turn.where
    if where is not None:
        if where.message is not None:
            parts.append(f"message {where.message} ({where.role})")
        elif where.role is not None:
            parts.append(where.path or where.role)
        if where.offset is not None:
            parts.append(f"character {where.offset:,}")
        if where.path is not None and where.path not in ("content", "prompt") and where.message is not None:
            parts.append(f"of {where.path}")
        if where.token is not None:
            parts.append(f"prompt token {where.token:,}")
    if turn.line:
        parts.append(turn.line)
    return ", ".join(parts)


def quoted(where: Where | None) -> list[tuple[str, str]]:
    """The two quotes with their labels, on one line each; empty where nothing is quoted."""
    if where is None or (where.before is None and where.after is None):
        return []
    return [("was", one_line(where.before)), ("is", one_line(where.after))]


def ledger_sentence(cause: CauseTotal, result: CheckResult) -> str:
    """Both sides of the ledger of a kind of edit."""
    edits = [t.edit for s in result.sessions for t in s.turns if t.edit is not None and t.cause == cause.cause]
    if not edits or not cause.removed_tokens:
        return ""
    stayed = sum(edit.turns_kept for edit in edits) / len(edits)
    text = (
        f"Removed {human_count(cause.removed_tokens)} tokens and made {human_count(cause.lost_tokens)} be computed "
        f"again"
    )
    if cause.break_even_turns is None:
        return f"{text}; it never pays."
    verdict = "pays" if cause.break_even_turns <= stayed else "does not pay"
    return (
        f"{text}; that pays after {human_many(cause.break_even_turns, 'turn')} with the shorter prompt (a reused token "
        f"at {result.reused_cost:g} of a fresh one), and the edits stayed {stayed:.1f} turns: it {verdict}."
    )


def _facts(result: CheckResult, width: int) -> str:
    return "\n".join(_wrapped(f"{name:<11}{text}", width, hanging=" " * 11) for name, text in facts(result))


def facts(result: CheckResult) -> Iterator[tuple[str, str]]:
    """What the log holds and what of it can be reused, as names and short texts."""
    sums = result.summary
    if not sums.requests:
        return
    yield (
        "Log",
        f"{human_many(sums.requests, 'request')} in {human_many(len(result.sessions), 'session')}, "
        f"{human_count(sums.prompt_tokens)} prompt tokens ({counted_how(result)})",
    )
    if sums.prompt_tokens:
        low, high = (n / sums.prompt_tokens for n in (sums.reusable_tokens_lower, sums.reusable_tokens_upper))
        span = f"{high:.1%}"
        if high - low >= 0.0005:
            span = f"{low:.1%} to {high:.1%} ({sums.reusable_tokens_lower:,} to {sums.reusable_tokens_upper:,} tokens)"
        shared = ", heads shared by sessions included" if sums.shared_tokens and len(result.sessions) > 1 else ""
        yield "Reusable", f"{span} in whole chunks of {result.chunk_tokens}{shared}, if all stays resident"
    if sums.cached_tokens is not None and sums.prompt_tokens:
        share = sums.cached_tokens / sums.prompt_tokens
        yield "Measured", f"{share:.1%} of the prompt tokens came from the provider's cache"
    if sums.breaks:
        seconds = f", {sums.amortised_s_per_turn:.3g} s" if sums.amortised_s_per_turn is not None else ""
        every = ""
        if sums.turns_between_breaks is not None:
            often = f"{sums.turns_between_breaks:g} turns" if sums.turns_between_breaks > 1 else "turn"
            every = f"; a break every {often}"
        yield (
            "Cost",
            f"{sums.amortised_tokens_per_turn:,.0f} tokens{seconds} per turn, "
            f"{human_many(sums.chunks_lost, 'whole chunk')} lost{every}",
        )
    if sums.isolation_tokens:
        size = f", {human_bytes(sums.isolation_bytes_rank)} per rank" if sums.isolation_bytes_rank is not None else ""
        tokens = human_count(sums.isolation_tokens)
        yield "Isolation", f"salts and adapters keep {tokens} tokens of the same text apart{size}"
    if sums.side_calls:
        yield (
            "Beside",
            f"{human_many(sums.side_calls, 'call')} beside their conversation, "
            f"{human_count(sums.side_tokens)} prompt tokens, {_reused(sums.side_stable_tokens)}",
        )


def counted_how(result: CheckResult) -> str:
    """Whose token counts these are, in words."""
    counted, requests = result.counted_requests, result.summary.requests
    ours = f"tokens of {result.tokenizer}" if result.exact_tokens else "approximate tokens"
    if requests and counted >= requests:
        return "as counted in the log"
    return f"as counted in the log for {counted:,} requests, {ours} for the others" if counted else ours


def _reused(tokens: int) -> str:
    return f"{human_count(tokens)} reused within them" if tokens else "nothing reused"


def _cause(number: int, cause: CauseTotal, result: CheckResult, width: int) -> str:
    total = result.summary.prompt_tokens
    title = (
        f"{number}. {cause.cause}: {cause.kinds[0]}" if cause.kinds and cause.kinds[0] else f"{number}. {cause.cause}"
    )
    more = f" (and {human_many(len(cause.kinds) - 1, 'more kind')})" if len(cause.kinds) > 1 else ""
    times = "once" if cause.breaks == 1 else f"{cause.breaks:,} times"
    lines = [
        f"{title}{more}",
        f"{_INDENT}{times} in {human_many(cause.sessions, 'session')}: {human_count(cause.lost_tokens)} tokens lost "
        f"({cause.lost_tokens / total if total else 0:.1%} of all), {human_many(cause.chunks_lost, 'whole chunk')}",
        _wrapped(f"{'at' if cause.breaks == 1 else 'worst at'} {place(cause.worst)}", width, _INDENT),
    ]
    lines += [f"{_INDENT}{_INDENT}{label:<4}{text}" for label, text in quoted(cause.worst.where)]
    sentence = ledger_sentence(cause, result)
    if sentence:
        lines.append(_wrapped(sentence, width, _INDENT))
    lines.append(_wrapped(f"To do: {cause.remedy}", width, _INDENT))
    return "\n".join(lines)


def _session(session: Session, result: CheckResult, width: int) -> str:
    rows = list(_rows(session.turns))
    used = [n for n, header in enumerate(_HEADERS) if not header or any(row[n] for row in rows)]
    headers, rows = [_HEADERS[n] for n in used], [[row[n] for n in used] for row in rows]
    columns = list(zip(headers, *rows, strict=True))[:-1]  # a header has two spaces of its own, a column two behind
    taken = sum(max(len(header) + 2, *map(len, cells)) + 2 for header, *cells in columns)
    for row in rows:
        row[-1] = textwrap.shorten(row[-1], max(28, width - taken), placeholder=" ...")
    what = "the session that loses most" if result.summary.lost_tokens else "the longest session"
    return f"Session {one_line(session.session)}, {what}\n" + table(rows, headers, left=())


def _rows(turns: Sequence[Turn]) -> Iterator[list[str]]:
    """Breaks with the turns around them; runs of turns that only grew are folded into one line."""
    shown = {0, len(turns) - 1}
    for number, turn in enumerate(turns):
        if turn.is_break:
            shown.update((number - 1, number, number + 1))
    if len(turns) <= _FEW_TURNS:
        shown = set(range(len(turns)))
    numbers = sorted(number for number in shown if 0 <= number < len(turns))
    left_out = len(turns) - numbers[_MOST_TURNS - 1] - 1 if len(numbers) > _MOST_TURNS else 0
    last = -1
    for number in numbers[:_MOST_TURNS]:
        if number - last > 1:
            yield ["", "", "", "", "", "", f"... {number - last - 1:,} turns that only grew"]
        last = number
        turn = turns[number]
        label = turn.cause + (f": {one_line(turn.kind)}" if turn.kind else "")
        yield [
            str(turn.turn), f"{turn.prompt_tokens:,}", f"{turn.stable_tokens:,}", f"{turn.fresh_tokens:,}",
            f"{turn.removed_tokens:,}" if turn.removed_tokens else "",
            f"{turn.lost_tokens:,}" if turn.lost_tokens else "",
            label,
        ]  # fmt: skip
    if left_out:
        yield ["", "", "", "", "", "", f"... {left_out:,} more turns (--json has all)"]


def strategy_rows(strategies: Sequence[Strategy], *, pays: bool = True) -> tuple[list[list[str]], list[str]]:
    """Rows and headers of a table that compares condensers (``pays``: with their break-even) or logs."""
    seconds = any(row.seconds is not None for row in strategies)
    base = strategies[0]
    rows = []
    for row in strategies:
        cells = [
            _short(row.name), f"{row.mean_prompt_tokens:,.0f}", f"{row.stable_share:.1%}",
            human_count(row.fresh_tokens),
            f"{row.edits:,}", human_count(row.own_prompt_tokens) if row.own_calls else "",
            f"{row.amortised_tokens_per_turn:,.0f}" if row.edits else "",
            *([_pays_after(row, base)] if pays else []),
            f"{row.cost_tokens / base.cost_tokens:.2f}x" if base.cost_tokens else "",
        ]  # fmt: skip
        if seconds:
            cells.append("" if row.seconds is None else f"{row.seconds:,.1f}")
        rows.append(cells)
    headers = ["", "mean prompt", "hit rate", "fresh", "edits", "own calls", "again/turn"]
    headers += ["pays after", "cost"] if pays else ["cost"]
    return rows, headers + (["seconds"] if seconds else [])


def _short(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:45]}..."


def _pays_after(row: Strategy, base: Strategy) -> str:
    if not row.edits or row is base:
        return ""
    return "never" if row.break_even_turns is None else f"{row.break_even_turns:,}"


def _strategies(result: CheckResult, width: int) -> str:
    if not result.strategies:
        return ""
    rows, headers = strategy_rows(result.strategies)
    return f"Condensers\n{table(rows, headers)}\n{_wrapped(strategy_note(result), width)}"


def strategy_note(result: CheckResult) -> str:
    """What the columns of the table of condensers mean."""
    return (
        "What each condenser would have sent for the same messages. Hit rate: stable share of the prompt tokens; own "
        "calls: prompt tokens of the condenser's own requests; again/turn: tokens computed again, amortised; pays "
        f"after: turns per edit; cost: a reused token counts {result.reused_cost:g}; what an agent forgets is not in "
        "it."
    )


def _hysteresis(result: CheckResult, width: int) -> str:
    return _wrapped(window_sentence(result), width)


def window_sentence(result: CheckResult) -> str:
    """Cutting at every turn against cutting in steps; empty where nothing slides."""
    steps = result.hysteresis
    if steps is None:
        return ""
    return (
        f"The window slides: at a budget of {steps.budget_tokens:,} tokens and {steps.growth_tokens_per_turn:,} new "
        f"tokens per turn, cutting at every turn computes {steps.every_turn_tokens_per_turn:,.0f} tokens again each "
        f"time. Growing to {steps.high:g} times the budget and then cutting to {steps.low:g} times does so every "
        f"{steps.turns_between_steps} turns: {steps.stepwise_tokens_per_turn:,.0f} tokens per turn."
    )


def _against(result: CheckResult, width: int) -> str:
    comparison = result.against
    if comparison is None:
        return ""
    rows, headers = strategy_rows(comparison.rows, pays=False)
    rest = comparison.only_here + comparison.only_there
    left_out = f", {human_many(rest, 'task')} in one log only" if rest else ""
    return (
        f"Against, over {human_many(comparison.tasks, 'task')}{left_out}\n{table(rows, headers)}\n"
        f"{_wrapped(comparison.verdict, width)}"
    )


def _wrapped(text: str, width: int, indent: str = "", *, hanging: str | None = None) -> str:
    return textwrap.fill(
        text, max(40, width), initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def one_line(text: str | None) -> str:
    """Text from a log on one line, with nothing in it that a terminal would obey."""
    shown = (text or "").replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in shown) or "(nothing)"


def _printable(text: str) -> str:
    """The whole answer, file names and the like included, without control characters but line ends."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
