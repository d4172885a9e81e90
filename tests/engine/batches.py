"""Prompts that a GPU cache of 128 blocks of 32 tokens cannot hold at once, and how they are sent."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from tests.engine.stack import Engine

# float32: in bfloat16 near ties fall one way or the other with the size of the batch
GPU_OPTIONS = ("--num-gpu-blocks-override", "128", "--max-model-len", "2048", "--dtype", "float32")


def prompts(seed: int, count: int, tokens: int) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(10, 4000) for _ in range(tokens)] for _ in range(count)]


DECLINED = prompts(1, 8, 400)  # 12 chunks
ADMITTED = prompts(2, 8, 250)  # 7 chunks
DECLINED_OUTPUT, ADMITTED_OUTPUT = 250, 400  # 8 · 650 tokens in a cache of 4,096


def together(stack: Engine, batch: list[list[int]], max_tokens: int) -> list[list[int]]:
    with ThreadPoolExecutor(len(batch)) as pool:
        return list(pool.map(lambda prompt: stack.output(prompt, max_tokens), batch))
