"""``eactl probe footprint`` as a document and for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

from eactl.model.footprint import Footprint, LayerGroup
from eactl.report.table import table
from eactl.units import GIB, KIB, human_bytes


def footprint_fields(
    results: Sequence[Footprint],
    refused: Mapping[int, str],
    *,
    chunk_tokens: int,
    origin: str,
    notes: Sequence[str],
) -> dict[str, Any]:
    """The JSON fields: those of the first result, and under ``by_tp`` sizes or refusal of every TP asked for."""
    first = results[0]
    by_tp = [_sizes(result, chunk_tokens) for result in results]
    by_tp += [{"tp": tp, "error": reason} for tp, reason in refused.items()]
    return {
        "model": first.model,
        "origin": origin,
        "kv_dtype": first.kv_dtype,
        **_sizes(first, chunk_tokens),
        "layers": [asdict(group) for group in first.layers],
        "attention_block_tokens": first.attention_block_tokens,
        "mtp_layers": first.mtp_layers,
        "by_tp": sorted(by_tp, key=lambda entry: int(entry["tp"])),
        "notes": list(notes),
        "warnings": _warnings(first),
    }


def _sizes(result: Footprint, chunk_tokens: int) -> dict[str, Any]:
    return {
        "tp": result.tp,
        "bytes_per_token_rank": result.bytes_per_token_rank,
        "bytes_per_token_total": result.bytes_per_token_total,
        "unique_bytes_per_token": result.unique_bytes_per_token,
        "growing_bytes_per_token_rank": result.growing_bytes_per_token_rank,
        "tier_bytes_per_token_rank": result.tier_bytes_per_token_rank,
        "tier_bytes_per_token_total": result.tier_bytes_per_token_total,
        "tier_ranks": result.tier_ranks,
        "state_bytes_per_sequence_rank": result.state_bytes_per_sequence_rank,
        "mtp_bytes_per_token_rank": result.mtp_bytes_per_token_rank,
        "chunk_tokens": chunk_tokens,
        "chunk_bytes_rank": result.tier_chunk_bytes_rank(chunk_tokens),
        "chunk_bytes_total": result.tier_chunk_bytes_rank(chunk_tokens) * result.tier_ranks,
    }


def _warnings(result: Footprint) -> list[dict[str, str]]:
    warnings = []
    if result.state_bytes_per_sequence_rank is None:
        warnings.append(
            {
                "code": "state-size-unknown",
                "text": "the config does not give the size of the model's state, so chunks are counted without it",
                "hint": "give the model's full config.json",
            }
        )
    if result.mtp_layers and result.mtp_bytes_per_token_rank is None:
        warnings.append(
            {
                "code": "mtp-size-unknown",
                "text": "the config does not say what KV its layers of multi-token prediction keep",
                "hint": "read the engine's log when speculative decoding is on",
            }
        )
    return warnings


def footprint_text(
    results: Sequence[Footprint],
    refused: Mapping[int, str],
    *,
    chunk_tokens: int,
    origin: str,
    notes: Sequence[str],
) -> str:
    """What a person reads: layers, bytes per token by TP, what a chunk weighs, notes."""
    first = results[0]
    parts = [
        f"{_headline(first)}\nFrom {origin}; KV in {first.kv_dtype}.",
        _layer_table(first),
        f"KiB per token, and chunks of {chunk_tokens:,} tokens\n\n{_size_table(results, chunk_tokens)}",
        "\n".join(f"Not TP {tp}: {reason}." for tp, reason in refused.items()),
        _capacity(first, chunk_tokens),
        "\n".join(fill(note, width=100, initial_indent="- ", subsequent_indent="  ") for note in notes),
    ]
    return "\n\n".join(part for part in parts if part)


def _headline(result: Footprint) -> str:
    where = "on one rank" if result.tp == 1 else f"on each of {result.tp} ranks"
    text = f"{result.model}: one token's KV takes {human_bytes(result.bytes_per_token_rank)} {where}"
    if result.growing_bytes_per_token_rank != result.bytes_per_token_rank:
        text += f", {human_bytes(result.growing_bytes_per_token_rank)} of it growing with the context"
    return f"{text}."


def _layer_table(result: Footprint) -> str:
    headers = ["kind", "layers", "window", "KV heads", "per rank", "K+V size", "KiB/token/rank", "ranks with the same"]
    return table([_layer_row(group) for group in result.layers], headers)


def _layer_row(group: LayerGroup) -> list[str]:
    if group.kind == "state":
        return ["state", str(group.count), *["-"] * 4, "0", "-"]
    size = f"{group.k_dim}+{group.v_dim}" if group.v_dim else str(group.k_dim)
    window = f"{group.window_tokens:,}" if group.window_tokens is not None else "-"
    heads = [str(group.kv_heads), str(group.kv_heads_rank)]
    return [group.kind, str(group.count), window, *heads, size, _kib(group.bytes_per_token_rank), str(group.copies)]


def _size_table(results: Sequence[Footprint], chunk_tokens: int) -> str:
    """One row per TP. What grows and what tiers keep are columns only where they differ from the whole."""
    grows = any(result.growing_bytes_per_token_rank != result.bytes_per_token_rank for result in results)
    once = any(result.tier_ranks != result.tp for result in results)
    headers = ["TP", "per rank", *["growing"] * grows, "all ranks", "each head once", *["in tiers"] * once]
    rows = []
    for result in results:
        chunk = result.tier_chunk_bytes_rank(chunk_tokens)
        row = [str(result.tp), _kib(result.bytes_per_token_rank)]
        row += [_kib(result.growing_bytes_per_token_rank)] * grows
        row += [_kib(result.bytes_per_token_total), _kib(result.unique_bytes_per_token)]
        row += [_kib(result.tier_bytes_per_token_total)] * once
        rows.append([*row, human_bytes(chunk), human_bytes(chunk * result.tier_ranks)])
    return table(rows, [*headers, "chunk per rank", "chunk in all tiers"])


def _capacity(result: Footprint, chunk_tokens: int) -> str:
    chunks = GIB // result.tier_chunk_bytes_rank(chunk_tokens)
    tier = "a tier of 1 GiB"
    if result.tp > 1:
        tier += " on each rank" if result.tier_ranks > 1 else " (one rank stores for all)"
    return f"At TP {result.tp} {tier} holds {chunks * chunk_tokens:,} tokens in chunks of {chunk_tokens:,}."


def _kib(size_bytes: int) -> str:
    return f"{size_bytes / KIB:,.2f}".rstrip("0").rstrip(".")


def shapes_text(shapes: Sequence[Mapping[str, Any]]) -> str:
    """The bundled names with what one token weighs at TP 1."""
    rows = [
        [
            shape["name"],
            _kib(shape["bytes_per_token"]) if shape["bytes_per_token"] is not None else "-",
            fill(", ".join(shape["names"]), width=60),
            "" if shape["checked"] else "not compared with its file",
        ]
        for shape in shapes
    ]
    return table(rows, ["name", "KiB/token at TP 1", "others of this shape", ""], left=(0, 2))
