"""One workload, every format, one curve: that of an explicit LRU over its tokens."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eactl.model.curve import CapacityCurve
from eactl.model.reuse import stack_pieces
from eactl.trace import TraceOptions, open_trace
from eactl.trace.workload import load_workload
from tests.model import oracle
from tests.trace import formats

CAPACITIES = [0, 1, 2, 4, 9, 1_000]
WRITERS = {**formats.BLOCK_WRITERS, "native tokens": formats.write_native_tokens}


@pytest.mark.parametrize("name", WRITERS)
@given(requests=formats.requests(), block=st.sampled_from([1, 3, 4]), blocks_per_chunk=st.sampled_from([1, 2]))
def test_every_format_gives_the_curve_of_an_explicit_lru(
    name: str, requests: list[formats.Request], block: int, blocks_per_chunk: int
) -> None:
    chunk = block * blocks_per_chunk
    with tempfile.TemporaryDirectory() as folder:
        path = WRITERS[name](Path(folder), requests, block)
        work = load_workload(open_trace([path], TraceOptions(block_tokens=block if name == "bailian" else None)))
    if name == "kv-cache-tester":  # sub-agents lie apart from their parent: equal times may change places
        if len({request.arrival_ms for request in requests}) < len(requests):
            return
        requests = sorted(requests, key=lambda request: request.arrival_ms)
    pieces = stack_pieces(work, range(len(work)), chunk, with_output=False)
    curve = CapacityCurve(pieces, work.prompt_tokens, np.zeros(len(work), dtype=np.int64), chunk)
    stream = [oracle.Request(request.task, request.prompt) for request in requests]
    for point in curve.points(CAPACITIES):
        slow = oracle.run_lru(stream, chunk_tokens=chunk, capacity=point.chunks, gpu_tokens=None)
        assert (point.coverage_tokens, point.restored_tokens, point.computed_tokens) == (
            slow.coverage_tokens, slow.restored_tokens, slow.computed_tokens,
        )  # fmt: skip
