"""The check itself: requests in, one frozen answer out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from eactl.condense.ledger import Prices
from eactl.condense.rendered import Renderer
from eactl.condense.result import Session, Turn
from eactl.condense.segments import FRAME_TOKENS, Segmenter
from eactl.condense.settle import price_line, settle
from eactl.condense.shared import SharedHeads
from eactl.condense.tracker import Tracker
from eactl.condense.turns import Event, TurnMaker
from eactl.condense.usage import counts_of, usage_turns
from eactl.trace.call import Notice
from eactl.trace.chat import RAW_ROLE, ChatRequest
from eactl.trace.templates import ChatTemplate
from eactl.trace.tokens import ApproximateTokenizer, Tokenizer

_HELD_TOKENS = 24 << 20  # about 100 MB of text kept for comparing; sessions idle for longest are forgotten first
_CHECK_EVERY = 64


@dataclass(frozen=True)
class CheckSettings:
    """How to compare: chunk size of the tier, prices, what the server renders first, whether text may be quoted.

    ``bytes_per_token_rank`` turns what isolation costs into bytes.
    """

    chunk_tokens: int = 256
    prices: Prices = field(default_factory=Prices)
    tools_first: bool = True
    quotes: bool = True
    frame_tokens: int = FRAME_TOKENS
    bytes_per_token_rank: float | None = None


@dataclass(frozen=True)
class Checked:
    """Sessions with their turns, the messages that came in turn by turn, and what a reader must know."""

    sessions: tuple[Session, ...]
    histories: tuple[tuple[str, tuple[tuple[Event, ...], ...]], ...]
    notices: tuple[Notice, ...]
    named: bool
    counted: int = 0


def check(
    requests: Iterable[ChatRequest], settings: CheckSettings, tokenizer: Tokenizer | None = None,
    template: ChatTemplate | None = None, *, keep_histories: bool = False,
) -> Checked:  # fmt: skip
    """Compare every request with the one it continues, as rendered by ``template`` where there is one.

    ``keep_histories`` is for models of condensers.
    """
    tokenizer = tokenizer or ApproximateTokenizer()
    renderer = None if template is None else Renderer(template, tokenizer)
    maker = TurnMaker(tokenizer, settings.chunk_tokens, settings.quotes, renderer)
    frame = settings.frame_tokens if renderer is None else renderer.frame_tokens(settings.frame_tokens)
    segmenter = Segmenter(tokenizer, settings.tools_first, frame, renderer)
    heads = SharedHeads(tokenizer)
    trackers: OrderedDict[str | None, Tracker] = OrderedDict()
    facts = _Facts()
    for number, request in enumerate(requests):
        tracker = trackers.get(request.session)
        if tracker is None:
            named = request.session is not None
            tracker = trackers[request.session] = Tracker(maker, segmenter, heads, named=named)
        else:
            trackers.move_to_end(request.session)
        facts.note(request)
        tracker.add(_emptied(request))
        if number % _CHECK_EVERY == 0:
            facts.forgotten += _forget(trackers)
    sessions: list[Session] = []
    histories: list[tuple[str, tuple[tuple[Event, ...], ...]]] = []
    for name in facts.order:
        tracker = trackers[name]
        for session, history in _sessions(name, tracker, settings):
            sessions.append(session)
            if keep_histories and history and history[0] and history[0][-1].role != RAW_ROLE:
                histories.append((session.session, history))
    unmeasured = sum(tracker.unmeasured for tracker in trackers.values())
    notices = list(facts.notices(unmeasured, tokenizer))
    if renderer is not None:
        renderer.judge()
    if renderer is not None and renderer.refused:
        text = f"the template refused {renderer.refused:,} requests, which were compared by their messages"
        notices.append(Notice("template-refused", f"{text}: {renderer.why}", "check --chat-template"))
    return Checked(tuple(sessions), tuple(histories), tuple(notices), named=None not in trackers, counted=facts.counted)


def _sessions(
    name: str | None, tracker: Tracker, settings: CheckSettings
) -> Iterable[tuple[Session, tuple[tuple[Event, ...], ...]]]:
    turns = settle(tracker.drafts, tracker.beside, settings.prices)
    if name is None:
        lines: dict[int, list[int]] = {}
        for number, draft in enumerate(tracker.drafts):
            lines.setdefault(draft.line, []).append(number)
        for place, numbers in enumerate(lines.values(), 1):
            label = f"conversation {place}"
            own = tuple(replace(turns[n], session=label, turn=i) for i, n in enumerate(numbers))
            yield Session(label, own), tuple(tracker.drafts[n].added for n in numbers)
        return
    counted = usage_turns(tracker.usage_only, chunk_tokens=settings.chunk_tokens)
    price_line(range(len(counted)), counted, settings.prices)
    every = sorted([*turns, *counted], key=_turn_number) if turns and counted else turns or counted
    beside = tracker.beside
    history = tuple(draft.added for draft in tracker.drafts if draft.line not in beside)
    if every:
        yield Session(name, tuple(every)), history


def _emptied(request: ChatRequest) -> ChatRequest:
    """A request whose logged prompt is an empty text has no text: nothing can be said about it from its messages."""
    if len(request.messages) == 1 and request.prompt_token_ids is None:
        only = request.messages[0]
        if only.get("role") == RAW_ROLE and not only.get("content"):
            request.messages = []
    return request


def _turn_number(turn: Turn) -> int:
    return turn.turn


def _forget(trackers: OrderedDict[str | None, Tracker]) -> int:
    """Drop the text of the sessions idle for longest when too much is held; returns how many were dropped."""
    held = sum(tracker.held_tokens for tracker in trackers.values())
    forgotten = 0
    for tracker in list(trackers.values())[:-1]:
        if held <= _HELD_TOKENS:
            break
        if tracker.held_tokens:
            held -= tracker.held_tokens
            tracker.forget_text()
            forgotten += 1
    return forgotten


@dataclass(slots=True)
class _Facts:
    """What is noticed on the way."""

    order: dict[str | None, None] = field(default_factory=dict)
    requests: int = 0
    texts: int = 0
    inexact: int = 0
    measured: int = 0
    counted: int = 0
    forgotten: int = 0
    adapters: set[str | None] = field(default_factory=set)

    def note(self, request: ChatRequest) -> None:
        self.order.setdefault(request.session)
        self.requests += 1
        if request.prompt_token_ids is not None:
            self.counted += 1
        elif request.usage is not None and request.usage.prompt_tokens is not None:
            self.counted += bool(request.messages) or counts_of(request) is not None
        self.texts += bool(request.messages) and request.prompt_token_ids is None
        self.inexact += not request.exact and bool(request.messages)
        self.measured += request.usage is not None and request.usage.prompt_tokens is not None
        if len(self.adapters) < 3:
            self.adapters.add(request.adapter)

    def notices(self, unmeasured: int, tokenizer: Tokenizer) -> Iterable[Notice]:
        if None in self.order:
            yield Notice(
                "no-sessions",
                "the log names no sessions for some requests; they were put together by the messages they share, and "
                "a first request's stable tokens are what it shares with any earlier request",
                "record a session id to have every turn compared with its own previous one",
            )
        if not tokenizer.exact and self.texts:
            what = (
                "the tokens of a prompt are the log's own count, places within it are approximate"
                if self.measured >= self.texts
                else "token counts are approximate"
            )
            yield Notice(
                "approximate-tokens", f"{what}; texts are compared exactly", "give --tokenizer for the model's own",
            )  # fmt: skip
        if self.inexact:
            yield Notice(
                "hidden-prompt",
                f"{self.inexact:,} of {self.requests:,} requests do not hold the whole prompt (hidden system prompt or "
                "edited history); a change in what is hidden is not seen",
                "log the request bodies to see it all",
            )
        if unmeasured:
            yield Notice(
                "no-text-no-cache-count",
                f"{unmeasured:,} {'request holds' if unmeasured == 1 else 'requests hold'} neither text nor a count of "
                f"cached tokens and {'was' if unmeasured == 1 else 'were'} left out",
                "log messages, or usage with cached tokens",
            )
        if self.forgotten:
            yield Notice(
                "sessions-forgotten",
                f"the text of {self.forgotten:,} idle sessions was dropped to bound memory; a request that came later "
                "counts as a first call",
                "sort the log by session",
            )
        if len(self.adapters) > 1:
            yield Notice(
                "adapters-mixed",
                "the log mixes adapters: a tier whose keys do not hold the adapter gives one adapter's KV to another, "
                "which is wrong before it is fast (LMCache multi-process, vLLM issue 44250)",
                "check the versions in use, or keep one tier per adapter",
            )
