"""Reading text logs: a directory of Claude Code transcripts, one large request log, and directories of as much.

    python tests/benchmarks/bench_text.py [MIB]

``MIB`` is the size of the large logs (default 1024). Each is read twice, in a process of its own whose seconds and
peak memory are shown: request by request (``stream``), and into the reuse model (``size``). Seconds belong to the
machine they were measured on; the last column compares reading a log with parsing its lines as JSON and no more.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import orjson

BEGIN = """
import resource, sys, time
from pathlib import Path
began = time.perf_counter()
"""
SIZE = """
from eactl.trace import open_trace
from eactl.trace.workload import load_workload
work = load_workload(open_trace([Path(sys.argv[1])]))
calls, tokens = len(work), int(work.prompt_tokens.sum())
"""
STREAM = """
from eactl.trace.chatlog import open_chat
from eactl.trace.prompts import PromptEncoder
encoder, calls, tokens = PromptEncoder(), 0, 0
for request in open_chat([Path(sys.argv[1])]):
    calls += 1
    tokens += encoder.encode(request).tokens
"""
END = """
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(calls, tokens, time.perf_counter() - began, peak)
"""
WAYS = {"stream": STREAM, "size": SIZE}


def words(rng: random.Random, characters: int) -> str:
    """Text that looks like code to a tokenizer."""
    vocabulary = (
        "return",
        "self.value",
        "(index,",
        "None)",
        "for",
        "in",
        "range(10):\n    ",
        "import",
        "=",
        "\n",
        "0x1f",
    )
    pieces: list[str] = []
    size = 0
    while size < characters:
        piece = f"{rng.choice(vocabulary)}{rng.randrange(10**6)}" if rng.random() < 0.1 else rng.choice(vocabulary)
        pieces.append(piece)
        size += len(piece) + 1
    return " ".join(pieces)


def write_transcript(path: Path, rng: random.Random, session: str, size_bytes: int, start_s: float) -> None:
    """A Claude Code transcript: tool loops, half of the lines progress, usage that grows with the text."""
    parent, number, written, prompt_tokens = None, 0, 0, 26_000
    with path.open("wb") as out:

        def line(kind: str, **fields: object) -> str:
            nonlocal parent, number, written
            number += 1
            uuid = f"{session}-{number}"
            moment = datetime.fromtimestamp(start_s + number, tz=timezone.utc)
            record = {"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": session, "isSidechain": False,
                      "timestamp": moment.isoformat(timespec="milliseconds"), **fields}  # fmt: skip
            data = orjson.dumps(record) + b"\n"
            out.write(data)
            written += len(data)
            parent = uuid
            return uuid

        line("user", message={"role": "user", "content": words(rng, 400)})
        call = 0
        while written < size_bytes:
            call += 1
            usage = {"input_tokens": 3, "cache_read_input_tokens": prompt_tokens, "cache_creation_input_tokens": 500,
                     "output_tokens": 9}  # fmt: skip
            reply = {"id": f"msg-{session}-{call}", "role": "assistant", "model": "m", "usage": usage}
            line("assistant", message={**reply, "content": [{"type": "text", "text": words(rng, 300)}]})
            tool = {"type": "tool_use", "id": f"t{call}", "name": "Read", "input": {"path": f"/src/{call}.py"}}
            line("assistant", message={**reply, "content": [tool]})
            for _ in range(4):
                line("progress", data={"type": "hook", "text": words(rng, 500)})
            answer = words(rng, rng.randrange(500, 6000))
            content = [{"type": "tool_result", "tool_use_id": f"t{call}", "content": answer}]
            line("user", message={"role": "user", "content": content})
            prompt_tokens += 500 + (len(answer) + 400) // 4
            if prompt_tokens > 160_000:
                parent, prompt_tokens = None, 40_000
                line("system", subtype="compact_boundary")
                line("user", isCompactSummary=True, message={"role": "user", "content": words(rng, 12_000)})


def write_directory(folder: Path, rng: random.Random, total_bytes: int, file_bytes: int) -> Path:
    """Transcripts of ``file_bytes`` each, about four of them at work at any time."""
    folder.mkdir()
    for number in range(max(1, total_bytes // file_bytes)):
        start_s = 1.7e9 + number * file_bytes / 4 / 1000  # a line has about 1,000 bytes and takes a second
        write_transcript(folder / f"s{number:04}.jsonl", rng, f"s{number:04}", file_bytes, start_s)
    return folder


def write_requests(path: Path, rng: random.Random, total_bytes: int, agents: int = 32) -> Path:
    """A request log of interleaved agents, every line with its whole prompt, up to about 150K tokens."""
    system = {"role": "system", "content": words(rng, 20_000)}
    talks: list[list[dict[str, str]]] = []
    names: list[int] = []
    written = made = 0
    with path.open("wb") as out:
        while written < total_bytes:
            while len(talks) < agents:
                talks.append([system, {"role": "user", "content": words(rng, 2000)}])
                names.append(made)
                made += 1
            at = rng.randrange(len(talks))
            data = orjson.dumps({"session": f"s{names[at]}", "messages": talks[at]}) + b"\n"
            out.write(data)
            written += len(data)
            talks[at] += [
                {"role": "assistant", "content": words(rng, 600)}, {"role": "user", "content": words(rng, 9000)}
            ]  # fmt: skip
            if len(data) > 540_000:
                del talks[at], names[at]
    return path


def json_s(path: Path) -> float:
    """Seconds to parse all lines and forget them."""
    began = time.perf_counter()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        with file.open("rb") as lines:
            for line in lines:
                orjson.loads(line)
    return time.perf_counter() - began


def main() -> None:
    """Make the logs, read each in a process of its own, print a table."""
    large = int(sys.argv[1] if len(sys.argv) > 1 else 1024) << 20
    rng = random.Random(0)
    print(f"{'log':34}{'MiB':>6} {'way':8}{'requests':>10}{'M tokens':>10}{'s':>8}{'peak MiB':>10}{'× JSON':>8}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        cases = [
            ("Claude Code, 17 MB", write_directory(root / "small", rng, 17_000_000, 2_800_000)),
            ("Claude Code, many files", write_directory(root / "many", rng, large, 8 << 20)),
            ("request log, whole prompts", write_requests(root / "requests.jsonl", rng, large)),
        ]
        for name, path in cases:
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            size = sum(file.stat().st_size for file in files)
            plain = json_s(path)
            for way, code in WAYS.items():
                command = [sys.executable, "-c", BEGIN + code + END, str(path)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                calls, tokens, taken, peak = (json.loads(value) for value in done.stdout.split())
                print(f"{name:34}{size / 2**20:6.0f} {way:8}{calls:10,}{tokens / 1e6:10.1f}{taken:8.1f}{peak:10,}"
                      f"{taken / plain:8.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
