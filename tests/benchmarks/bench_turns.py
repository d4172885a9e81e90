"""What a turn costs as its session grows: eight times the turns in one session, which is eight times the work if a
turn costs what it adds.

    python tests/benchmarks/bench_turns.py

Logs that append (a Claude Code transcript, a Codex rollout) are read by the reader alone (``requests``), by
condenser-check (``check``) and into the reuse model (``size``). A log of whole requests repeats the conversation on
every line, so that parsing it as JSON alone grows with the square of the session: here the last column is the share
of the time that is not that, for the longer session against the shorter one. Processor time, best of three; the
ratios are of one run.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import orjson
from tabulate import tabulate

from eactl.condense.check import CheckSettings, check
from eactl.trace import open_trace
from eactl.trace.chatlog import open_chat
from eactl.trace.workload import load_workload

TIMES = 8
PASSES = 3
_WORDS = ("return", "self.value", "(index,", "None)", "for", "in", "range(10):", "import", "0x1f", "\n")


def words(rng: random.Random, number: int) -> str:
    """Text that looks like code to a tokenizer."""
    return " ".join(f"{rng.choice(_WORDS)}{rng.randrange(100)}" for _ in range(number))


def at(second: int) -> str:
    """A time of the log."""
    return datetime.fromtimestamp(1.7e9 + second, tz=timezone.utc).isoformat(timespec="milliseconds")


def transcript(path: Path, turns: int) -> None:
    """A Claude Code session that is never compacted."""
    rng = random.Random(0)
    parent, lines = None, []
    tokens = 26_000

    def line(kind: str, message: dict[str, object]) -> None:
        nonlocal parent
        uuid = f"u{len(lines)}"
        lines.append(orjson.dumps({"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s",
                                   "isSidechain": False, "timestamp": at(len(lines)), "message": message}))  # fmt: skip
        parent = uuid

    line("user", {"role": "user", "content": words(rng, 40)})
    for turn in range(turns):
        usage = {"input_tokens": 3, "cache_read_input_tokens": tokens, "cache_creation_input_tokens": 100,
                 "output_tokens": 9}  # fmt: skip
        call = {"type": "tool_use", "id": f"t{turn}", "name": "Read", "input": {"path": f"/src/{turn}.py"}}
        line("assistant", {"id": f"m{turn}", "role": "assistant", "model": "m", "usage": usage, "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": words(rng, 40)}
        line("user", {"role": "user", "content": [result]})
        tokens += 100
    path.write_bytes(b"\n".join(lines) + b"\n")


def rollout(path: Path, turns: int) -> None:
    """A Codex session."""
    rng = random.Random(0)
    lines = []

    def line(kind: str, payload: dict[str, object]) -> None:
        lines.append(orjson.dumps({"timestamp": at(len(lines)), "type": kind, "payload": payload}))

    line("session_meta", {"id": "s", "instructions": words(rng, 200)})
    for turn in range(turns):
        line("response_item", {"type": "message", "role": "user",
                               "content": [{"type": "input_text", "text": words(rng, 40)}]})  # fmt: skip
        line("response_item", {"type": "message", "role": "assistant",
                               "content": [{"type": "output_text", "text": words(rng, 10)}]})  # fmt: skip
        last = {"input_tokens": 1_000 + 100 * turn, "cached_input_tokens": 0, "output_tokens": 20}
        total = {**last, "input_tokens": (turn + 1) * 100_000}
        line("event_msg", {"type": "token_count", "info": {"last_token_usage": last, "total_token_usage": total}})
    path.write_bytes(b"\n".join(lines) + b"\n")


def requests_log(path: Path, turns: int) -> None:
    """Whole requests, one a line."""
    rng = random.Random(0)
    messages = [{"role": "system", "content": words(rng, 200)}, {"role": "user", "content": words(rng, 40)}]
    with path.open("wb") as out:
        for turn in range(turns):
            out.write(orjson.dumps({"session": "s", "turn": turn, "messages": messages}) + b"\n")
            messages += [{"role": "assistant", "content": words(rng, 10)}, {"role": "user", "content": words(rng, 40)}]


def read_requests(path: Path) -> int:
    return sum(1 for _ in open_chat([path]))


def read_check(path: Path) -> int:
    return sum(len(session.turns) for session in check(open_chat([path]), CheckSettings()).sessions)


def read_size(path: Path) -> int:
    return len(load_workload(open_trace([path])))


def parse(path: Path) -> int:
    """Parse the lines and forget them."""
    with path.open("rb") as lines:
        return sum(1 for line in lines if orjson.loads(line))


WAYS: dict[str, Callable[[Path], int]] = {"requests": read_requests, "check": read_check, "size": read_size}


def seconds(way: Callable[[Path], int], path: Path, turns: int) -> float:
    """Processor seconds of the best pass."""
    best = float("inf")
    for _ in range(PASSES):
        start = time.process_time()
        if way(path) != turns:
            raise RuntimeError(f"{path} has not {turns} requests")
        best = min(best, time.process_time() - start)
    return best


def appended(folder: Path) -> None:
    """Logs in which a turn is an addition."""
    rows = []
    for name, write, turns in (("Claude Code", transcript, 250), ("Codex", rollout, 250)):
        short, long = folder / "short.jsonl", folder / "long.jsonl"
        write(short, turns)
        write(long, TIMES * turns)
        for way, read in WAYS.items():
            one, other = seconds(read, short, turns), seconds(read, long, TIMES * turns)
            rows.append([name, way, turns, f"{one / turns * 1e6:.0f}", TIMES * turns,
                         f"{other / turns / TIMES * 1e6:.0f}", f"{other / one:.1f}"])  # fmt: skip
    print(tabulate(rows, ["log", "way", "turns", "µs each", "turns", "µs each", f"time (linear: {TIMES})"]))


def repeated(folder: Path) -> None:
    """A log in which each line holds the conversation so far."""
    rows = []
    short, long, turns = folder / "short.jsonl", folder / "long.jsonl", 60
    requests_log(short, turns)
    requests_log(long, TIMES * turns)
    plain = seconds(parse, short, turns), seconds(parse, long, TIMES * turns)
    rows.append(["parse JSON", f"{plain[0] / turns * 1e6:.0f}", f"{plain[1] / turns / TIMES * 1e6:.0f}",
                 f"{plain[1] / plain[0]:.1f}", "1.0", "1.0"])  # fmt: skip
    for way, read in WAYS.items():
        one, other = seconds(read, short, turns), seconds(read, long, TIMES * turns)
        rows.append([way, f"{one / turns * 1e6:.0f}", f"{other / turns / TIMES * 1e6:.0f}", f"{other / one:.1f}",
                     f"{one / plain[0]:.1f}", f"{other / plain[1]:.1f}"])  # fmt: skip
    print(tabulate(rows, ["whole requests", f"µs each, {turns} turns", f"µs each, {TIMES * turns} turns",
                          f"time (linear: {TIMES})", "× JSON, short", "× JSON, long"]))  # fmt: skip


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        appended(Path(folder))
        print()
        repeated(Path(folder))


if __name__ == "__main__":
    main()
