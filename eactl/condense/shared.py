"""What first calls share with earlier requests of any session: heads of prompts in a bounded prefix tree."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eactl.condense.prompt import Group, Prompt, Segment
from eactl.condense.values import common_prefix
from eactl.trace.tokens import Tokenizer

_DEPTH = 6  # segments of a first prompt that other sessions may share: tools, system, first messages
_SAMPLES = 8  # different continuations compared by characters at one node
_MOST_NODES = 200_000


@dataclass(slots=True)
class _Node:
    group: Group
    children: dict[int, _Node] = field(default_factory=dict)
    samples: list[Segment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Shared:
    """Tokens of a prompt's head that some earlier request had, and whose it was."""

    tokens: int
    group: Group | None


class SharedHeads:
    """Heads of all first calls so far, apart per group (model, adapter, salt) and together."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._groups: dict[Group, _Node] = {}
        self._all: _Node | None = None
        self._nodes = 0

    @property
    def full(self) -> bool:
        """No further heads are remembered."""
        return self._nodes >= _MOST_NODES

    def look_up(self, prompt: Prompt) -> tuple[Shared, Shared]:
        """The longest shared head among requests of the same group, and among all others."""
        own = self._walk(self._groups.get(prompt.group), prompt)
        return own, self._walk(self._all, prompt)

    def add(self, prompt: Prompt) -> None:
        """Remember the head of ``prompt``."""
        if self.full:
            return
        if self._all is None:
            self._all = _Node(prompt.group)
        self._insert(self._groups.setdefault(prompt.group, _Node(prompt.group)), prompt)
        self._insert(self._all, prompt)

    def _insert(self, node: _Node, prompt: Prompt) -> None:
        for segment in prompt.segments[:_DEPTH]:
            child = node.children.get(segment.key)
            if child is None:
                child = node.children[segment.key] = _Node(prompt.group)
                self._nodes += 1
                if len(node.samples) < _SAMPLES:
                    node.samples.append(segment)
            node = child

    def _walk(self, node: _Node | None, prompt: Prompt) -> Shared:
        if node is None:
            return Shared(0, None)
        group = node.group
        for index, segment in enumerate(prompt.segments[:_DEPTH]):
            child = node.children.get(segment.key)
            if child is None:
                inside, sample_group = self._inside(node, segment)
                tokens = min(prompt.position(index, inside), prompt.prompt_tokens)
                return Shared(tokens if index or inside else 0, sample_group or group)
            node, group = child, child.group
        count = min(_DEPTH, len(prompt.segments))
        return Shared(prompt.position(count), group)

    def _inside(self, node: _Node, segment: Segment) -> tuple[int, Group | None]:
        best, group = 0, None
        for sample in node.samples:
            if sample.role != segment.role or not sample.pieces or not segment.pieces:
                continue
            tokens = 0
            for left, right in zip(sample.pieces, segment.pieces, strict=False):
                if left.kind != right.kind or left.kind == "attachment":
                    break
                cut = common_prefix(left.text, right.text)
                if cut < len(left.text) or cut < len(right.text):
                    tokens += self._common(left.text[: cut + 16], right.text[: cut + 16]) if cut else 0
                    break
                tokens += len(self._tokenizer.encode(left.text))
            if tokens > best:
                best, group = tokens, node.children[sample.key].group
        return best, group

    def _common(self, left: str, right: str) -> int:
        a, b = self._tokenizer.encode(left), self._tokenizer.encode(right)
        n = min(len(a), len(b))
        unequal = np.flatnonzero(a[:n] != b[:n])
        return int(unequal[0]) if len(unequal) else n
