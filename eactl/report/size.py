"""``eactl size`` for people: what was read, the curve as table and chart, one sentence."""

from __future__ import annotations

from textwrap import fill

from eactl.report.chart import lines
from eactl.report.table import table
from eactl.sizing.result import OrderCurve, Recommendation, SizePoint, SizeResult
from eactl.units import GIB, human_bytes, human_count, human_gib, human_many


def size_text(result: SizeResult, *, width: int, chart: bool = True) -> str:
    """The whole answer as text, at most ``width`` columns wide for the chart."""
    primary = result.orders[0]
    width = max(60, width)
    parts = [_facts(result, width), _curve_table(result, primary)]
    if chart and primary.best_restored_tokens:
        parts.append(curve_chart(result, primary, width=width))
    parts.append(_shares(result))
    parts.append(_lmcache(result))
    said, _, following = sentence(result.recommendation, primary).partition(" Next: ")
    parts.append(f"{fill(said, width, break_on_hyphens=False)}\nNext: {following}")  # a command stays on one line
    return "\n\n".join(part for part in parts if part)


def sentence(advice: Recommendation, order: OrderCurve) -> str:
    """One sentence: how many GiB per rank and in total, what it saves, what more would, whether it fits here."""
    if not advice.host_bytes_rank:
        return f"No host tier: {advice.reason}. Next: {advice.next_step}"
    total = human_gib(advice.host_bytes_total)
    tiers = f"{advice.tiers} ranks" if advice.tiers > 1 else "one rank"
    text = (
        f"Give the tier {human_gib(advice.host_bytes_rank)} per rank, {total} in total ({tiers}): it restores "
        f"{human_count(advice.point.restored_tokens)} tokens and leaves {human_count(advice.point.computed_tokens)} "
        f"of {human_count(advice.computed_without_tokens)} to compute ({_less(advice, advice.point)} less)"
    )
    above = next((point for point in order.curve if point.host_bytes_rank > advice.host_bytes_rank), None)
    if above is not None and above.computed_tokens < advice.point.computed_tokens:
        more = (advice.point.computed_tokens - above.computed_tokens) / advice.computed_without_tokens
        text += f"; the next step up, {human_gib(above.host_bytes_rank)} per rank, saves another {more:.1%}"
    if advice.fits is False and advice.affordable is not None:
        text += (
            f"; {advice.available_from} has {human_gib(advice.available_bytes or 0)}, enough for "
            f"{human_gib(advice.affordable.host_bytes_rank)} per rank, which computes "
            f"{_less(advice, advice.affordable)} less"
        )
        if advice.lever == "admission":
            text += " with plain LRU and could do better with write admission"
    text += f". Next: {advice.next_step}"
    if advice.affordable is None:
        kept = advice.lmcache.trigger_watermark * (1 - advice.lmcache.eviction_ratio)
        text += f" (LMCache's server keeps {kept:.0%} of that at worst)"
    return text


def _less(advice: Recommendation, point: SizePoint) -> str:
    return f"{1 - point.computed_tokens / advice.computed_without_tokens:.0%}"


def _facts(result: SizeResult, width: int) -> str:
    """What was read and what follows from it, one labelled paragraph each."""
    paragraphs = [("Trace", _trace(result)), ("Footprint", _footprint(result))]
    paragraphs += [("", note) for note in result.notes]
    paragraphs.append(("Pool", _pool(result)))
    pool = result.pool
    if pool.gamma_g is not None and pool.gpu_kv_tokens is not None:
        verdict = "does not fit" if pool.gamma_g > 1 else "fits"
        held = human_count(result.orders[0].resident_tokens)
        text = f"{pool.gpu_kv_tokens:,} tokens, γG {pool.gamma_g:.2f}: the pool's context {verdict}; "
        paragraphs.append(("GPU cache", f"{text}it holds {held} prompt tokens when they are needed"))
    if result.isolation is not None:
        apart = result.isolation
        text = f"{apart.salts} salts keep their KV apart: {human_gib(apart.copies_bytes_rank)} per rank of copies of "
        lost = human_count(apart.lost_tokens)
        paragraphs.append(("Isolation", f"{text}shared prefixes, and {lost} more tokens computed"))
    if result.seconds is not None:
        seconds = result.seconds
        text = f"{seconds.recompute_s:,.1f} s of prefill become {seconds.restore_s:,.1f} s of restoring "
        paragraphs.append(("Time", f"{text}({seconds.saved_s:,.1f} s saved over the trace)"))
    return "\n".join(
        fill(text, width, initial_indent=f"{label:11}", subsequent_indent=" " * 11, break_on_hyphens=False)
        for label, text in paragraphs
    )


