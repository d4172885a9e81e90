"""The whole set of probes on this GPU machine, once: JSON into a folder, a block for docs/measurements.md on stdout.

Run as ``python -m tests.gpu.measure [FOLDER]``; a torch that is there already will do, nothing is installed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.cli_runner import eactl

MODELS = (("Qwen3-Coder-30B-A3B", 8), ("Qwen2.5-Coder-32B", 8), ("Llama-3.1-8B", 1))


def main() -> None:
    """Run everything; a command that fails is reported in the block and does not stop the others."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "gpu-measurements")
    folder.mkdir(parents=True, exist_ok=True)
    runs: dict[str, tuple[str, ...]] = {
        "host": ("host",),
        "h2d": ("h2d", "--numa", "all", "--model", "Qwen3-Coder-30B-A3B", "--tp", "8", "--chunk-tokens", "1024"),
        "bound": ("prefill", "--method", "bound", "--model", "Qwen3-Coder-30B-A3B", "--tp", "8"),
    }
    for model, tp in MODELS:
        runs[f"obr-{model}-tp{tp}"] = ("obr", "--model", model, "--tp", str(tp))
    runs["obr-quick"] = ("obr", "--quick", "--model", MODELS[0][0], "--tp", str(MODELS[0][1]))
    lines = []
    for name, arguments in runs.items():
        path = folder / f"{name}.json"
        begin = time.monotonic()
        result = eactl("probe", *arguments, "-o", path, "--force")
        seconds = time.monotonic() - begin
        command = " ".join(("eactl probe", *arguments))
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1]
            lines.append(f"| `{command}` | {seconds:.0f} | failed: {last} |")
            continue
        lines.append(f"| `{command}` | {seconds:.0f} | {_summary(json.loads(path.read_bytes()))} |")
    print("\n".join([_machine(folder), "", "| command | s | result |", "|---|---|---|", *lines]))


def _machine(folder: Path) -> str:
    """The heading of the block: GPUs, driver, processor, memory, torch and date, as the documents have them."""
    documents = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    host: dict[str, Any] = next((d for d in documents if d["schema"] == "eactl.host/1"), {})
    names = [gpu["name"] for gpu in host.get("gpus", [])]
    parts = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)] or ["no GPU"]
    parts += [f"driver {host['driver']}"] if host.get("driver") else []
    if memory := host.get("memory"):
        parts.append(f"{memory['cpu']}, {memory['cpus_usable']} CPUs, {memory['total_bytes'] / (1 << 30):.0f} GiB")
    versions = {d["environment"]["torch"] for d in documents if "torch" in d.get("environment", {})}
    parts += [f"torch {version}" for version in sorted(versions)]
    return f"## {'; '.join(parts)} ({time.strftime('%Y-%m-%d')})"


def _summary(document: dict[str, Any]) -> str:
    names = (
        "available_to_tier_gib", "bandwidth_gib_s", "d2h_gib_s", "pageable_gib_s", "concurrent_gib_s", "overhead_us",
        "us_per_token", "quadratic_us_per_token2", "limit_obr", "break_even_tokens", "flop_per_host_byte", "verdict",
    )  # fmt: skip
    found = [(name, document.get(name)) for name in names]
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in found
                     if value is not None)  # fmt: skip


if __name__ == "__main__":
    main()
