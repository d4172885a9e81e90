"""Running a plan: real processes that behave as servers do, well and badly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from eactl.errors import CannotRunHereError
from eactl.serving.logs import reason
from eactl.serving.plan import Plan, Process, Tier
from eactl.serving.run import run_plan

TIER = Tier(1, 1, 1, 1, 1, (0.1, 0.2))
SERVER = """
import http.server, sys, os, signal, subprocess, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
print("hello from", os.environ["NAME"], flush=True)
if "--helper" in sys.argv:
    print("helper", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]).pid, flush=True)
if "--fail-after" in sys.argv:
    def fail():
        time.sleep(1); print("RuntimeError: the disk is on fire", flush=True); os._exit(7)
    threading.Thread(target=fail).start()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server(name: str, *args: str) -> Process:
    port = free_port()
    argv = (sys.executable, "-c", SERVER, str(port), *args)
    return Process(name, argv, {"NAME": name}, f"http://127.0.0.1:{port}/health")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def gone(pid: int, within_s: float = 10) -> bool:
    deadline_s = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return not alive(pid)


def test_processes_start_in_order_with_prefixed_logs_and_end_together_on_a_signal() -> None:
    lines: list[str] = []
    status = run_plan(
        Plan((server("lmcache"), server("vllm", "--helper")), TIER, None), wait_s=20, write=lines.append,
        ready=lambda: os.kill(os.getpid(), signal.SIGTERM),
    )  # fmt: skip
    assert status == 0
    assert lines[0] == "[lmcache] hello from lmcache" and "[vllm] hello from vllm" in lines
    helper = int(next(line for line in lines if "helper" in line).split()[-1])
    assert gone(helper)  # what a child leaves behind goes with it


def test_the_state_files_of_its_engines_go_with_them_and_no_others(tmp_path: Path) -> None:
    for name in ("tier-8000.json", "tier-8000-dp1.json", "tier-80001.json", "tier-8000-mine.json"):
        (tmp_path / name).touch()
    made = Plan((server("vllm"),), TIER, None, tmp_path / "tier-8000.json")
    run_plan(made, wait_s=20, write=lambda _: None, ready=lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tier-8000-mine.json", "tier-80001.json"]


def test_ctrl_c_is_130() -> None:
    made = Plan((server("vllm"),), TIER, None)
    assert run_plan(made, wait_s=20, write=lambda _: None, ready=lambda: os.kill(os.getpid(), signal.SIGINT)) == 130


def test_a_child_that_fails_ends_the_other_and_its_reason_is_told() -> None:
    lines: list[str] = []
    made = Plan((server("lmcache"), server("vllm", "--fail-after")), TIER, None)
    with pytest.raises(CannotRunHereError, match="vllm ended with status 7: RuntimeError: the disk is on fire"):
        run_plan(made, wait_s=20, write=lines.append, ready=lambda: None)


def test_a_child_that_never_answers_is_given_up_with_the_option_that_waits_longer() -> None:
    sleeping = Process(
        "vllm", (sys.executable, "-c", "import time; time.sleep(60)"), {}, f"http://127.0.0.1:{free_port()}/"
    )
    with pytest.raises(CannotRunHereError, match=r"did not become healthy within 1 s.*--wait"):
        run_plan(Plan((sleeping,), TIER, None), wait_s=1, write=lambda _: None, ready=lambda: None)


def test_what_answers_without_http_is_not_taken_for_a_healthy_server() -> None:
    port = free_port()
    code = f"""
import socket
with socket.create_server(("127.0.0.1", {port})) as listening:
    while True:
        with listening.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(b"\\xff\\x00\\n")
"""
    stranger = Process("vllm", (sys.executable, "-c", code), {}, f"http://127.0.0.1:{port}/")
    with pytest.raises(CannotRunHereError, match="did not become healthy within 2 s"):
        run_plan(Plan((stranger,), TIER, None), wait_s=2, write=lambda _: None, ready=lambda: None)


def test_a_reader_that_leaves_does_not_block_the_servers() -> None:
    def write(_: str) -> None:
        raise BrokenPipeError

    chatty = Process(
        "vllm", (sys.executable, "-c", "print('x' * 5_000_000, flush=True)\nraise SystemExit(3)"), {},
        f"http://127.0.0.1:{free_port()}/",
    )  # fmt: skip
    with pytest.raises(CannotRunHereError, match="ended with status 3"):
        run_plan(Plan((chatty,), TIER, None), wait_s=20, write=write, ready=lambda: None)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_children_end_even_when_serve_is_killed(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path.cwd())!r})
        from tests.serving.test_run import *
        code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
        child = Process("vllm", (sys.executable, "-c", code), {{}}, "http://127.0.0.1:1/")
        run_plan(Plan((child,), TIER, None), wait_s=60, write=lambda line: print(line, flush=True), ready=lambda: None)
    """)
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    child = int(running.stdout.readline().split()[-1])
    assert alive(child)
    running.kill()
    running.wait()
    running.stdout.close()
    assert gone(child)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (["OSError: [Errno 98] Address already in use"], "a port is taken"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried"], "the GPU has too little free memory"),
        (["\x1b[31mValueError: The model's max seq len (4096) is larger\x1b[0m",
          "RuntimeError: Engine core initialization failed. See root cause above."],
         "ValueError: The model's max seq len (4096) is larger"),
        (["all is well"], None),
    ],
)  # fmt: skip
def test_the_reason_is_the_cause_and_not_its_echo(log: list[str], words: str | None) -> None:
    found = reason(log)
    assert found is None if words is None else words in (found or "")
