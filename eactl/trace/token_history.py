"""One task's token history, as keep/append traces need it: the latest prompt and its output."""

from __future__ import annotations

import numpy as np

from eactl.trace.call import NO_IDS, Ids


class TokenHistory:
    """The latest prompt of a task and the output that followed it.

    An append-only session costs time and memory proportional to its tokens, not to the sum of its prompts: prompts
    are views of one buffer, which is copied only when a prompt rewrites what an earlier view shows.
    """

    def __init__(self) -> None:
        self._buffer: Ids = NO_IDS
        self._prompt_tokens = 0
        self._output: Ids = NO_IDS
        self.call = -1

    @property
    def tokens(self) -> int:
        """Known tokens: the prompt, and the output as far as its ids are known."""
        return self._prompt_tokens + len(self._output)

    @property
    def prompt(self) -> Ids:
        """The latest prompt, read-only."""
        return self._view(self._prompt_tokens)

    @property
    def output(self) -> Ids:
        """The output that followed it; empty where its ids are unknown."""
        return self._output

    def next_prompt(self, keep: int, added: Ids, output: Ids | None, call: int) -> Ids:
        """The prompt made of the first ``keep`` known tokens and ``added``; it becomes the latest one."""
        kept_output = self._output[: max(0, keep - self._prompt_tokens)]
        total = keep + len(added)
        base = min(keep, self._prompt_tokens)
        rewrites = keep < self._prompt_tokens
        if rewrites or total > len(self._buffer):
            buffer = np.empty(max(total, 64) if rewrites else max(total + total // 2, 64), dtype=np.int64)
            buffer[:base] = self._buffer[:base]
            self._buffer = buffer
        self._buffer[base:keep] = kept_output
        self._buffer[keep:total] = added
        self._prompt_tokens = total
        self._output = NO_IDS if output is None else output
        self.call = call
        return self._view(total)

    def _view(self, tokens: int) -> Ids:
        view = self._buffer[:tokens]
        view.setflags(write=False)
        return view
