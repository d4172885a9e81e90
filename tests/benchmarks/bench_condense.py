"""condenser-check: the cost of a turn that only grew, how time grows with a session, a large log's peak memory.

Ratios within one run; the absolute figures are this machine's.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tabulate import tabulate

from eactl.condense.check import CheckSettings, check
from eactl.trace.chat import ChatRequest

Message = dict[str, Any]


def growing(turns: int, *, size: int = 2_000, shared: bool = True) -> list[ChatRequest]:
    """One append-only session; with ``shared`` the messages of all requests are the same objects, as readers of
    transcripts make them, else fresh copies, as a log of whole requests has them."""
    messages: list[Message] = [{"role": "system", "content": "rules " * 500}, {"role": "user", "content": "task"}]
    requests = []
    for turn in range(turns):
        made = list(messages) if shared else json.loads(json.dumps(messages))
        requests.append(ChatRequest(session="s", messages=made, turn=turn))
        messages = [*messages, {"role": "assistant", "content": f"answer {turn}"},
                    {"role": "tool", "content": f"result {turn} " + "x y " * (size // 4)}]  # fmt: skip
    return requests


def timed(requests: list[ChatRequest]) -> float:
    start = time.perf_counter()
    check(requests, CheckSettings())
    return time.perf_counter() - start


def sessions() -> None:
    rows = []
    for shared in (True, False):
        base = None
        for turns in (250, 500, 1_000, 2_000) if shared else (125, 250, 500):
            seconds = timed(growing(turns, shared=shared))
            base = base or seconds
            rows.append(["shared objects" if shared else "copies", turns, f"{seconds:.3f}",
                         f"{seconds / turns * 1e6:.0f}", f"{seconds / base:.1f}x"])  # fmt: skip
    print(tabulate(rows, ["messages", "turns", "s", "µs per turn", "against the first"]))


def breaks() -> None:
    """A break near the end of the prompt costs no more than one near its head."""
    rows = []
    for name, place in (("head", 1), ("middle", 500), ("end", 998)):
        requests = growing(501)[-2:]
        changed = [dict(message) for message in requests[1].messages]
        changed[place] = {**changed[place], "content": str(changed[place]["content"]) + " changed"}
        requests[1].messages = [*requests[0].messages[:place], *changed[place:]]
        best = min(timed(requests) for _ in range(5))
        rows.append([name, f"{best * 1e3:.1f}"])
    print(tabulate(rows, ["a message edited at the", "ms for two prompts of 1,000 messages"]))


def large_log(megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "large.jsonl"
        written = session = 0
        with log.open("w") as stream:
            while written < megabytes << 20:
                session += 1
                for request in growing(40, size=4_000):
                    line = {"session": f"s{session}", "turn": request.turn, "messages": request.messages}
                    written += stream.write(json.dumps(line) + "\n")
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "eactl", "condenser-check", str(log), "-o", f"{folder}/out.json"],
                              capture_output=True, text=True, check=True)  # fmt: skip
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(done.stdout.splitlines()[0])
        print(f"{written / 2**20:.0f} MiB in {session} sessions: {seconds:.1f} s, "
              f"{written / 2**20 / seconds:.0f} MiB/s, peak {peak:.0f} MiB")  # fmt: skip


def main() -> None:
    large_log(int(sys.argv[1]) if len(sys.argv) > 1 else 200)  # first: a child starts with its parent's peak memory
    print()
    sessions()
    print()
    breaks()


if __name__ == "__main__":
    main()
