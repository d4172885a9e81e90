"""Decoder blocks of a model's exact shapes with random weights, for timing: nothing they compute means anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eactl.model.decoder import AttentionBlock, Decoder
from eactl.model.feedforward import FeedForward
from eactl_probes.arithmetic import random_tensor

if TYPE_CHECKING:
    import torch

    Block = Callable[[torch.Tensor], torch.Tensor]


def build_blocks(decoder: Decoder, dtype: torch.dtype, device: str) -> list[tuple[Block, int]]:
    """One callable per different block of this rank, each with the number of layers that have it."""
    hidden = decoder.hidden
    blocks: list[tuple[Block, int]] = [
        (_attention(block, hidden, dtype, device), count) for block, count in decoder.attention
    ]
    for block, count in decoder.feed_forward:
        make = _experts if block.experts else _dense
        blocks.append((make(block, hidden, dtype, device), count))
    return blocks


def weight_elements(decoder: Decoder) -> int:
    """Elements of one of each block: what build_blocks allocates."""
    attention = sum(block.parameters(decoder.hidden) for block, _ in decoder.attention)
    return attention + sum(block.total_parameters(decoder.hidden) for block, _ in decoder.feed_forward)


def _attention(block: AttentionBlock, hidden: int, dtype: torch.dtype, device: str) -> Block:
    """Norm, projections, causal attention and the projection back; the rotary embedding, fused in engines, is not."""
    from torch.nn import functional

    project = _mla_projections if block.latent else _grouped_projections
    heads_of = project(block, hidden, dtype, device)
    out = random_tensor((hidden, block.query_heads * block.v_dim), dtype, device)

    def run(x: torch.Tensor) -> torch.Tensor:
        q, k, v = heads_of(functional.rms_norm(x, (hidden,)))
        attended = _attend(q, k, v, block.window_tokens)
        return x + functional.linear(attended, out)

    return run


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int | None) -> torch.Tensor:
    """q, k, v: [tokens, heads, dim]; returns [tokens, query heads · value dim]."""
    from torch.nn import functional

    tokens, v_dim = q.shape[0], v.shape[2]
    if v_dim < q.shape[2]:  # fused kernels want one head size, so engines pad the values too
        v = functional.pad(v, (0, q.shape[2] - v_dim))
    if window is not None and tokens > window:
        # Every query sees `window` keys: the same work as blocks of window x window without a mask.
        rows = tokens // window * window
        q, k, v = (t[:rows].view(-1, window, *t.shape[1:]).transpose(1, 2) for t in (q, k, v))
        causal = False
    else:
        rows = tokens
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        causal = True
    attended = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    attended = attended.transpose(1, 2).reshape(rows, -1, attended.shape[-1])[:, :, :v_dim]
    flat = attended.reshape(rows, -1)
    return functional.pad(flat, (0, 0, 0, tokens - rows)) if rows < tokens else flat


def _grouped_projections(
    block: AttentionBlock, hidden: int, dtype: torch.dtype, device: str
) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    from torch.nn import functional

    widths = [block.query_heads * block.k_dim, block.kv_heads * block.k_dim, block.kv_heads * block.v_dim]
    weight = random_tensor((sum(widths), hidden), dtype, device)

    def heads(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = functional.linear(x, weight).split(widths, dim=1)
        return (
            q.unflatten(1, (block.query_heads, block.k_dim)),
            k.unflatten(1, (block.kv_heads, block.k_dim)),
            v.unflatten(1, (block.kv_heads, block.v_dim)),
        )

    return heads


def _mla_projections(
    block: AttentionBlock, hidden: int, dtype: torch.dtype, device: str
) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Queries, keys and values of full heads, expanded from the latents: how engines run MLA in prefill."""
    import torch
    from torch.nn import functional

    latent = block.latent
    if latent is None:
        raise AssertionError("called for MLA only")
    heads, key = block.query_heads, block.k_dim
    q_in = hidden if latent.q_rank is None else latent.q_rank
    q_down = None if latent.q_rank is None else random_tensor((latent.q_rank, hidden), dtype, device)
    q_up = random_tensor((heads * key, q_in), dtype, device)
    kv_down = random_tensor((latent.kv_rank + latent.rope_dim, hidden), dtype, device)
    kv_up = random_tensor((heads * (latent.nope_dim + block.v_dim), latent.kv_rank), dtype, device)

    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q = x if q_down is None else functional.rms_norm(functional.linear(x, q_down), (q_in,))
        q = functional.linear(q, q_up).unflatten(1, (heads, key))
        c, rope = functional.linear(x, kv_down).split([latent.kv_rank, latent.rope_dim], dim=1)
        up = functional.linear(functional.rms_norm(c, (latent.kv_rank,)), kv_up)
        nope, v = up.unflatten(1, (heads, latent.nope_dim + block.v_dim)).split([latent.nope_dim, block.v_dim], dim=2)
        k = torch.cat([nope, rope.unsqueeze(1).expand(-1, heads, -1)], dim=2)
        return q, k, v

    return run


def _dense(block: FeedForward, hidden: int, dtype: torch.dtype, device: str) -> Block:
    from torch.nn import functional

    up = random_tensor(((2 if block.gated else 1) * block.width, hidden), dtype, device)
    down = random_tensor((hidden, block.width), dtype, device)

    def run(x: torch.Tensor) -> torch.Tensor:
        inner = functional.linear(functional.rms_norm(x, (hidden,)), up)
        return x + functional.linear(_activate(inner, gated=block.gated), down)

    return run


def _experts(block: FeedForward, hidden: int, dtype: torch.dtype, device: str) -> Block:
    """Router, top-k, and the experts as one batched product. Tokens are spread evenly over the experts."""
    import torch
    from torch.nn import functional

    experts, chosen = block.experts, block.experts_per_token
    router = random_tensor((experts, hidden), dtype, device)
    # Stored [expert, out, in] as in checkpoints, and read transposed.
    up = random_tensor((experts, (2 if block.gated else 1) * block.width, hidden), dtype, device).transpose(1, 2)
    down = random_tensor((experts, hidden, block.width), dtype, device).transpose(1, 2)
    shared = _dense(FeedForward(block.shared_width, block.gated), hidden, dtype, device) if block.shared_width else None

    def run(x: torch.Tensor) -> torch.Tensor:
        h = functional.rms_norm(x, (hidden,))
        weights, ids = functional.linear(h, router).softmax(dim=1).topk(chosen, dim=1)
        # Sorting by expert gathers each expert's tokens. Equal groups are then cut from the sorted rows: real loads
        # vary around this, and padding to the largest would time an accident of random weights.
        rows = ids.flatten().argsort()
        busy = min(experts, rows.numel())
        each = -(-rows.numel() // busy)
        padded = functional.pad(rows, (0, busy * each - rows.numel()))
        gathered = h[padded // chosen].view(busy, each, hidden)
        inner = _activate(torch.bmm(gathered, up[:busy]), gated=block.gated)
        back = torch.bmm(inner, down[:busy]).view(-1, hidden)[: rows.numel()]
        scaled = back * weights.flatten()[rows].unsqueeze(1)
        mixed = torch.zeros_like(x).index_add_(0, rows // chosen, scaled)
        return x + mixed if shared is None else shared(x) + mixed

    return run


def _activate(inner: torch.Tensor, *, gated: bool) -> torch.Tensor:
    from torch.nn import functional

    if not gated:
        return functional.gelu(inner)
    gate, value = inner.chunk(2, dim=-1)
    return functional.silu(gate) * value
