"""From chat requests to prompts of token ids, a prompt at a time, encoding only what earlier prompts did not hold.

With a tokenizer and a chat template a prompt is what a server makes of it. Without a template each message becomes a
few marks of its role and its text, in the order tools, messages. Where the provider measured the prompt's tokens and
the tokenizer is not the model's own, what a request adds is stretched or cut to the measured length, message by
message; equal beginnings of two conversations keep equal ids, for what is known of a beginning is kept under the
whole path to it.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from eactl.errors import TraceError
from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.parttext import IMAGE_MARK, part_text, text_blocks
from eactl.trace.promptparts import HIDDEN, Known, Latest, Parts, Prompt, Segment, parts_of
from eactl.trace.templates import ChatTemplate
from eactl.trace.tokens import ApproximateTokenizer, HuggingFaceTokenizer, TokenIds, Tokenizer, filler

IMAGE_TOKENS = 1024  # what an image counts where nothing is measured
_REMEMBERED_SESSIONS = 64
_MEMORY_BYTES = 64 << 20
_ENTRY_BYTES = 300
_MARKS = 8  # a session in use is marked so each time an eighth of the memory was taken in
_NO_KEY = b""


class PromptEncoder:
    """Makes prompts of requests; one encoder for all logs of a reading, so that equal text has equal ids.

    Memory is bounded by ``memory_bytes``: what was not used for longest is forgotten, and encoded again if needed.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        template: ChatTemplate | None = None,
        memory_bytes: int = _MEMORY_BYTES,
    ) -> None:
        self.tokenizer: Tokenizer = tokenizer or ApproximateTokenizer()
        self.template = template
        self._limit = memory_bytes
        self._used = self._taken = 0  # bytes now, and in all
        self._begin = Segment(self.tokenizer.begin_ids, 0)
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._hidden_tokens: dict[bytes, tuple[int, int]] = {}  # of each session: all, and those that others share
        self._pieces: OrderedDict[bytes, TokenIds] = OrderedDict()
        self._latest: OrderedDict[str | None, Latest] = OrderedDict()
        self._boundaries: re.Pattern[str] | None = None
        if template is not None and isinstance(tokenizer, HuggingFaceTokenizer):
            self._boundaries = _boundary_pattern(tokenizer.boundaries)

    @property
    def name(self) -> str:
        """Which tokenizer made the ids."""
        return self.tokenizer.name

    def encode(self, request: ChatRequest) -> Prompt:
        """The prompt of ``request``, with the generation prompt where a template makes one.

        Raises TraceError when the template refuses the messages or is cut off.
        """
        if request.prompt_token_ids:
            try:
                ids = np.array(request.prompt_token_ids, dtype=np.int32)
            except OverflowError:
                raise TraceError(
                    "a token id beyond 2^31", where=request.where, hint="no vocabulary is that large"
                ) from None
            return Prompt([Segment(ids, 0)], len(ids), exact=True, measured=False)
        raw = bool(request.messages) and request.messages[0].get("role") == RAW_ROLE
        if self.template is not None and not raw:
            return self._rendered(request, self.template)
        return self._plain(request, raw=raw)

    # with a template

    def _rendered(self, request: ChatRequest, template: ChatTemplate) -> Prompt:
        text = template.render(
            request.messages, request.tools, now_s=request.arrival_s, where=request.where,
            options=request.template_options,
        )  # fmt: skip
        segments = [Segment(self._piece(piece), 0) for piece in self._cut(text)]
        tokens = sum(len(segment.ids) for segment in segments)
        hidden = self._hidden(request, tokens)
        if hidden is not None:
            segments.insert(0, hidden)
            tokens += len(hidden.ids)
        exact = self.tokenizer.exact and request.exact
        return Prompt(segments, tokens, exact=exact, measured=False)

    def _cut(self, text: str) -> list[str]:
        """The text in pieces that begin with a special token: none of them changes how its neighbours are encoded."""
        if self._boundaries is None:
            return text_blocks(text) if self.tokenizer.splits_at_line_ends else [text] if text else []
        starts = [match.start() for match in self._boundaries.finditer(text)]
        bounds = [0, *starts, len(text)] if not starts or starts[0] else [*starts, len(text)]
        return [text[a:b] for a, b in pairwise(bounds) if a < b]

    def _piece(self, text: str) -> TokenIds:
        key = _digest(_NO_KEY, text)
        ids = self._pieces.get(key)
        if ids is None:
            ids = self.tokenizer.encode(text)
            self._pieces[key] = ids
            self._count(ids)
            self._forget(self._pieces)
        else:
            self._pieces.move_to_end(key)
        return ids

    # without one

    def _plain(self, request: ChatRequest, *, raw: bool) -> Prompt:
        parts = parts_of(request, raw=raw, in_blocks=self.tokenizer.splits_at_line_ends)
        latest, texts = self._follow(request, parts)
        keys, at = latest.keys, len(latest.known)
        unread = len(keys) - len(texts)
        added = [
            self._encoded(parts[index], texts[index - unread] if index >= unread else None)
            for index in range(at, len(keys))
        ]
        hidden = self._hidden(request, sum(map(len, added)))
        start = latest.known[-1].end if at else 0 if hidden is None else len(hidden.ids)
        measured = None if self.tokenizer.exact or request.usage is None else request.usage.prompt_tokens
        target = None if measured is None else measured - start
        end = start
        made: list[Known] = []
        for index, ids in enumerate(_fit(added, keys[at:], target), at):
            end += len(ids)
            made.append(Known(Segment(ids, parts.label(index)), end))
        begin = self._begin if raw and len(self._begin.ids) else None
        latest.put_behind(tuple(segment for segment in (begin, hidden) if segment is not None))
        tail: list[Segment] = []
        if target is None or target > 0:
            for key, entry in zip(keys[at:], made, strict=True):
                self._known[key] = entry
                self._count(entry.segment.ids)
            latest.add(made)
        else:
            tail = [entry.segment for entry in made]
        if measured is not None and measured > end:
            path = (keys[-1] if keys else _NO_KEY).hex()
            label = parts.label(len(keys) - 1) if keys else HIDDEN
            tail.append(Segment(filler(f"rest {path}", measured - end), label))
        self._keep(latest)
        tokens = end if measured is None else measured
        if begin is not None:
            tokens += len(begin.ids)
        exact = raw and self.tokenizer.exact and request.exact
        return Prompt(latest.segments, tokens, exact=exact, measured=measured is not None, tail=tuple(tail))

    def _follow(self, request: ChatRequest, parts: Parts) -> tuple[Latest, list[str]]:
        """As much of a prompt as is known, with the keys of all its parts, and the texts of the last ones.

        Parts that the session's latest prompt had in their place are not looked at; where they end, and where a
        session is new, the keys of what was said since tell whether another prompt has begun alike.
        """
        root = _root(request)
        before = self._latest.get(request.session)
        same = 0 if before is None or before.root != root else parts.same_as(before.parts)
        latest = before.next(same, parts) if before is not None and same else Latest(root, parts)
        key = latest.keys[-1] if same else root
        keys: list[bytes] = []
        texts: list[str] = []
        for index in range(same, len(parts)):
            text = part_text(parts[index])
            key = _digest(key, text)
            keys.append(key)
            texts.append(text)
        latest.keys = latest.keys.grown(keys)
        found: list[Known] = []
        for key in latest.keys[len(latest.known) :]:
            entry = self._known.get(key)
            if entry is None:  # nothing behind a gap counts
                break
            found.append(entry)
        latest.add(found)
        self._latest[request.session] = latest
        self._latest.move_to_end(request.session)
        if len(self._latest) > _REMEMBERED_SESSIONS:
            self._latest.popitem(last=False)
        return latest, texts

    def _keep(self, latest: Latest) -> None:
        """Mark a prompt's beginnings as in use, where that may matter, and forget what was not used for longest."""
        if self._used <= self._limit // 2:
            return
        if self._taken - latest.used_at > self._limit // _MARKS:  # not at each turn, which would cost its whole prompt
            latest.used_at = self._taken
            for key in reversed(latest.keys):
                if key in self._known:
                    self._known.move_to_end(key)
        self._forget(self._known)

    def _count(self, ids: TokenIds) -> None:
        self._used += ids.nbytes + _ENTRY_BYTES
        self._taken += ids.nbytes + _ENTRY_BYTES

    def _encoded(self, part: Any, text: str | None) -> TokenIds:
        text = part_text(part) if text is None else text
        if isinstance(part, str):
            return self.tokenizer.encode(text)
        pieces = [_frame(f"role {part.get('role') if isinstance(part, dict) else 'tools'}", 3)]
        for number, piece in enumerate(text.split(IMAGE_MARK)):
            if number % 2:
                pieces.append(filler(piece, IMAGE_TOKENS))
            elif piece:
                pieces.append(self.tokenizer.encode(piece))
        pieces.append(_frame("end of message", 1))
        return np.concatenate(pieces)

    def _hidden(self, request: ChatRequest, visible: int) -> Segment | None:
        """What the log does not show before the first message, sized once a session, at its first request.

        What the provider read from its cache on that request was written by other sessions: these tokens get ids
        that all sessions of the model share.
        """
        least, most = request.hidden_tokens
        if most == 0 and not least:
            return None
        key = _digest(b"hidden", f"{request.session}\0{request.model}\0{request.adapter}")
        known = self._known.get(key)
        if known is None:
            if key not in self._hidden_tokens:
                usage = request.usage
                tokens = least
                if usage is not None and usage.prompt_tokens is not None:
                    tokens = max(least, usage.prompt_tokens - visible)
                shared = tokens
                if usage is not None and usage.cached_tokens:
                    shared = min(tokens, usage.cached_tokens)
                self._hidden_tokens[key] = tokens, shared
            tokens, shared = self._hidden_tokens[key]
            kind = "agent" if request.parent else "main"
            ids = np.concatenate((filler(f"hidden {request.model} {kind}", shared),
                                  filler(f"hidden {request.session}", tokens - shared)))  # fmt: skip
            known = self._known[key] = Known(Segment(ids, HIDDEN), tokens)
            self._count(ids)
        self._known.move_to_end(key)
        return known.segment

    def _forget(self, table: OrderedDict[bytes, Any]) -> None:
        while self._used > self._limit and len(table) > 1:
            _, entry = table.popitem(last=False)
            ids = entry.segment.ids if isinstance(entry, Known) else entry
            self._used -= ids.nbytes + _ENTRY_BYTES


