"""Checks before anything is started: facts of the host and the plan in, findings with their remedies out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eactl.serving.detect import TESTED_LMCACHE, TESTED_VLLM, Installed, version_tuple
from eactl.serving.plan import Tier
from eactl.serving.settings import ServeSettings, canonical, option_value
from eactl.units import GIB, human_bytes

Level = Literal["ok", "warning", "refused"]
HEADROOM = 0.05  # of the machine, for the processes themselves
_SHM = "/dev/shm"  # noqa: S108 - named, not written
_SHM_FOR_MESSAGES_BYTES = 64 << 20
SHM_MARGIN = 1.2  # what others add to the tier for the segment's own needs


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ``text`` says what was found and, unless it is ok, what to do."""

    name: str
    level: Level
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.level == "ok", "level": self.level, "text": self.text}


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the checks need of this machine; None where it is not known. Bytes."""

    free_bytes: int
    limit_bytes: int
    cgroup_limit_bytes: int | None = None
    shm_total_bytes: int | None = None
    shm_free_bytes: int | None = None
    shm_leftovers: tuple[str, ...] = ()
    memlock_bytes: int | None = None
    port_problems: tuple[tuple[str, str], ...] = ()  # (option, what is wrong and what to do with the option)
    devices: int | None = None
    state_folder: str | None = None  # where the state file cannot be written


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the checks need of the model.

    ``hybrid`` has layers that keep a state, ``indexer`` sparse attention with a key cache of its own;
    ``cache_groups`` counts the kinds of cache that vLLM keeps apart.
    """

    mla: bool = False
    hybrid: bool = False
    indexer: bool = False
    cache_groups: int = 1
    block_tokens: int | None = None
    notes: tuple[str, ...] = ()
    unservable: str | None = None


def check(
    settings: ServeSettings, tier: Tier, host: HostFacts, model: ModelFacts, installed: Installed
) -> list[Finding]:
    """All findings, in the order in which a person would want to read them."""
    return [
        *_versions(settings, installed),
        *_device(settings, host),
        *_memory(settings, tier, host),
        *_shared_memory(settings, tier, host),
        *_memlock(settings, tier, host),
        *_ports(settings, host),
        *_state_file(host),
        *_alignment(settings, model),
        *_model(settings, tier, model),
    ]


def _versions(settings: ServeSettings, installed: Installed) -> list[Finding]:
    found = []
    for name, version, tested in (
        ("vllm", installed.vllm, TESTED_VLLM[settings.mode]),
        ("lmcache", installed.lmcache, TESTED_LMCACHE[settings.mode]),
    ):
        low, high = tested
        level: Level
        span = f"{_dotted(low)} up to, not including, {_dotted(high)}"
        if version is None:
            level, text = "refused", f"{name} is not installed here: {installed.install}"
        elif version_tuple(version) < low:
            level, text = "refused", f"{name} {version} is older than {settings.mode} mode needs ({span}): upgrade it"
        elif version_tuple(version) >= high:
            level, text = (
                "warning",
                f"{name} {version} is newer than what was tested ({span}): watch eactl:faults_total",
            )
        else:
            level, text = "ok", f"{name} {version} is in the tested range"
        found.append(Finding(f"{name}-version", level, text))
    return found


def _device(settings: ServeSettings, host: HostFacts) -> list[Finding]:
    if settings.device == "cpu":
        if settings.mode == "in-process":
            return [Finding("device", "refused", "LMCache's in-process mode has no CPU connector: leave --mode out")]
        return [Finding("device", "ok", "no GPU is used: vLLM runs on the CPU, for trials")]
    if host.devices == 0:
        return [Finding("device", "refused", "no NVIDIA GPU is visible here: check nvidia-smi and "
                        "CUDA_VISIBLE_DEVICES, or try it out with --device cpu")]  # fmt: skip
    need = settings.tp * settings.pp * settings.dp
    if host.devices is not None and host.devices < need and "ray" not in settings.vllm_args:
        text = f"{need} ranks on {host.devices} visible GPUs: lower --tp, --pp or --dp, or use several nodes (Ray)"
        return [Finding("device", "refused", text)]
    return [Finding("device", "ok", f"{host.devices or need} GPUs visible, {need} ranks")]


