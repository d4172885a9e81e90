"""``eactl serve --dry-run``: the plan as a document and as text."""

from __future__ import annotations

import shlex
from typing import Any

from eactl.serving.prepare import Launch
from eactl.units import human_bytes


def plan_document(launch: Launch) -> dict[str, Any]:
    """The contract's fields; ``argv`` and ``env`` are vLLM's, ``servers`` what is started before it."""
    settings, plan = launch.settings, launch.plan
    weight = launch.footprint
    return {
        "argv": list(plan.vllm.argv),
        "env": dict(plan.vllm.env),
        "servers": [process.as_dict() for process in plan.processes[:-1]],
        "footprint": {
            "model": weight.model,
            "bytes_per_token_rank": weight.tier_bytes_per_token_rank,
            "bytes_per_token_total": weight.tier_bytes_per_token_total,
            "tier_ranks": weight.tier_ranks,
            "chunk_tokens": settings.chunk_tokens,
            "chunk_bytes_rank": plan.tier.chunk_bytes_rank,
            "tp": settings.tp,
            "notes": list(weight.notes),
        },
        "tier": {**plan.tier.as_dict(), "reason": launch.size_reason},
        "policy": {
            "name": settings.policy,
            "kappa_chunks": settings.kappa_chunks_or_default,
            "theta": settings.theta,
            "window_s": settings.window_s,
            "watermark": settings.watermark if settings.mode == "multi-process" else None,
            "eviction_ratio": settings.eviction_ratio if settings.mode == "multi-process" else None,
        },
        "checks": [finding.as_dict() for finding in launch.findings],
        "warnings": [
            {"code": finding.name, "text": finding.text, "hint": ""}
            for finding in launch.findings
            if finding.level != "ok"
        ],
    }


def plan_text(launch: Launch) -> str:
    """The plan for people: the tier's arithmetic, the checks, the command lines."""
    settings, tier = launch.settings, launch.plan.tier
    each = settings.dp > 1 or settings.pp > 1 or settings.tp > 1
    split = f" (DP {settings.dp} × PP {settings.pp} × TP {settings.tp})" if each else ""
    per_chunk = human_bytes(tier.chunk_bytes_rank)
    lines = [
        f"tier     {human_bytes(tier.bytes_rank)} per rank × {tier.ranks} that store = "
        f"{human_bytes(tier.bytes_total)} of host memory{split}",
        f"         {tier.chunks:,} chunks of {settings.chunk_tokens} tokens, {per_chunk} each; {launch.size_reason}",
    ]
    if settings.mode == "multi-process":
        low, high = tier.kept_gib_rank
        lines.append(
            f"         LMCache evicts at {settings.watermark:.0%}: it keeps {low:.3g} to {high:.3g} GiB per rank"
        )
    rule = {"conditioned": f": under pressure no refill of more than κ = {settings.kappa_chunks_or_default} chunks",
            "fixed": f": no refill of more than κ = {settings.kappa_chunks_or_default} chunks"}  # fmt: skip
    lines.append(f"policy   {settings.policy}, {settings.mode}{rule.get(settings.policy, '')}")
    for finding in launch.findings:
        mark = {"ok": "ok", "warning": "WARNING", "refused": "REFUSED"}[finding.level]
        lines.append(f"{mark:8} {finding.text}")
    for process in launch.plan.processes:
        env = " ".join(f"{name}={shlex.quote(value)}" for name, value in process.environment({}).items())
        lines.append(f"{process.name:8} {env} {shlex.join(process.argv)}")
    return "\n".join(lines)