@lru_cache(maxsize=64)
def _frame(key: str, tokens: int) -> TokenIds:
    return filler(key, tokens)


def _fit(added: list[TokenIds], keys: Sequence[bytes], target: int | None) -> list[TokenIds]:
    """The new stretches, cut or filled so that together they have ``target`` tokens, each in proportion."""
    total = sum(map(len, added))
    if target is None or target == total or target <= 0 or not total:
        return added
    fitted, end, fitted_end = [], 0, 0
    for ids, key in zip(added, keys, strict=True):
        end += len(ids)
        size = end * target // total - fitted_end
        fitted_end += size
        fitted.append(ids[:size] if size <= len(ids) else np.concatenate((ids, filler(key.hex(), size - len(ids)))))
    return fitted


def _root(request: ChatRequest) -> bytes:
    hidden = request.session if request.hidden_tokens != (0, 0) else None
    return _digest(b"root", f"{request.model}\0{request.adapter}\0{hidden}")


def _digest(before: bytes, text: str) -> bytes:
    return hashlib.blake2b(before + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _boundary_pattern(tokens: list[tuple[str, bool]]) -> re.Pattern[str] | None:
    if not tokens:
        return None
    longest_first = sorted(tokens, key=lambda token: -len(token[0]))
    return re.compile("|".join((r"\s*" if swallows else "") + re.escape(text) for text, swallows in longest_first))
