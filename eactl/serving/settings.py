"""What ``eactl serve`` was asked for: defaults and cross-checks in one place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eactl.errors import UsageError

DEFAULT_CHUNK_TOKENS = 256
KAPPA_TOKENS = 8 * 1024
_CPU_BLOCK_TOKENS = 32
_BLOCK_STEP_TOKENS = 64  # a multiple of the smallest block of every attention backend
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

    ``host_gib`` is per rank, None for "auto". Ports of None are chosen when the plan is made. ``state_block_tokens``
    is the least size of an attention block in a model whose other layers keep a state, None for all other models.
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
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS
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
    state_block_tokens: int | None = None

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
        if len(self.lmcache_servers) > 1:
            for option, count in (("--pp", self.pp), ("--dp", self.dp)):
                if count > 1:
                    raise UsageError(
                        f"{count} of them cannot use more than one server, says LMCache",
                        where=f"{option} with --lmcache-server", hint="give one server, or --tp alone",
                    )  # fmt: skip
            if self.ranks % len(self.lmcache_servers):
                raise UsageError(
                    f"{self.ranks} ranks do not divide over {len(self.lmcache_servers)} servers",
                    where="--tp with --lmcache-server", hint="give as many servers as there are nodes",
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
        if not 0 < self.window_s < math.inf:
            raise UsageError(f"a window of {self.window_s:g} s", where="--window-s", hint="give a time above 0")
        ports = [port for port in (self.port, self.lmcache_port, self.lmcache_http_port) if port]
        if len(set(ports)) < len(ports):
            raise UsageError("one port is given twice", where="--port, --lmcache-port, --lmcache-http-port",
                             hint="give three different ones")  # fmt: skip
        check_vllm_args(self.vllm_args)
        block = self.block_tokens
        if block is not None and self.chunk_tokens % block:
            why = " (as large as the states of this model's other layers)" if self.state_block_tokens else ""
            raise UsageError(
                f"chunks of {self.chunk_tokens} tokens are no whole number of blocks of {block}{why}",
                where="--chunk-tokens and --block-size",
                hint=f"use --chunk-tokens {max(1, round(self.chunk_tokens / block)) * block}",
            )

    @property
    def kappa_chunks_or_default(self) -> int:
        """κ as the connector takes it: 8 chunks of 1,024 tokens are the amount of KV that is meant."""
        return self.kappa_chunks if self.kappa_chunks is not None else max(1, KAPPA_TOKENS // self.chunk_tokens)

    @property
    def ranks(self) -> int:
        """Worker processes of all data-parallel engines together."""
        return self.tp * self.pp * self.dp

    @property
    def block_tokens(self) -> int | None:
        """Tokens of an attention block, None where vLLM chooses a size that divides 64."""
        return block_tokens(self.device, self.vllm_args, self.state_block_tokens)

    @property
    def given_block_tokens(self) -> int | None:
        """The block size that serve has to give to vLLM, None where the user gave one or vLLM is to choose."""
        return self.block_tokens if option_value(self.vllm_args, "--block-size") is None else None


def block_tokens(device: str, vllm_args: Sequence[str], state_block_tokens: int | None) -> int | None:
    """Tokens of an attention block in vLLM, None where vLLM chooses a size that divides 64. Raises UsageError.

    vLLM enlarges the blocks of a model with states in steps of the size that it was given.
    """
    given = option_value(vllm_args, "--block-size")
    if given is not None and (not given.isdigit() or int(given) < 1):
        raise UsageError(f"not a block size: {given!r}", where="--block-size", hint="give a number of tokens")
    if state_block_tokens is not None:
        step = int(given) if given else _BLOCK_STEP_TOKENS
        return -(-state_block_tokens // step) * step
    if given is None:
        return _CPU_BLOCK_TOKENS if device == "cpu" else None
    return int(given)


def default_chunk_tokens(block: int | None) -> int:
    """The least whole number of blocks that is no less than LMCache's own chunk size."""
    return -(-DEFAULT_CHUNK_TOKENS // block) * block if block else DEFAULT_CHUNK_TOKENS


def check_vllm_args(args: Sequence[str]) -> None:
    """Refuse what serve sets itself among the options after ``--``."""
    for arg in args:
        given = arg.split("=")[0]
        name = _meant(canonical(arg))
        if name in _OURS:
            raise UsageError(f"{given} after '--' is set by serve", where=name,
                             hint=f"give it before '--', as {_OURS[name]}")  # fmt: skip
        if name in _REFUSED:
            raise UsageError(f"{given} after '--' cannot be used here", where=name, hint=_REFUSED[name])


def _meant(name: str) -> str:
    """The option that vLLM takes ``name`` for: it accepts abbreviations, and ``--option.key`` for a part of one."""
    name = name.split(".")[0]
    if len(name) > len("--x") and name.startswith("--"):
        return next((option for option in (*_OURS, *_REFUSED) if option.startswith(name)), name)
    return name


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
