"""A model that plays a script, and fails a test that does not use the script up.

    with ScriptedModel([
        [say("Let me look."), call("read", {"path": "a.txt"})],
        [think("Hm."), pause(3), drop()],
        "All is well.",
    ]) as model:
        ...

A reply is a text, one item, a list of items, or a function from the `Prompt` to a reply. An end
marker is added (`calls` if the reply has calls, else `end`) unless an item ends it. Each request is
checked to be valid for every provider, so every test with this model shows that.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from decimal import Decimal
from functools import reduce
from types import TracebackType
from typing import Self, TypeAlias

import msgspec
from msgspec.structs import replace

from windlass.core.decide.reserving import usage_cost
from windlass.core.events import (
    CallDelta,
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    StreamOpened,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Usage
from windlass.core.session_summary import check_text
from windlass.core.setup import ModelInfo, Price
from windlass.core.view import Prompt
from windlass.testing.prompts import PromptChecker
from windlass.testing.script_words import (
    ScriptAct,
    ScriptedCall,
    ScriptedFailure,
    ScriptedPause,
    ScriptedStall,
    ScriptedText,
    ScriptItem,
    StreamCut,
)

BYTES_PER_TOKEN = 4

ReplyItems: TypeAlias = "str | ScriptItem | Sequence[ReplyItems]"
ScriptedReply: TypeAlias = "ReplyItems | Callable[[Prompt], ScriptedReply]"
"""One reply of a script: a text, a call, a list of both, or a function of the request."""


class ScriptExhausted(AssertionError):
    """The model received more requests than its script has replies."""


class ReplyBeat(msgspec.Struct, frozen=True):
    """Pieces that are streamed without a pause, and what happens after them."""

    pieces: list[ReplyPiece]
    then: ScriptAct | None = None


class PlannedReply(msgspec.Struct, frozen=True):
    """A reply that is fully prepared, so that streaming it costs as little as possible."""

    beats: list[ReplyBeat]
    pieces: list[ReplyPiece]
    output_bytes: int
    """Size of the output, in bytes."""


FREE = Price(0, 0)


class ScriptedModel:
    """A `Model` that plays a script, one reply for each request."""

    def __init__(
        self,
        replies: Sequence[ScriptedReply],
        *,
        info: ModelInfo | None = None,
        name: str = "scripted:model",
        token_chars: int = 4,
        pace_s: float = 0.0,
        count: Callable[[Prompt], int] | None = None,
        truthful: bool = False,
    ) -> None:
        """Make a model that plays a script.

        Args:
            replies: one reply for each request, in order.
            info: name, price and limits of the model; by default it has a name, and costs nothing.
            name: its name, if no info is given.
            token_chars: characters in a piece of text.
            pace_s: seconds between two pieces.
            count: returns the input tokens of a prompt; by default a quarter of its bytes.
            truthful: respect `output_max` of the prompt (stop with `length`), and report usage at
                the end of each reply that does not report it.
        """
        self.info = info or ModelInfo(name, FREE)
        self.prompts: list[Prompt] = []
        """The requests received so far, in order."""
        self.billed: list[Usage] = []
        """What each request cost, whether or not the script reported it."""
        self.failures: list[AssertionError] = []
        """Problems with the requests. Kept because a runtime may swallow what is raised."""
        self._token_chars = token_chars
        self._pace_s = pace_s
        self._count = count
        self._truthful = truthful
        self._checker = PromptChecker()
        self._script = [
            reply if callable(reply) else self._plan_reply(reply, number)
            for number, reply in enumerate(replies, 1)
        ]

    @property
    def requests(self) -> int:
        """How many requests were received."""
        return len(self.prompts)

    @property
    def replies_left(self) -> int:
        """How many replies of the script have not been requested yet."""
        return max(0, len(self._script) - self.requests)

    @property
    def billed_usage(self) -> Usage:
        """The usage of all requests together."""
        return reduce(Usage.__add__, self.billed, Usage())

    @property
    def billed_usd(self) -> Decimal | None:
        """The cost of all requests in US dollars; None if the model has no price."""
        return usage_cost(self.info.price, self.billed_usage)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        plan, tokens = self._next_reply(prompt)
        with _Billing(self.billed, plan, tokens) as billing:
            # A real request gives way to other tasks before its first piece arrives.
            await asyncio.sleep(0)
            for beat in plan.beats:
                for piece in beat.pieces:
                    billing.sent += 1
                    yield piece
                if beat.then is not None:
                    await _perform_act(beat.then)

    async def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        """Stream the same: what the script has between two acts comes together."""
        plan, tokens = self._next_reply(prompt)
        with _Billing(self.billed, plan, tokens) as billing:
            await asyncio.sleep(0)
            for beat in plan.beats:
                if beat.pieces:
                    billing.sent += len(beat.pieces)
                    yield tuple(beat.pieces)
                if beat.then is not None:
                    await _perform_act(beat.then)

    def _next_reply(self, prompt: Prompt) -> tuple[PlannedReply, int]:
        """Return the next reply, and the input tokens of the prompt."""
        self.prompts.append(prompt)
        try:
            self._checker.check(prompt)
            if self.requests > len(self._script):
                raise ScriptExhausted(
                    f"request {self.requests} of a script with {len(self._script)} replies"
                )
        except AssertionError as error:
            self.failures.append(error)
            raise
        scripted = self._script[self.requests - 1]
        while callable(scripted):
            answer = scripted(prompt)
            scripted = answer if callable(answer) else self._plan_reply(answer, self.requests)
        tokens = self._count_tokens(prompt)
        if self._truthful:
            scripted = _truthful_plan(scripted, prompt, tokens)
        return scripted, tokens

    def _count_tokens(self, prompt: Prompt) -> int:
        if self._count is not None:
            return self._count(prompt)
        fixed = len(prompt.system.encode()) + len(msgspec.json.encode(prompt.tools))
        return (fixed + self._checker.message_bytes) // BYTES_PER_TOKEN

    def _plan_reply(self, reply: ReplyItems, request: int) -> PlannedReply:
        items = _flatten_items(reply)
        calls = [item for item in items if isinstance(item, ScriptedCall | CallDelta)]
        ends = (ReplyEnd, StreamCut, ScriptedFailure)
        if not any(isinstance(item, ends) for item in items):
            items.append(ReplyEnd("calls" if calls else "end"))
        pieces: list[ReplyPiece] = []
        beats: list[ReplyBeat] = []
        at_call = 0
        for item in items:
            if isinstance(item, ScriptedPause | ScriptedStall | StreamCut | ScriptedFailure):
                # An act ends a beat: the pieces before it are streamed first.
                beats.append(ReplyBeat(pieces, item))
                pieces = []
            elif isinstance(item, ScriptedText):
                check_text("replies", item.text)
                pieces += item.split_pieces(self._token_chars)
            elif isinstance(item, ScriptedCall):
                pieces += item.split_pieces(at_call, f"call_{request}_{at_call}")
                at_call += 1
            else:
                pieces.append(item)
        return _build_plan([*beats, ReplyBeat(pieces)], self._pace_s)

    def assert_used_up(self) -> None:
        """Raise an AssertionError for an invalid request, one too many, or replies left over."""
        if self.failures:
            raise self.failures[0]
        if self.replies_left:
            raise AssertionError(
                f"{self.replies_left} of {len(self._script)} replies were never requested"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.assert_used_up()


class _Billing:
    """Keeps the bill of one request while its reply is streamed."""

    def __init__(self, billed: list[Usage], plan: PlannedReply, tokens: int) -> None:
        self._billed = billed
        self._plan = plan
        self._tokens = tokens
        self._at = len(billed)
        self.sent = 0
        """The pieces that were streamed so far."""
        # Billed before the first piece: a client that leaves early has paid for its prompt.
        billed.append(Usage(tokens))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.sent:
            self._billed[self._at] = _billed_usage(self._plan, self.sent, self._tokens)
        elif isinstance(error, Exception):
            self._billed[self._at] = Usage()  # A request that is refused before any output is free.


async def _perform_act(act: ScriptAct) -> None:
    match act:
        case ScriptedPause(seconds):
            await asyncio.sleep(seconds)
        case ScriptedStall():
            await asyncio.get_running_loop().create_future()
        case ScriptedFailure():
            raise act.new_error()
        case StreamCut():
            pass


def _flatten_items(reply: ReplyItems) -> list[ScriptItem]:
    if isinstance(reply, str):
        return [ScriptedText(reply)]
    if isinstance(reply, Sequence):
        return [item for nested in reply for item in _flatten_items(nested)]
    return [reply]


def _build_plan(beats: list[ReplyBeat], pace_s: float = 0.0) -> PlannedReply:
    """Cut the plan after the act that ends it, and put pauses between its pieces."""
    for at, beat in enumerate(beats):
        if isinstance(beat.then, StreamCut | ScriptedFailure | ScriptedStall):
            # What the script has after such an act is never streamed, so it is not billed.
            beats = beats[: at + 1]
            break
    pieces = [piece for beat in beats for piece in beat.pieces]
    if pace_s:
        beats = [paced for beat in beats for paced in _pace_beat(beat, pace_s)]
    return PlannedReply(beats, pieces, sum(map(_output_bytes, pieces)))


def _pace_beat(beat: ReplyBeat, pace_s: float) -> list[ReplyBeat]:
    apart = [ReplyBeat([piece], ScriptedPause(pace_s)) for piece in beat.pieces[:-1]]
    return [*apart, ReplyBeat(beat.pieces[-1:], beat.then)]


def _output_bytes(piece: ReplyPiece) -> int:
    """Return the size of the output in a piece, in bytes."""
    match piece:
        case TextDelta(text) | ThinkingDelta(text):
            return len(text.encode())
        case CallDelta():
            return len(((piece.name or "") + piece.arguments).encode())
        case UsageDelta() | ReplyEnd() | StreamOpened() | ReplyRestarted():
            return 0


def _billed_usage(plan: PlannedReply, sent: int, tokens: int) -> Usage:
    """Return what a request cost: as the script reports, else by the bytes that were streamed."""
    streamed = plan.pieces[:sent]
    for piece in reversed(streamed):
        if isinstance(piece, UsageDelta):
            return piece.usage
    size = plan.output_bytes if sent == len(plan.pieces) else sum(map(_output_bytes, streamed))
    return Usage(tokens, -(-size // BYTES_PER_TOKEN))  # Rounded up.


def _truthful_plan(plan: PlannedReply, prompt: Prompt, tokens: int) -> PlannedReply:
    """Change a plan so that it respects `output_max` and reports its usage."""
    room = prompt.output_max * BYTES_PER_TOKEN
    reports = any(isinstance(piece, UsageDelta) for piece in plan.pieces)
    beats: list[ReplyBeat] = []
    for beat in plan.beats:
        pieces: list[ReplyPiece] = []
        for piece in beat.pieces:
            size = _output_bytes(piece)
            if size > room or (isinstance(piece, ReplyEnd) and not reports):
                short = _shorten_piece(piece, room) if size > room else []
                used = prompt.output_max * BYTES_PER_TOKEN - room + sum(map(_output_bytes, short))
                usage = Usage(tokens, -(-used // BYTES_PER_TOKEN))
                end = ReplyEnd("length") if size > room else piece
                return _build_plan([*beats, ReplyBeat([*pieces, *short, UsageDelta(usage), end])])
            pieces.append(piece)
            room -= size
        beats.append(ReplyBeat(pieces, beat.then))
    return plan


def _shorten_piece(piece: ReplyPiece, room: int) -> list[ReplyPiece]:
    """Return as much of a piece as fits into `room` bytes."""
    if isinstance(piece, TextDelta | ThinkingDelta):
        # A character that the limit cuts in two is dropped.
        text = piece.text.encode()[:room].decode(errors="ignore")
        return [replace(piece, text=text)] if text else []
    if isinstance(piece, CallDelta) and (left := room - len((piece.name or "").encode())) >= 0:
        return [replace(piece, arguments=piece.arguments.encode()[:left].decode(errors="ignore"))]
    return []