def _memory(settings: ServeSettings, tier: Tier, host: HostFacts) -> list[Finding]:
    if settings.lmcache_servers:
        return [Finding("memory", "ok", "the tier's memory is the given servers' matter")]
    room = host.free_bytes - int(HEADROOM * host.limit_bytes)
    product = f"{tier.ranks} × {human_bytes(tier.bytes_rank)} = {human_bytes(tier.bytes_total)}"
    if tier.bytes_total > room:
        which = "the cgroup limit leaves" if host.cgroup_limit_bytes is not None else "free memory leaves"
        largest = max(0.0, room / tier.ranks / GIB)
        fits = f"--host-gib {largest:.3g}" if largest >= 0.01 else "a machine with more memory"
        text = f"the tier takes {product}, {which} {human_bytes(max(0, room))}: use {fits}"
        return [Finding("memory", "refused", text)]
    return [Finding("memory", "ok", f"the tier takes {product} of {human_bytes(room)} that can be had")]


def _shared_memory(settings: ServeSettings, tier: Tier, host: HostFacts) -> list[Finding]:
    if host.shm_free_bytes is None or host.shm_total_bytes is None:
        return []
    found = []
    if host.shm_leftovers:
        names = ", ".join(host.shm_leftovers[:3])
        text = f"{_SHM} holds buffers of a server that was killed ({names}): remove them if no vLLM runs"
        found.append(Finding("shm-leftovers", "warning", text))
    # On a GPU the server pins memory of its own, and vLLM needs the segment for messages between ranks only.
    in_segment = settings.mode == "multi-process" and settings.device == "cpu" and not settings.lmcache_servers
    need = tier.bytes_total * SHM_MARGIN if in_segment else _SHM_FOR_MESSAGES_BYTES
    free = f"{_SHM} has {human_bytes(host.shm_free_bytes)} free of {human_bytes(host.shm_total_bytes)}"
    if need > host.shm_free_bytes:
        text = (
            f"{free}, {human_bytes(need)} are needed, {human_bytes(need - host.shm_free_bytes)} too little: "
            "raise it (docker run --shm-size, an emptyDir with medium Memory and a larger sizeLimit)"
        )
        return [*found, Finding("shm", "refused", text)]
    return [*found, Finding("shm", "ok", free)]


def _memlock(settings: ServeSettings, tier: Tier, host: HostFacts) -> list[Finding]:
    if settings.device == "cpu":
        return [Finding("memlock", "ok", "nothing is pinned on a CPU")]
    if settings.lmcache_servers:
        return [Finding("memlock", "ok", "the given servers pin the tier")]
    pinned = tier.bytes_total if settings.mode == "multi-process" else tier.bytes_rank
    if host.memlock_bytes is None:
        return [Finding("memlock", "ok", f"the tier pins {human_bytes(pinned)} in one process; no limit binds it")]
    if host.memlock_bytes < pinned:
        allowed = human_bytes(host.memlock_bytes)
        text = (
            f"the tier pins {human_bytes(pinned)} in one process, RLIMIT_MEMLOCK allows {allowed}: CUDA on Linux "
            "usually pins past it, WSL and some drivers do not. If the log says that memory cannot be pinned: "
            "ulimit -l unlimited, LimitMEMLOCK=infinity in the service (containerd.service on Kubernetes), "
            "or docker run --ulimit memlock=-1"
        )
        return [Finding("memlock", "warning", text)]
    text = f"the tier pins {human_bytes(pinned)} in one process, {human_bytes(host.memlock_bytes)} may be locked"
    return [Finding("memlock", "ok", text)]


def _ports(settings: ServeSettings, host: HostFacts) -> list[Finding]:
    if not host.port_problems:
        return [Finding("ports", "ok", f"port {settings.port} is free")]
    text = "; ".join(f"{problem} {option}" for option, problem in host.port_problems)
    return [Finding("ports", "refused", text)]


def _state_file(host: HostFacts) -> list[Finding]:
    if host.state_folder is None:
        return []
    text = f"{host.state_folder} cannot be written, so eactl tail will find nothing there: choose another --state-file"
    return [Finding("state-file", "warning", text)]


