"""The worker's half of in-process mode: LMCache's CPU tier of one rank, counted, and without duplicate copies.

Works on LMCache 0.3.12 and 0.5.6, whose engines share these names: ``storage_manager.local_cpu_backend`` with
``hot_cache`` and ``stats_monitor``, ``token_database.process_tokens``, ``store``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any


class RankTier:
    """Watches one LMCache engine. ``copies_avoided`` counts chunks that were there when they were to be stored."""

    def __init__(self, engine: Any, *, deduplicate: bool) -> None:
        self._engine = engine
        self._backend = engine.storage_manager.local_cpu_backend
        self.evicted_chunks = 0
        self.copies_avoided = 0
        self.stored_chunks = 0
        self._count_evictions()
        self._storing = threading.local()
        self._watch_stores(deduplicate)

    def reading(self) -> dict[str, int]:
        """Chunks held, ever evicted to make room, and ever stored, as plain numbers."""
        return {
            "registered_chunks": len(self._backend.hot_cache),
            "evicted_chunks": self.evicted_chunks,
            "stored_chunks": self.stored_chunks,
            "copies_avoided": self.copies_avoided,
        }

    def _count_evictions(self) -> None:
        monitor = self._backend.stats_monitor
        report = monitor.update_local_cpu_evict_metrics

        def counted(chunks: int, *args: Any, **kwargs: Any) -> Any:
            self.evicted_chunks += int(chunks)
            return report(chunks, *args, **kwargs)

        monitor.update_local_cpu_evict_metrics = counted

    def _watch_stores(self, deduplicate: bool) -> None:
        engine, database = self._engine, self._engine.token_database
        store, chunks_of = engine.store, database.process_tokens

        def watched_store(*args: Any, **kwargs: Any) -> Any:
            self._storing.now = True
            try:
                return store(*args, **kwargs)
            finally:
                self._storing.now = False

        def new_chunks(*args: Any, **kwargs: Any) -> Iterator[tuple[int, int, Any]]:
            # Look-ups walk the chunks too, in a thread of their own: only a store may leave some out.
            storing = getattr(self._storing, "now", False)
            for start, end, key in chunks_of(*args, **kwargs):
                if storing:
                    if deduplicate and self._backend.contains(key):
                        self.copies_avoided += 1
                        continue
                    self.stored_chunks += 1
                yield start, end, key

        engine.store = watched_store
        database.process_tokens = new_chunks
