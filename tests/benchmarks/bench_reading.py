"""How fast traces are read, against the bare JSON decoder on the same lines, and how much memory it takes.

The input is made here: lines like those of the public Mooncake traces (about 284 bytes, 31 ids), 100 MB of them, and
the same workload in other formats. Each figure is the best of three passes of processor time on one core. The ratio
compares with a loop that decodes each line with orjson and throws the result away: what no reader can beat.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import orjson

from eactl.trace import open_trace

TARGET_MB = 100
TARGET_MB_PER_S = 60
PASSES = 3


def mooncake_lines(seed: int = 0) -> Iterator[dict[str, object]]:
    """Requests of about 15,000 tokens in blocks of 512; every fourth extends an earlier one."""
    draw = np.random.default_rng(seed)
    recent: list[list[int]] = []
    next_id, clock = 0, 0
    while True:
        tokens = int(draw.lognormal(8.95, 0.9)) + 1
        blocks = -(-tokens // 512)
        start = recent[int(draw.integers(len(recent)))][:-1] if recent and draw.random() < 0.25 else []
        ids = [*start[:blocks], *range(next_id, next_id + max(0, blocks - len(start)))]
        next_id += max(0, blocks - len(start))
        recent = [*recent[-200:], ids]
        clock += int(draw.integers(0, 600))
        yield {"timestamp": clock, "input_length": tokens, "output_length": int(draw.integers(1, 900)), "hash_ids": ids}


def write_inputs(folder: Path) -> dict[str, Path]:
    """The same requests as plain and gzip Mooncake, extended Mooncake and native blocks."""
    plain, extended, native = folder / "mooncake.jsonl", folder / "extended.jsonl", folder / "native.jsonl"
    size = 0
    header = {"schema": "eactl.trace/1", "prompt": "blocks", "block_tokens": 512}
    with plain.open("wb") as one, extended.open("wb") as two, native.open("wb") as three:
        three.write(orjson.dumps(header) + b"\n")
        for number, line in enumerate(mooncake_lines()):
            text = orjson.dumps(line).replace(b",", b", ").replace(b":", b": ") + b"\n"
            size += one.write(text)
            two.write(orjson.dumps({**line, "block_size": 512, "session_id": f"s{number}", "delay": 5}) + b"\n")
            full = line["input_length"] // 512  # type: ignore[operator]
            prompt = {"blocks": line["hash_ids"][:full], "tokens": line["input_length"]}  # type: ignore[index]
            call = {"task": f"s{number}", "call": 0, "arrival_s": line["timestamp"], "gap_s": None, "prompt": prompt,
                    "output": {"tokens": 5}, "service_s": None, "salt": None, "model": None}  # fmt: skip
            three.write(orjson.dumps(call) + b"\n")
            if size > TARGET_MB * 1_000_000:
                break
    zipped = folder / "mooncake.jsonl.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes(), 1))
    return {"mooncake": plain, "mooncake, gzip": zipped, "mooncake, sessions": extended, "native blocks": native}


def best_s(work: Callable[[], int]) -> tuple[float, int]:
    """Processor seconds of the best pass, and what the work counted."""
    best, counted = float("inf"), 0
    for _ in range(PASSES):
        start = time.process_time()
        counted = work()
        best = min(best, time.process_time() - start)
    return best, counted


def read_all(path: Path) -> int:
    """Take every call of a trace."""
    calls = 0
    for _ in open_trace([path]):
        calls += 1
    return calls


def decode_all(path: Path) -> int:
    """Decode every line and keep nothing."""
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).split(b"\n")[:-1]
    for line in lines:
        orjson.loads(line)
    return len(lines)


def peak_mib(path: Path, calls: int | None) -> int:
    """Peak memory of a process of its own that takes ``calls`` calls of a trace (None: all)."""
    code = (
        "import sys; from itertools import islice; from pathlib import Path; from eactl.trace import open_trace; "
        f"sum(1 for _ in islice(open_trace([Path(sys.argv[1])]), {calls})); "
        "lines = Path('/proc/self/status').read_text().splitlines(); "
        "print(next(line for line in lines if line.startswith('VmHWM')).split()[1])"
    )
    return int(subprocess.check_output([sys.executable, "-c", code, str(path)])) // 1024


def main() -> None:
    """Print the table."""
    print(f"{'input':<20} {'calls':>8} {'MB':>6} {'read MB/s':>10} {'bare MB/s':>10} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        paths = write_inputs(Path(folder))
        speed_mb_s = {}
        for name, path in paths.items():
            plain = paths["mooncake"] if path.suffix == ".gz" else path
            megabytes = plain.stat().st_size / 1e6
            read_s, calls = best_s(lambda path=path: read_all(path))  # type: ignore[misc]
            bare_s, _ = best_s(lambda path=path: decode_all(path))  # type: ignore[misc]
            speed_mb_s[name] = megabytes / read_s
            print(f"{name:<20} {calls:>8,} {megabytes:>6.0f} {megabytes / read_s:>10.0f} {megabytes / bare_s:>10.0f} "
                  f"{read_s / bare_s:>6.2f}")  # fmt: skip
        verdict = "reached" if speed_mb_s["mooncake"] >= TARGET_MB_PER_S else "NOT reached"
        print(f"target {TARGET_MB_PER_S} MB/s for mooncake: {verdict}")
        if Path("/proc/self/status").exists():
            first, whole = peak_mib(paths["mooncake"], 1), peak_mib(paths["mooncake"], None)
            print(f"peak memory: {first} MiB after the first call, {whole} MiB after all of them")


if __name__ == "__main__":
    main()
