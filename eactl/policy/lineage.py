"""Which task does a request continue? Answered from its block hashes, so that clients need not say.

A block hash names the whole prefix up to its block. An agent's next request extends what its last one left
behind, so the deepest hash that was seen before tells whose turn this is:

* the request repeats a task's latest prompt, all but a generation prompt at its end: that task goes on.
* the match ends earlier, but in what belongs to one task alone: its history was edited (condensed, truncated,
  masked), and it is still the same agent.
* the task is busy with another request, or has since gone another way: a fork or a sub-agent, so a new task.
* the match ends in what several tasks share (a system prompt), or there is none: a new task.

Where agents part is only known once a second one has done so. Until then an edited history counts as the same
agent only if it keeps more than the whole first prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# A template may end a prompt with tokens that are not in the next one, as "<|im_start|>assistant\n<think>\n".
GENERATION_PROMPT_TOKENS = 8
_MAX_CANDIDATES = 16  # tasks that stopped at one and the same block: the time of ``begin`` stays bounded


class _Shared:
    """Marks a block that several tasks have in common, and so are all the blocks before it."""


_SHARED = _Shared()


@dataclass(slots=True, eq=False)
class _Task:
    number: int
    first_blocks: int  # full blocks of its first prompt
    busy: int = 0  # requests of it that are running
    path: Sequence[Hashable] = ()  # hashes of its latest prompt and output
    prompt_tokens: int = 0  # of its latest prompt
    tail_from: int = 0  # position in the latest prompt of the first token in ``tail``
    tail: Sequence[int] = ()  # the latest prompt from its last full block on
    tips: tuple[Hashable, ...] = ()  # where it waits to be continued, also where others share the block


class Lineage:
    """Task numbers for requests, by the hashes of their full blocks of ``block_tokens`` tokens.

    Call ``begin`` at a request's first lookup and ``end`` when it has finished, with the number that ``begin``
    gave. Memory is bounded by ``max_blocks`` hashes in each of two generations and as many in the latest paths;
    what was not used for a generation is forgotten. ``begin`` takes O(log blocks), ``end`` time in the blocks
    that are new.
    """

    def __init__(self, block_tokens: int, *, max_blocks: int = 1 << 20, max_tasks: int = 1 << 16) -> None:
        if min(block_tokens, max_blocks, max_tasks) < 1:
            raise ValueError("block_tokens, max_blocks and max_tasks are at least 1")
        self._block_tokens = block_tokens
        self._max_blocks = max_blocks
        self._max_tasks = max_tasks
        # Both are closed under prefixes: a block's ancestors are where it is. That makes the deepest match a
        # binary search, and lets ``end`` stop at the first block that is already there.
        self._young: dict[Hashable, _Task | _Shared] = {}
        self._old: dict[Hashable, _Task | _Shared] = {}
        self._tasks: OrderedDict[int, _Task] = OrderedDict()  # by last use
        self._path_blocks = 0
        self._tips: dict[Hashable, list[_Task]] = {}  # idle tasks only
        self._next_number = 0

    def __len__(self) -> int:
        """Block hashes held, for tests and telemetry."""
        return len(self._young) + len(self._old) + self._path_blocks

    def begin(self, hashes: Sequence[Hashable], prompt: Sequence[int]) -> int:
        """The task that a request with these block hashes and token ids continues, or a new one's number."""
        task = self._continued(hashes, prompt) or self._new_task(len(hashes))
        task.busy += 1
        self._retract(task)
        self._tasks.move_to_end(task.number)
        self._forget_tasks()
        return task.number

    def end(self, number: int, hashes: Sequence[Hashable], prompt: Sequence[int]) -> None:
        """The request is over; ``hashes`` now cover its prompt and its output."""
        task = self._tasks.get(number)
        if task is None:  # forgotten for lack of room: its next turn will count as a new task
            return
        task.busy = max(0, task.busy - 1)
        if not hashes:
            return
        self._path_blocks += len(hashes) - len(task.path)
        task.path = hashes
        last_block = max(0, min(len(prompt) // self._block_tokens, len(hashes)) - 1)
        task.prompt_tokens = len(prompt)
        task.tail_from = last_block * self._block_tokens
        task.tail = tuple(prompt[task.tail_from :])
        self._register(task, hashes)
        if not task.busy:
            task.tips = tuple({hashes[-1], hashes[last_block], hashes[max(0, last_block - 1)]})
            for tip in task.tips:
                self._tips.setdefault(tip, []).append(task)
        self._forget_tasks()

    def _continued(self, hashes: Sequence[Hashable], prompt: Sequence[int]) -> _Task | None:
        depth = max(_known_prefix(self._young, hashes), _known_prefix(self._old, hashes))
        if depth == 0:
            return None
        deepest = hashes[depth - 1]
        owner = self._lookup(deepest)
        waiting = list(reversed(self._tips.get(deepest, ())[-_MAX_CANDIDATES:]))
        if isinstance(owner, _Task) and not owner.busy and owner.number in self._tasks:
            on_path = depth <= len(owner.path) and owner.path[depth - 1] == deepest
            if on_path and self._repeats(prompt, depth, owner):
                return owner
        else:
            on_path = False
        for task in waiting:
            if self._repeats(prompt, depth, task):
                return task
        if not on_path or not isinstance(owner, _Task) or len(hashes) == depth:
            return None
        beyond_what_agents_share = self._lookup(hashes[0]) is _SHARED or depth > owner.first_blocks
        return owner if beyond_what_agents_share else None

    def _repeats(self, prompt: Sequence[int], depth: int, task: _Task) -> bool:
        """Whether a prompt that shares ``depth`` blocks repeats the task's latest one, up to its generation prompt."""
        start, end = depth * self._block_tokens, task.prompt_tokens - GENERATION_PROMPT_TOKENS
        if start >= end:
            return True
        if start < task.tail_from:
            return False
        return list(prompt[start:end]) == list(task.tail[start - task.tail_from : end - task.tail_from])

    def _new_task(self, blocks: int) -> _Task:
        task = _Task(self._next_number, blocks)
        self._next_number += 1
        self._tasks[task.number] = task
        return task

    def _lookup(self, block: Hashable) -> _Task | _Shared | None:
        return self._young.get(block) or self._old.get(block)

    def _register(self, task: _Task, hashes: Sequence[Hashable]) -> None:
        young, old = self._young, self._old
        for block in reversed(hashes):
            owner = young.get(block)
            if owner is task or owner is _SHARED:
                break  # and so are all blocks before it
            if owner is None:
                before = old.get(block)
                young[block] = task if before is None or before is task else _SHARED
            else:
                young[block] = _SHARED
        if len(young) > self._max_blocks:
            self._old, self._young = young, {}

    def _retract(self, task: _Task) -> None:
        for tip in task.tips:
            waiting = self._tips[tip]
            waiting.remove(task)
            if not waiting:
                del self._tips[tip]
        task.tips = ()

    def _forget_tasks(self) -> None:
        while len(self._tasks) > self._max_tasks or self._path_blocks > self._max_blocks:
            number, task = next(iter(self._tasks.items()))
            if len(self._tasks) == 1:
                return
            self._retract(task)
            self._path_blocks -= len(task.path)
            task.path = ()  # its blocks still name it as their owner
            del self._tasks[number]


def _known_prefix(known: dict[Hashable, _Task | _Shared], hashes: Sequence[Hashable]) -> int:
    """How many leading hashes are known, given that each one's ancestors are."""
    if not known or not hashes or hashes[0] not in known:
        return 0
    low, high = 1, len(hashes)
    while low < high:
        middle = (low + high + 1) // 2
        if hashes[middle - 1] in known:
            low = middle
        else:
            high = middle - 1
    return low
