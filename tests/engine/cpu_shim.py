"""LMCache's in-process mode on a CPU, for tests: it has no connector for one, so this copies by torch indexing.

LMCache's memory object is ``[2, layers, tokens, heads · dim]``; vLLM's CPU cache of a layer is ``[blocks, heads, block,
2 · dim]``, in 0.13 ``[2, blocks, heads, block, dim]``. Importing this module before a connector is built is enough;
engine and workers both do.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmcache.integration.vllm.vllm_v1_adapter as adapter
import lmcache.v1.gpu_connector as gpu_connector
import torch

import tests.engine.faults  # noqa: F401 - makes the gate fail on demand
from eactl_plugins.inprocess_connector import EactlInProcessConnector
from tests.engine.on_demand import PINS_FILE

try:
    from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
except ImportError:  # LMCache 0.3.12
    from lmcache.v1.gpu_connector import GPUConnectorInterface


class CpuConnector(GPUConnectorInterface):  # type: ignore[misc]
    """Copies whole chunks between vLLM's cache and LMCache's memory."""

    def __init__(self, metadata: Any) -> None:
        self._shape = metadata.kv_shape  # layers, 2, chunk, heads, dim
        self.kvcaches: Any = None

    @classmethod
    def from_metadata(cls, metadata: Any, *_args: Any) -> CpuConnector:
        """As LMCache 0.3.12 builds it, which would take the heads of a CPU cache for the tokens of a block."""
        metadata.kv_layer_groups_manager.build_kv_layer_groups = lambda _kv_caches: None
        return cls(metadata)

    def initialize_kvcaches_ptr(self, **kwargs: Any) -> None:
        if "kvcaches" in kwargs:
            self.kvcaches = kwargs["kvcaches"]

    def from_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        self.initialize_kvcaches_ptr(**kwargs)
        blocks, offsets = self._places(kwargs["slot_mapping"][start:end])
        for layer, cache in enumerate(self.kvcaches):
            for side, part in enumerate(self._sides(cache)):
                memory_obj.tensor[side, layer] = part[blocks, :, offsets].reshape(end - start, -1)

    def to_gpu(self, memory_obj: Any, start: int, end: int, **kwargs: Any) -> None:
        self.initialize_kvcaches_ptr(**kwargs)
        blocks, offsets = self._places(kwargs["slot_mapping"][start:end])
        heads, dim = self._shape[3], self._shape[4]
        for layer, cache in enumerate(self.kvcaches):
            for side, part in enumerate(self._sides(cache)):
                part[blocks, :, offsets] = memory_obj.tensor[side, layer].view(end - start, heads, dim)

    def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **kwargs: Any) -> None:
        for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
            self.from_gpu(memory_obj, start, end, **kwargs)

    def batched_to_gpu(self, memory_objs: Any = None, starts: Any = None, ends: Any = None, **kwargs: Any) -> None:
        for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
            self.to_gpu(memory_obj, start, end, **kwargs)

    def get_shape(self, num_tokens: int) -> torch.Size:
        return torch.Size([2, self._shape[0], num_tokens, self._shape[3] * self._shape[4]])

    def _sides(self, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of a layer's keys and values, both ``[blocks, heads, block, dim]``."""
        if cache.dim() == 5:
            return cache[0], cache[1]
        dim = self._shape[4]
        return cache[..., :dim], cache[..., dim:]

    def _places(self, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.kvcaches[0].shape[-2]
        return slots // size, slots % size


class _TorchWithXpu:
    """torch as LMCache 0.3.12 sees it: it refuses a CPU, so it is given one 'XPU' that is never touched."""

    xpu = SimpleNamespace(device_count=lambda: 1, set_device=lambda _index: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


if hasattr(adapter, "_init_lmcache_engine"):  # LMCache 0.3.12
    adapter.current_platform = SimpleNamespace(is_cuda_alike=lambda: False, is_xpu=lambda: True)
    adapter.torch = _TorchWithXpu()
    adapter.VLLMPagedMemXPUConnectorV2 = CpuConnector
else:
    gpu_connector.CreateGPUConnector = lambda config, metadata, *_args, **_kwargs: CpuConnector(metadata)


class ShimmedConnector(EactlInProcessConnector):
    """The in-process connector, with the shim in place and faults on demand.

    A worker writes how many chunks LMCache has pinned into the file that PINS_FILE names, with each of its steps.
    """

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        super().start_load_kv(forward_context, **kwargs)
        if path := os.environ.get(PINS_FILE):
            chunks = list(self._lmcache_engine.lmcache_engine.storage_manager.local_cpu_backend.hot_cache.values())
            Path(f"{path}.new").write_text(f"{time.time()} {sum(chunk.is_pinned for chunk in chunks)}")
            Path(f"{path}.new").replace(path)
