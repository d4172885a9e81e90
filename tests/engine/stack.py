"""Starting an engine for a test and talking to it."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from eactl.serving.detect import find_installed, version_tuple
from eactl.serving.plan import Plan, Process, Weight, api_server_modules, make_plan
from eactl.serving.run import Child, _answers
from eactl.serving.settings import ServeSettings
from eactl.telemetry.prometheus import totals
from eactl.telemetry.record import TierRecord
from eactl.telemetry.statefile import read_state
from tests.engine.tiny_model import BETA_BYTES

ENV = {
    "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "LMCACHE_TRACK_USAGE": "false",
    "LMCACHE_DISABLE_BANNER": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1",
}  # fmt: skip
CHUNK_TOKENS = 32
# vLLM 0.13's CPU attention gives other tokens once a prefix is found in its cache, without any connector too.
KEEPS_TOKENS = version_tuple(find_installed("cpu").vllm or "") >= (0, 32)
STARTED_PIDS: set[int] = set()  # what must be gone when the tests are over
STARTED_SHM: set[str] = set()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Engine:
    """A running stack: the plan's processes, the API's address, where the plugin publishes."""

    plan: Plan
    url: str
    status_url: str
    state_file: Path
    log_file: IO[str]
    children: list[Child] = field(default_factory=list)

    def complete(self, prompt: Sequence[int], max_tokens: int = 16, **body: Any) -> dict[str, Any]:
        """A greedy completion of token ids; the reply's JSON with ``token_ids`` of the output."""
        request = {"model": "tiny", "prompt": list(prompt), "max_tokens": max_tokens, "temperature": 0,
                   "ignore_eos": True, "return_token_ids": True, **body}  # fmt: skip
        return post(f"{self.url}/v1/completions", request)

    def start(self, process: Process) -> None:
        """Start one process and wait until it is healthy."""
        child = Child(process, lambda line: print(line, file=self.log_file, flush=True))
        self.children.append(child)
        STARTED_PIDS.add(child.pid)
        wait_for(lambda: _ready(child), 400, f"{process.name} to be healthy")

    def output(self, prompt: Sequence[int], max_tokens: int = 16, **body: Any) -> list[int]:
        return list(self.complete(prompt, max_tokens, **body)["choices"][0]["token_ids"])

    def metrics(self) -> dict[str, float]:
        return totals(get(f"{self.url}/metrics"))

    def server(self) -> dict[str, Any]:
        """The LMCache server's ``/status``."""
        return dict(json.loads(get(f"{self.status_url}/status")))

    def server_metrics(self) -> dict[str, float]:
        return totals(get(f"{self.status_url}/metrics"))

    def objects(self) -> int:
        return int(self.server()["storage_manager"]["l1_manager"]["total_object_count"])

    def record(self, after_s: float | None = None, timeout_s: float = 10) -> TierRecord:
        """The plugin's record, one written after ``after_s`` (default: now), so that it has seen what came before."""
        after_s = time.time() if after_s is None else after_s
        return wait_for(lambda: _newer(self.state_file, after_s), timeout_s, "a new record")

    def log(self) -> str:
        return "\n".join(line for child in self.children for line in child.lines)


def _newer(path: Path, after_s: float) -> TierRecord | None:
    try:
        record = read_state(path)
    except (OSError, ValueError):
        return None
    return record if record.at_s > after_s else None


@contextmanager
def engine(
    model: Path, folder: Path, *, policy: str = "conditioned", host_mib: int = 64, connector: bool = True,
    vllm: Sequence[str] = (), env: dict[str, str] | None = None, extra: dict[str, Any] | None = None,
    evict_every_s: float = 1.0, **settings: Any,
) -> Iterator[Engine]:  # fmt: skip
    """A stack of serve's own plan on free ports, ended when the block is left.

    ``extra`` goes into the connector's configuration; ``connector`` False serves without any tier.
    """
    port = free_port()
    options = ServeSettings(
        model=str(model), policy=policy, device="cpu", port=port, chunk_tokens=CHUNK_TOKENS,
        state_file=folder / "tier.json",
        vllm_args=("--served-model-name", "tiny", "--enforce-eager", "--max-num-seqs", "8", *vllm), **settings,
    )  # fmt: skip
    ports = (free_port(), free_port())
    plan = make_plan(options, Weight(BETA_BYTES, 1), host_mib << 20, api_server=api_server_modules()[0], ports=ports)
    if plan.shm_file:
        STARTED_SHM.add(plan.shm_file)
    log = (folder / "engine.log").open("a")
    stack = Engine(plan, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{ports[1]}", folder / "tier.json", log)
    # Everything that has to die with the test is in our own process group's children.
    os.environ.update({**ENV, **(env or {})})
    processes = [adapted(process, extra or {}, connector, evict_every_s) for process in plan.processes]
    try:
        for process in processes if connector else processes[-1:]:
            stack.start(process)
        yield stack
    finally:
        for child in reversed(stack.children):
            child.end(20)
        if plan.shm_file:
            Path(plan.shm_file).unlink(missing_ok=True)
        for name in env or {}:
            os.environ.pop(name, None)
        log.close()


# LMCache looks at its watermark once a second, too seldom for a run of some seconds.
_FAST_EVICTION = """
import types, lmcache.v1.distributed.storage_controllers.eviction_controller as controller
time = controller.time
controller.time = types.SimpleNamespace(**{**vars(time), "sleep": lambda s: time.sleep(s * %s)})
"""


def adapted(process: Process, extra: dict[str, Any], connector: bool, evict_every_s: float) -> Process:
    """The process with ``extra`` in its connector's configuration, or without a connector; or a quicker server."""
    argv = list(process.argv)
    if process.name == "lmcache" and evict_every_s != 1:
        argv[2] = _FAST_EVICTION % evict_every_s + argv[2]
    if "--kv-transfer-config" in argv:
        at = argv.index("--kv-transfer-config")
        if not connector:
            del argv[at : at + 2]
        else:
            transfer = json.loads(argv[at + 1])
            transfer.update({key: extra[key] for key in extra if key.startswith("kv_connector")})
            others = {key: extra[key] for key in extra if not key.startswith("kv_connector")}
            transfer["kv_connector_extra_config"].update(others)
            argv[at + 1] = json.dumps(transfer)
    return replace(process, argv=tuple(argv))


def _ready(child: Child) -> bool:
    if child.status is not None:
        raise AssertionError(f"{child.process.name} ended with {child.status}:\n" + "\n".join(list(child.lines)[-60:]))
    return _answers(child.process.ready_url)


def wait_for(condition: Any, timeout_s: float, what: str) -> Any:
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.05)
    return value


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(response.read().decode())


def post(url: str, body: dict[str, Any], timeout_s: float = 120) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return dict(json.loads(response.read()))
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url} answered {error.code}: {error.read().decode()[:500]}") from None
