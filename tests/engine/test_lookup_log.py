"""The lookup-hash log as LMCache itself writes it: its own hasher, its own logger."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eactl.trace import open_trace
from tests.trace.formats import sharing

pytest.importorskip("lmcache.v1.mp_observability.subscribers.logging.lookup_hash", reason="needs LMCache 0.5.6")

CHUNK_TOKENS = 16


def test_lmcaches_own_lookup_log_is_read(tmp_path: Path) -> None:
    from lmcache.v1.mp_observability.event import Event, EventType
    from lmcache.v1.mp_observability.subscribers.logging.lookup_hash import (
        LookupHashLogConfig,
        LookupHashLoggingSubscriber,
    )
    from lmcache.v1.multiprocess.token_hasher import TokenHasher

    system = list(range(40))
    prompts = [[*system, 1, 2, 3], [*system, 9], [*system, 1, 2, 3, *range(50)], [*system, 1, 2, 3, *range(70)]]
    hasher = TokenHasher(chunk_size=CHUNK_TOKENS)
    logger = LookupHashLoggingSubscriber(LookupHashLogConfig(output_dir=str(tmp_path)))
    log = logger.get_subscriptions()[EventType.MP_LOOKUP]
    for number, prompt in enumerate(prompts):
        metadata = {
            "request_id": f"r{number}", "model_name": "m", "chunk_size": CHUNK_TOKENS, "seq_len": len(prompt),
            "chunk_hashes": hasher.compute_chunk_hashes(prompt, end=len(prompt) // CHUNK_TOKENS * CHUNK_TOKENS),
            "dtypes": ["torch.bfloat16"], "shapes": [[2, 4, CHUNK_TOKENS, 64]],
        }  # fmt: skip
        log(Event(event_type=EventType.MP_LOOKUP, session_id=f"r{number}", timestamp=time.time(), metadata=metadata))
    logger.shutdown()

    trace = open_trace([tmp_path])
    calls = list(trace)
    (source,) = trace.sources
    assert (source.format, source.unit_tokens) == ("lmcache-lookup", CHUNK_TOKENS)
    assert [call.prompt_tokens for call in calls] == [43, 41, 93, 113]
    # 40 shared tokens are two whole chunks; the third prompt holds the first one's 43 tokens, the fourth agrees with
    # it for all of its 93, which are five whole chunks
    assert sharing(calls) == [[], [2], [2, 2], [2, 2, 5]]
    assert source.kv_bytes_per_token_rank == 2 * 4 * 64 * 2
