"""From planned lengths to calls with token or block ids.

Every prompt is a list of pieces: the system prompt of its kind, the task's own prompt, then results and repeated
outputs in turn. A piece is a stretch of one fixed random text (token trace) or of block ids handed out in order
(block trace), so a prompt is rebuilt from the plan when its call is due and nothing is kept between calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eactl.trace.call import Call, Ids
from eactl.trace.synth.plan import Ints, Plan
from eactl.trace.synth.schedule import schedule

_TEXT_TOKENS = 1 << 12
_ORDINARY = 256  # the first ids of most vocabularies are single bytes and markers


def synthesise(plan: Plan) -> Iterator[Call]:
    """The calls of ``plan`` in the order in which they are issued, with a token or block trace's ids.

    Memory does not grow with the calls taken: only the plan is held.
    """
    blocks = plan.settings.block_tokens
    pieces = _BlockPieces(plan, blocks) if blocks else _TokenPieces(plan)
    shape, settings = plan.shape, plan.settings
    names = _task_names(plan)
    prompt, output = plan.prompt_tokens.tolist(), plan.output_tokens.tolist()
    for issued in schedule(plan):
        at = issued.call
        yield Call(
            task=names[int(shape.task[at])],
            call=int(shape.index[at]),
            prompt_tokens=prompt[at],
            ids=pieces.prompt(at),
            unit_tokens=blocks or 1,
            output_tokens=output[at],
            output_ids=pieces.output(at),
            keep=int(pieces.keep[at]),
            arrival_s=issued.arrival_s,
            gap_s=issued.gap_s,
            service_s=issued.service_s if settings.service_times else None,
        )


def _task_names(plan: Plan) -> list[str]:
    tasks = plan.settings.tasks
    width = len(str(tasks - 1))
    names = [f"task-{task:0{width}}" for task in range(tasks)]
    launched: dict[int, int] = {}
    for parent in plan.parent_call[tasks:].tolist():
        owner = int(plan.shape.task[parent])
        launched[owner] = launched.get(owner, 0) + 1
        names.append(f"{names[owner]}/agent-{launched[owner]}")
    return names


class _TokenPieces:
    """Pieces of one fixed text; ``keep`` in tokens."""

    def __init__(self, plan: Plan) -> None:
        settings, shape = plan.settings, plan.shape
        self._shape, self._outputs, self.keep = shape, plan.output_tokens, plan.keep_tokens
        rng = np.random.RandomState([settings.seed & 0xFFFFFFFF, settings.seed >> 32, 1])
        lowest = min(_ORDINARY, settings.vocabulary // 4)
        base = settings.vocabulary - lowest
        tasks = len(shape.counts)
        digits = 1
        while base**digits < tasks:
            digits += 1
        numbers = np.arange(tasks)[:, None] // base ** np.arange(digits)[::-1] % base + lowest
        longest = max(int(plan.append_tokens.max()), int(plan.output_tokens.max()), int(plan.first_tokens.max()))
        # Small ids are frequent, as in real text: the ids are spread evenly over their logarithm.
        text = np.floor(lowest * (settings.vocabulary / lowest) ** rng.random_sample(_TEXT_TOKENS)).astype(np.int64)
        systems = rng.randint(lowest, settings.vocabulary, 2 * settings.system_tokens)
        at_text = len(systems) + numbers.size
        self._store = np.concatenate((systems, numbers.ravel(), np.resize(text, _TEXT_TOKENS + longest)))

        kind = (plan.parent_call >= 0).astype(np.int64)
        system = np.full(tasks, settings.system_tokens)
        number_at = len(systems) + digits * np.arange(tasks)
        text_at = at_text + rng.randint(0, _TEXT_TOKENS, tasks)
        self._head_start = np.stack((kind * settings.system_tokens, number_at, text_at), axis=1)
        self._head_length = np.stack((system, np.full(tasks, digits), plan.first_tokens - system - digits), axis=1)
        self._output_at = at_text + rng.randint(0, _TEXT_TOKENS, len(shape))
        append_at = at_text + rng.randint(0, _TEXT_TOKENS, len(shape))
        append_at = self._departing(plan, append_at, at_text)
        self._start = np.stack((append_at, self._output_at), axis=1).ravel()
        self._length = np.stack((plan.append_tokens, plan.kept_output_tokens), axis=1).ravel()

    def _departing(self, plan: Plan, append_at: Ints, at_text: int) -> Ints:
        """Starts of the appended pieces, moved where a new text would by chance begin like the one it replaces."""
        shape, store, kept = plan.shape, self._store, plan.kept_output_tokens

        def move(places: Ints, replaced: Ints) -> None:
            while (same := store[append_at[places]] == replaced).any():
                append_at[places[same]] = at_text + (append_at[places[same]] - at_text + 1) % _TEXT_TOKENS

        cut = np.flatnonzero((kept < plan.output_tokens)[:-1] & shape.appends[1:])
        move(cut + 1, store[self._output_at[cut] + kept[cut]])
        for summary in np.flatnonzero(shape.condensed):  # in order: a summary may replace an earlier one
            before = shape.head_of[summary - 1]
            if plan.append_tokens[before]:
                old = append_at[before]
            elif kept[before] or before == summary - 1:
                old = self._output_at[before]
            else:
                old = append_at[before + 1]
            move(np.array([summary]), store[[old]])
        return append_at

    def prompt(self, at: int) -> Ids:
        task, head = self._shape.task[at], self._shape.head_of[at]
        turns = slice(2 * head, 2 * at + 1)
        starts = np.concatenate((self._head_start[task], self._start[turns]))
        lengths = np.concatenate((self._head_length[task], self._length[turns]))
        return self._store[_stretches(starts, lengths)]

    def output(self, at: int) -> Ids:
        start = self._output_at[at]
        return self._store[start : start + self._outputs[at]]


class _BlockPieces:
    """Runs of block ids; ``keep`` in blocks. A block that ends in an output is new in the next prompt."""

    def __init__(self, plan: Plan, block_tokens: int) -> None:
        settings, shape = plan.settings, plan.shape
        self._shape = shape
        blocks = plan.prompt_tokens // block_tokens
        system_blocks = settings.system_tokens // block_tokens
        kept = np.minimum(plan.keep_tokens, plan.previous_prompt_tokens) // block_tokens
        self.keep = kept
        new = blocks - np.where(shape.first, system_blocks, kept)
        self._length = new
        self._start = 2 * system_blocks + np.cumsum(new) - new
        self._first = np.flatnonzero(shape.first)
        kind = (plan.parent_call >= 0).astype(np.int64)
        self._head_start = np.stack((kind * system_blocks, self._start[self._first]), axis=1)
        self._head_length = np.stack((np.full(len(kind), system_blocks), new[self._first]), axis=1)

    def prompt(self, at: int) -> Ids:
        task, head = self._shape.task[at], self._shape.head_of[at]
        turns = slice(head + (head == self._first[task]), at + 1)
        starts = np.concatenate((self._head_start[task], self._start[turns]))
        lengths = np.concatenate((self._head_length[task], self._length[turns]))
        return _stretches(starts, lengths)

    def output(self, at: int) -> None:  # a block trace does not tell what an output was
        return None


def _stretches(starts: Ints, lengths: Ints) -> npt.NDArray[np.int64]:
    """``[s, s + 1, … s + l − 1]`` for every start and length, one after the other."""
    ends = np.cumsum(lengths)
    return np.asarray(np.repeat(starts - (ends - lengths), lengths) + np.arange(int(ends[-1])), dtype=np.int64)
