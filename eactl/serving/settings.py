"""What ``eactl serve`` was asked for: defaults and cross-checks in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eactl.errors import UsageError

POLICIES = ("none", "fixed", "conditioned", "lazy")
MODES = ("multi-process", "in-process")

# vLLM options that serve sets itself -> what to give instead
_OURS = {
    "--model": "--model", "--host": "--host", "--port": "--port", "--tensor-parallel-size": "--tp", "-tp": "--tp",
    "--pipeline-parallel-size": "--pp", "-pp": "--pp", "--data-parallel-size": "--dp", "-dp": "--dp",
    "--kv-cache-dtype": "--kv-dtype",
}  # fmt: skip
_REFUSED = {
    "--kv-transfer-config": "serve writes it: choose with --policy and --mode",
    "--kv-offloading-size": "that is vLLM's own offloading, a second tier beside this one: leave it out",
    "--kv-offloading-backend": "that is vLLM's own offloading, a second tier beside this one: leave it out",
    "--api-key": "a key on a command line can be read by every user: set VLLM_API_KEY in the environment",
    "--no-enable-prefix-caching": "a tier without a GPU prefix cache restores every prompt at every turn: leave it out",
}


@dataclass(frozen=True, slots=True)
class ExternalServer:
    """An LMCache multi-process server that somebody else started: its queue and its HTTP port."""

    host: str
    port: int
    http_port: int

    @classmethod
    def parse(cls, text: str) -> ExternalServer:
        host, *rest = text.rsplit(":", 2)
        ports = [int(part) for part in rest if part.isdigit() and 0 < int(part) < 65536]
        if not host or len(ports) != 2:
            raise UsageError(
                f"not a server: {text!r}", where="--lmcache-server", hint="write it as HOST:PORT:HTTP_PORT"
            )
        return cls(host, *ports)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Everything that decides a launch plan. Raises UsageError naming the option.

    ``host_gib`` is per rank, None for "auto". Ports of None are chosen when the plan is made.
    """

    model: str
    policy: str = "conditioned"
    mode: str = "multi-process"
    host_gib: float | None = None
    device: str = "cuda"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    kv_dtype: str = "auto"
    chunk_tokens: int = 256
    host: str = "127.0.0.1"
    port: int = 8000
    lmcache_port: int | None = None
    lmcache_http_port: int | None = None
    lmcache_servers: tuple[ExternalServer, ...] = ()
    kappa_chunks: int | None = None
    theta: float = 0.95
    window_s: float = 60.0
    watermark: float = 0.8
    eviction_ratio: float = 0.2
    state_file: Path | None = None
    vllm_args: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"unknown policy {self.policy!r}", where="--policy", hint=f"use {', '.join(POLICIES)}")
        if self.mode not in MODES:
            raise UsageError(f"unknown mode {self.mode!r}", where="--mode", hint=f"use {' or '.join(MODES)}")
        if self.policy == "lazy" and self.mode != "multi-process":
            raise UsageError(
                "lazy offload exists in LMCache's multi-process mode only", where="--policy lazy with --mode",
                hint="leave --mode out",
            )  # fmt: skip
        if self.lmcache_servers and self.mode != "multi-process":
            raise UsageError(
                "a server is of no use in-process", where="--lmcache-server with --mode", hint="leave one of them out"
            )
        if self.lmcache_servers and (self.lmcache_port or self.lmcache_http_port):
            raise UsageError(
                "the ports are those of a server that serve starts itself",
                where="--lmcache-port with --lmcache-server",
                hint="leave one of them out",
            )  # fmt: skip
        if self.host_gib is not None and not self.host_gib > 0:
            raise UsageError(f"a tier of {self.host_gib:g} GiB", where="--host-gib", hint="give a size above 0")
        for name, value in (("--theta", self.theta), ("--eviction-watermark", self.watermark)):
            if not 0 < value <= 1:
                raise UsageError(f"{value:g} is no share", where=name, hint="give a number above 0 and at most 1")
        if not 0 < self.eviction_ratio < 1:
            raise UsageError(
                f"{self.eviction_ratio:g} is no share", where="--eviction-ratio", hint="give a number between 0 and 1"
            )
        if not self.window_s > 0:
            raise UsageError(f"a window of {self.window_s:g} s", where="--window-s", hint="give a time above 0")
        ports = [port for port in (self.port, self.lmcache_port, self.lmcache_http_port) if port]
        if len(set(ports)) < len(ports):
            raise UsageError("one port is given twice", where="--port, --lmcache-port, --lmcache-http-port",
                             hint="give three different ones")  # fmt: skip
        check_vllm_args(self.vllm_args)
        block = self.block_tokens
        if block is not None and self.chunk_tokens % block:
            raise UsageError(
                f"chunks of {self.chunk_tokens} tokens are no whole number of blocks of {block}",
                where="--chunk-tokens and --block-size",
                hint=f"use --chunk-tokens {max(1, round(self.chunk_tokens / block)) * block}",
            )

    @property
    def ranks(self) -> int:
        """Worker processes of all data-parallel engines together."""
        return self.tp * self.pp * self.dp

    @property
    def block_tokens(self) -> int | None:
        """vLLM's block size, if it was given; serve gives 32 on a CPU."""
        given = option_value(self.vllm_args, "--block-size")
        if given is None:
            return 32 if self.device == "cpu" else None
        if not given.isdigit() or int(given) < 1:
            raise UsageError(f"not a block size: {given!r}", where="--block-size", hint="give a number of tokens")
        return int(given)


def check_vllm_args(args: Sequence[str]) -> None:
    """Refuse what serve sets itself among the options after ``--``."""
    for arg in args:
        name = canonical(arg)
        if name in _OURS:
            raise UsageError(f"{arg.split('=')[0]} after '--' is set by serve", where=name,
                             hint=f"give it before '--', as {_OURS[name]}")  # fmt: skip
        if name in _REFUSED:
            raise UsageError(f"{arg.split('=')[0]} after '--' cannot be used here", where=name, hint=_REFUSED[name])


def canonical(arg: str) -> str:
    """``--Block_size=16`` as ``--block-size``; other words as they are."""
    if not arg.startswith("-"):
        return arg
    name = arg.split("=", 1)[0]
    return name.replace("_", "-") if name.startswith("--") else name


def option_value(args: Sequence[str], name: str) -> str | None:
    """The value of an option among vLLM's arguments (``--x v`` or ``--x=v``), the last one if it is repeated."""
    value = None
    for index, arg in enumerate(args):
        if canonical(arg) == name:
            value = arg.split("=", 1)[1] if "=" in arg else args[index + 1] if index + 1 < len(args) else None
    return value
