"""Real engines: vLLM's CPU build and LMCache with a tiny model, started by serve's own plan, one at a time."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STARTS_S = 900  # a module's first test waits for two engines; on a busy machine one takes minutes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = importlib.util.find_spec("vllm") is None or importlib.util.find_spec("lmcache") is None
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(STARTS_S))
            if missing:
                item.add_marker(pytest.mark.skip(reason="needs vLLM and LMCache (make test-engine)"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Qwen3 with its own tokenizer."""
    from tests.engine.tiny_model import make

    return make(tmp_path_factory.mktemp("tiny") / "tiny-qwen3")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No shared memory and no process of ours outlives the tests."""
    yield
    from tests.engine import stack

    left = [path for path in stack.STARTED_SHM if Path(path).exists()]
    assert not left, f"left behind: {left}"
    assert not [pid for pid in stack.STARTED_PIDS if Path(f"/proc/{pid}").exists()]


@pytest.fixture(scope="session")
def without_tier(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[int]]]:
    """Greedy outputs of an engine that has no connector at all."""
    from tests.engine.batches import ADMITTED, ADMITTED_OUTPUT, DECLINED, DECLINED_OUTPUT, GPU_OPTIONS, together
    from tests.engine.stack import engine

    with engine(tiny_model, tmp_path_factory.mktemp("bare"), connector=False, vllm=GPU_OPTIONS) as stack:
        return {
            "declined": together(stack, DECLINED, DECLINED_OUTPUT),
            "admitted": together(stack, ADMITTED, ADMITTED_OUTPUT),
        }