def _trace(result: SizeResult) -> str:
    work = result.workload
    if work.stable_tokens is not None:
        stable = f"{work.stable_tokens / work.prompt_tokens:.1%}"
    else:
        low, high = work.stable_tokens_lower / work.prompt_tokens, work.stable_tokens_upper / work.prompt_tokens
        stable = f"{low:.1%}" if f"{low:.1%}" == f"{high:.1%}" else f"{low:.1%} to {high:.1%}"
    return (
        f"{human_many(work.tasks, 'task')}, {human_many(work.calls, 'call')}, {human_count(work.prompt_tokens)} "
        f"prompt tokens, mean {work.mean_prompt_tokens:,.0f}, longest {work.max_prompt_tokens:,}; {stable} stable "
        "since the last turn"
    )


def _footprint(result: SizeResult) -> str:
    model = f" ({result.model}, TP {result.tp})" if result.model else ""
    return (
        f"{human_bytes(result.bytes_per_token_rank)} per token and rank{model}, "
        f"{human_bytes(result.chunk_bytes_rank)} per chunk of {result.chunk_tokens} tokens"
    )


def _pool(result: SizeResult) -> str:
    pool, first = result.pool, result.orders[0]
    agents = f"{pool.agents:g} agents" + ("" if pool.agents_given else " (as recorded)")
    return (
        f"{agents}: reuse working set {human_gib(pool.working_set_bytes_rank)} per rank (Eq. 5), measured knee "
        f"{human_gib(first.knee_bytes_rank)} ({first.name} order)"
    )


def _curve_table(result: SizeResult, order: OrderCurve) -> str:
    advice, prompt = result.recommendation, result.workload.prompt_tokens
    rows = []
    for point in order.curve:
        marks = []
        if advice.host_bytes_rank and point.host_bytes_rank == advice.host_bytes_rank:
            marks.append("<- recommended")
        best, least = point.best_coverage_tokens, point.least_computed_tokens
        rows.append([
            _gib(point.host_bytes_rank),
            _gib(point.host_bytes_rank * advice.tiers),
            "-" if point.gamma_h is None else f"{point.gamma_h:.2f}",
            f"{point.coverage_tokens / prompt:.1%}",
            "-" if best is None else f"{best / prompt:.1%}",
            human_count(point.restored_tokens),
            human_count(point.computed_tokens),
            "-" if least is None else human_count(least),
            f"{1 - point.computed_tokens / max(1, order.curve[0].computed_tokens):.1%}",
            " ".join(marks),
        ])  # fmt: skip
    headers = [
        "GiB/rank", "GiB total", "γH", "coverage", "at best", "restored", "computed", "at best", "less", "",
    ]  # fmt: skip
    return (
        f"{order.name.capitalize()} order, LRU; tokens over the whole trace\n{table(rows, headers)}\n"
        "At best: with a policy that knew all future requests, so admission wins no more."
    )


def _gib(size_bytes: int) -> str:
    value = size_bytes / GIB
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def curve_chart(result: SizeResult, order: OrderCurve, *, width: int) -> str:
    """Computed tokens over GiB per rank, drawn with characters."""
    return lines(
        [size / GIB for size, _ in order.drawn],
        [computed / 1e6 for _, computed in order.drawn],
        x_label="GiB per rank",
        y_label="computed, M",
        width=min(width, 88),
        marks=[
            ("working set (Eq. 5)", result.pool.working_set_bytes_rank / GIB),
            ("recommended", result.recommendation.host_bytes_rank / GIB),
        ],
    )


def _shares(result: SizeResult) -> str:
    gpu = result.pool.gpu_kv_tokens is not None  # only then do the two differ by more than a token per call
    rows = []
    for order in result.orders:
        ends = (_gib(order.knee_bytes_rank), _gib(order.saturation_bytes_rank))
        rows.append([order.name, *(_gib(size) for _, size in order.coverage_shares), *ends])
        if gpu:
            rows.append(["  restored", *(_gib(size) for _, size in order.recovery_shares), "", ""])
    shares = [f"{share:.0%}" for share, _ in result.orders[0].coverage_shares]
    title = "GiB per rank for a share of the best coverage" + (" (and of the most that can be restored)" if gpu else "")
    return f"{title}\n" + table(rows, ["order", *shares, "knee", "all"])


def _lmcache(result: SizeResult) -> str:
    advice = result.recommendation
    if not advice.host_bytes_rank:
        return ""
    lmcache = advice.lmcache
    kept = lmcache.trigger_watermark * (1 - lmcache.eviction_ratio)
    return (
        "LMCache    in-process: "
        f"LMCACHE_CHUNK_SIZE={lmcache.chunk_size} LMCACHE_MAX_LOCAL_CPU_SIZE={lmcache.max_local_cpu_size_gib:g} "
        "(GiB, per rank)\n"
        f"           server:     lmcache server --chunk-size {lmcache.chunk_size} --l1-size-gb "
        f"{lmcache.l1_size_gib:g} --eviction-policy LRU (all ranks; it keeps {kept:.0%} of that at worst)"
    )