def _alignment(settings: ServeSettings, model: ModelFacts) -> list[Finding]:
    block, chunk = settings.block_tokens, settings.chunk_tokens
    if model.hybrid and settings.state_block_tokens is None:
        text = ("vLLM makes attention blocks as large as this model's states, and chunks must be whole blocks: its log "
                "has the number ('Setting attention block size'); give a multiple of it as --chunk-tokens")  # fmt: skip
        return [Finding("alignment", "warning", text)]
    if settings.state_block_tokens is not None:
        text = f"chunks of {chunk} tokens are whole blocks of {block}, which are as large as the model's states"
        return [Finding("alignment", "ok", text)]
    if block is not None:  # divisibility was checked when the settings were made
        return [Finding("alignment", "ok", f"chunks of {chunk} tokens are whole blocks of {block}")]
    if chunk % 64 == 0:
        return [Finding("alignment", "ok", f"chunks of {chunk} tokens are whole blocks of any size vLLM chooses")]
    text = f"chunks of {chunk} tokens may not be whole blocks: use a multiple of 64, or give --block-size after '--'"
    return [Finding("alignment", "warning", text)]


def _model(settings: ServeSettings, tier: Tier, model: ModelFacts) -> list[Finding]:
    found = []
    if model.unservable is not None:
        found.append(Finding("model", "refused", model.unservable))
    if model.mla and settings.tp > 1:
        found.append(Finding("mla-copies", "ok", f"every one of the {settings.tp} ranks has the same latents; LMCache "
                             f"stores them once, so {human_bytes(tier.bytes_total)} serve all of them"))  # fmt: skip
    if model.hybrid:
        if settings.mode == "in-process":
            text = "LMCache's in-process mode stores no recurrent state, so nothing could be restored: leave --mode out"
            found.append(Finding("hybrid", "refused", text))
        elif settings.device == "cpu":
            text = "LMCache's server copies models with recurrent states from and to a GPU only: try another model here"
            found.append(Finding("hybrid", "refused", text))
        else:
            servers = "; start your LMCache server with --separate-object-groups" if settings.lmcache_servers else ""
            found.append(Finding("hybrid", "warning", "a hybrid model restores at whole state snapshots only: watch "
                                 "eactl:restored_tokens_total and eactl tail's never-loaded warning. LMCache #4247 "
                                 "reports wrong text after such restores: compare some answers with --policy none and "
                                 f"without a tier{servers}"))  # fmt: skip
        if _speculative(settings.vllm_args):
            found.append(Finding("speculative", "warning", "speculative decoding on a hybrid model gives up the last "
                                 "chunk of every match, in some versions all of it: compare restored tokens with and "
                                 "without --speculative-config"))  # fmt: skip
    elif model.cache_groups > 1 and settings.device == "cpu" and not _one_group(settings.vllm_args):
        text = ("LMCache's server copies one kind of cache only on a CPU, and this model has "
                f"{model.cache_groups} (windows): give --disable-hybrid-kv-cache-manager after '--'")  # fmt: skip
        found.append(Finding("cache-groups", "refused", text))
    if model.indexer and settings.mode == "in-process":
        text = ("LMCache's in-process mode fails at start on sparse attention with an indexer (LMCache #5002): "
                "leave --mode out")  # fmt: skip
        found.append(Finding("indexer", "refused", text))
    if "--enable-lora" in settings.vllm_args and settings.mode == "multi-process":
        found.append(Finding("lora", "warning", "LMCache 0.5.6's multi-process keys do not know LoRA adapters: a "
                             "request could be given another adapter's KV; serve each from an engine and tier of "
                             "its own, or give each a cache_salt of its own"))  # fmt: skip
    if settings.mode == "in-process":
        found.append(Finding("cache-salt", "warning", "LMCache's in-process keys do not know cache_salt: tenants share "
                             "one tier"))  # fmt: skip
    return found


def usable_hit_tokens(hit_tokens: int, chunk_tokens: int, *, speculative_hybrid: bool) -> int:
    """Tokens of a match that a hybrid model with speculative decoding can use: whole chunks, without the last."""
    chunks = hit_tokens // chunk_tokens
    return max(0, chunks - 1) * chunk_tokens if speculative_hybrid else chunks * chunk_tokens


def _speculative(args: Sequence[str]) -> bool:
    return option_value(args, "--speculative-config") is not None


def _one_group(args: Sequence[str]) -> bool:
    return any(canonical(arg) == "--disable-hybrid-kv-cache-manager" for arg in args)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
