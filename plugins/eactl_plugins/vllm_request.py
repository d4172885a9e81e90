"""What a vLLM request says about itself: its task, whether it wants to be stored, its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eactl_plugins.gate import Lookup

# Where a client can name its task, first one first. All are documented in docs/admission.md.
TASK_KEYS = ("eactl.task_id", "task_id")
SKIP_KEYS = ("eactl.skip_save", "skip_save", "lmcache.skip_save")


def lookup_of(request: Any, hit_tokens: int) -> Lookup:
    """A resolved lookup of a vLLM request (0.13 to 0.33)."""
    parameters = getattr(request, "kv_transfer_params", None)
    parameters = parameters if isinstance(parameters, Mapping) else {}
    prompt = request.prompt_token_ids
    return Lookup(
        request=request.request_id,
        prompt=prompt if prompt is not None else [0] * request.num_prompt_tokens,  # given as embeddings
        hashes=block_hashes(request),
        hit_tokens=hit_tokens,
        target_tokens=request.num_tokens,
        task=_task(request, parameters),
        skip_asked=any(parameters.get(key) is True for key in SKIP_KEYS),
        preemptions=getattr(request, "num_preemptions", 0),
    )


def block_hashes(request: Any) -> list[Any]:
    """Hashes of the request's full blocks, prompt and output so far (a copy: vLLM goes on appending)."""
    return list(request.block_hashes)


def mark_skip_save(request: Any) -> None:
    """Ask LMCache's in-process connector not to store the request; the client's own parameters are left alone."""
    sampling = request.sampling_params
    extra = dict(sampling.extra_args or {})
    extra["kv_transfer_params"] = {**(extra.get("kv_transfer_params") or {}), "lmcache.skip_save": True}
    sampling.extra_args = extra


def _task(request: Any, parameters: Mapping[str, Any]) -> str | None:
    for key in TASK_KEYS:
        if (value := parameters.get(key)) not in (None, ""):
            return str(value)
    if session := getattr(request, "session_id", None):
        return str(session)
    extra = getattr(request.sampling_params, "extra_args", None)
    if isinstance(extra, Mapping) and (value := extra.get("eactl_task_id")) not in (None, ""):
        return str(value)
    return None
