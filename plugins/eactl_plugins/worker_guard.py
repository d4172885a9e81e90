"""Keeping a worker alive when LMCache's multi-process server dies under it.

LMCache 0.5.6 drops stores and fails loads once its heartbeat has noticed, but a request that is on its way at that
moment raises in the worker, which ends the engine. Here it is treated as the heartbeat would have treated it, and
the server counts as gone until the heartbeat finds it again (and registers the caches anew).
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("vllm.eactl")


def guard_worker(adapter: Any) -> None:
    """Wrap the adapter's two submitting calls."""
    store, retrieve = adapter.submit_store_request, adapter.submit_retrieve_request

    def guarded_store(request_id: str, *args: Any, **kwargs: Any) -> None:
        try:
            store(request_id, *args, **kwargs)
        except Exception as error:
            _lost(adapter, "store", error)
            if adapter.lazy_offload:
                adapter._completed_store_requests[request_id] = 1
                adapter._failed_store_requests.add(request_id)

    def guarded_retrieve(request_id: str, op: Any, *args: Any, **kwargs: Any) -> None:
        try:
            retrieve(request_id, op, *args, **kwargs)
        except Exception as error:
            _lost(adapter, "load", error)
            adapter.error_block_ids.update(op.flat_block_ids)
            adapter._failed_request_ids.add(request_id)
            adapter._dropped_retrieves.add(request_id)

    adapter.submit_store_request = guarded_store
    adapter.submit_retrieve_request = guarded_retrieve


def _lost(adapter: Any, what: str, error: Exception) -> None:
    adapter._health_event.clear()
    logger.warning("eactl: a %s was lost (%s: %s); serving goes on without the tier", what, type(error).__name__, error)
