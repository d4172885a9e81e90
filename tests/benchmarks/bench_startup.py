"""Start-up: CPU time of ``eactl --help`` beside an empty interpreter, in one run. The contract allows 0.15 s."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

RUNS = 15


def cpu_s(*arguments: str) -> float:
    """Median CPU seconds (user and system) of RUNS starts of this interpreter."""
    samples = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        samples.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return statistics.median(samples)


def main() -> None:
    """Print a row for each start and its ratio to the empty one."""
    commands = {
        "python -c pass": ("-c", "pass"),
        "import click": ("-c", "import click"),
        "eactl --help": ("-m", "eactl", "--help"),
        "eactl size --help": ("-m", "eactl", "size", "--help"),
    }
    empty = cpu_s("-c", "pass")
    print(f"{'start':<20} {'CPU s':>8} {'ratio':>7}")
    for name, arguments in commands.items():
        seconds = cpu_s(*arguments)
        print(f"{name:<20} {seconds:>8.3f} {seconds / empty:>6.1f}x")


if __name__ == "__main__":
    main()
