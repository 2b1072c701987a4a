"""One request to a model: its pieces are shown, its silence is limited, its reply is assembled.

Invariant: a reply counts only with its end marker; once that is there, the reply is whole, and the
rest of the stream is not awaited. Its stream is closed once the reply is on record, because a kill
in between would lose what was paid for. One attempt makes one request; retries are decided
elsewhere.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from decimal import Decimal
from functools import cache
from typing import Literal, NamedTuple, cast

from msgspec.structs import replace

from windlass.core.decide.reserving import settle_attempt
from windlass.core.errors import Fault, FaultKind, ModelError, is_out_of_files
from windlass.core.events import (
    AttemptFailed,
    ContentPiece,
    ReplyEnd,
    ReplyPiece,
    ReplyRestarted,
    StepProposed,
    StreamOpened,
    UsageDelta,
)
from windlass.core.messages import Charge, Purpose, Usage
from windlass.core.moves import RequestReply, Summarize
from windlass.core.rate_limits import RateLimits
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.view import Prompt
from windlass.logs import get_logger
from windlass.ports import BatchingModel, Model, RequestPermit, Timeouts
from windlass.runtime.leftover_tasks import TIMER_GRAIN_S

PieceStream = AsyncGenerator[ReplyPiece] | AsyncGenerator[tuple[ReplyPiece, ...]]
"""The stream of a model: pieces, or batches of pieces that came together."""

_log = get_logger(__name__)
CLOSE_S = 1.0
"""How long a model may take to close its stream once the reply is whole."""

_FIX_INCOMPLETE = "If this happens again, a proxy or a server limit may cut long replies off."
_RESTARTED = "the provider started its reply over"
_BROKEN_STREAM_KINDS = frozenset(("incomplete_stream", "malformed_stream", "network"))


class ModelAttempt:
    """One request, and what has come of it so far."""

    def __init__(
        self,
        move: RequestReply | Summarize,
        model: Model,
        output_chars_max: int,
        permit: RequestPermit | None = None,
        restarted: "RestartedReply | None" = None,
    ) -> None:
        """Make an attempt. The permit of the governor, if there is one, is given back with it.

        `restarted` is what is left of an attempt before, if the provider started its reply over.
        """
        self._continued = restarted
        self._move = move
        self._permit = permit
        self._output_chars_max = output_chars_max
        """No reply of a server that keeps to the output cap is longer."""
        self.purpose: Purpose = "main" if isinstance(move, RequestReply) else "compaction"
        self._model = model
        self._assembly = ReplyAssembly()
        self._established = False
        """The head of a successful response has come, with or without content."""
        self._has_content = False
        self._was_seen = False
        """A watcher saw some of the text."""
        self._was_cut = False
        """The reply was ended here, because it ran on beyond its cap."""
        self._open_stream: PieceStream | None = None
        """The stream of a whole reply, until `aclose`."""
        self.restarted_stream: PieceStream | None = None
        """The rest of the stream, if the provider started its reply over in it."""
        self._restart_rest: tuple[ReplyPiece, ...] | None = None
        """What came together with the news that the reply starts over."""

    async def stream(
        self, timeouts: Timeouts, show_pieces: Callable[[Sequence[ContentPiece]], bool]
    ) -> Fault | None:
        """Make the request. Returns None once the reply is whole, otherwise what went wrong.

        `show_pieces` gets all pieces, those that came together in one call, and returns whether a
        watcher has seen text of them. The stream of a whole reply stays open: record the reply
        first, then call `aclose`.
        """
        watchdog: _StreamWatchdog | None = None
        fault: Fault | None = None
        limits: RateLimits | None = None
        try:
            if self._continued is None:
                stream = _open_stream(self._model, self._move.prompt)
            else:
                stream = self._continued.stream
            async with asyncio.timeout(None) as guard:
                watchdog = _StreamWatchdog(timeouts, guard)
                try:
                    async for streamed in stream:
                        batch = streamed if isinstance(streamed, tuple) else (streamed,)
                        if not self._take_batch(batch, watchdog, show_pieces):
                            break
                finally:
                    await self._leave_stream(stream, watchdog)
            if self.restarted_stream is not None:
                return self._make_fault("malformed_stream", _RESTARTED)
            if not self.is_whole:
                problem = f"the stream ended without its end marker{_describe_age(watchdog)}"
                fault = self._make_fault("incomplete_stream", f"{problem}. {_FIX_INCOMPLETE}")
        except ModelError as error:
            if is_out_of_files(error):
                raise  # Asking again would use up the attempts, and end a run that can be resumed.
            fault = error.fault
            limits = error.limits
        except TimeoutError:
            fault = self._make_fault("stalled", _describe_timeout(timeouts, watchdog))
        finally:
            if self._permit is not None:
                self._permit.close(fault, limits)
        # Once the end marker is there, the reply is whole, whatever happens to the connection.
        return None if self.is_whole else fault

    async def _leave_stream(self, stream: PieceStream, watchdog: "_StreamWatchdog") -> None:
        """Close the stream, unless its reply is whole and not on record yet, or it starts over."""
        try:
            if self.is_whole:
                self._open_stream = stream
            elif self._restart_rest is not None:
                self.restarted_stream = _read_on(self._restart_rest, stream)
            else:
                await stream.aclose()
        finally:
            watchdog.stop()

    def _take_batch(
        self,
        batch: tuple[ReplyPiece, ...],
        watchdog: "_StreamWatchdog",
        show_pieces: Callable[[Sequence[ContentPiece]], bool],
    ) -> bool:
        """Add what came together to the reply, and show it. Returns whether its end is to come."""
        self._established = True
        assembly = self._assembly
        taken: list[ContentPiece] = []
        for at, piece in enumerate(batch):
            if isinstance(piece, StreamOpened):
                if self._permit is not None:
                    self._permit.note_opened(piece.limits)
                continue
            if isinstance(piece, ReplyRestarted):
                if not assembly.output_chars:
                    continue
                self._restart_rest = batch[at + 1 :]
                break
            self._has_content = True
            content = piece
            # Looked at before the piece counts: a reply that ends here was not too long.
            if assembly.output_chars > self._output_chars_max or assembly.has_too_many_calls:
                content = self._end_overlong_reply(piece)
            assembly.add_piece(content)
            taken.append(content)
            if assembly.stop is not None:
                break
        if taken:
            # Usage is not content: servers send it as a keep-alive.
            is_usage = type(taken[0]) is UsageDelta and all(
                type(one) is UsageDelta for one in taken
            )
            if not is_usage:
                watchdog.note_content()
            if show_pieces(taken):
                self._was_seen = True
        return assembly.stop is None and self._restart_rest is None

    async def aclose(self) -> None:
        """Close the stream of a whole reply, within CLOSE_S. What goes wrong does not matter."""
        stream = self._open_stream
        self._open_stream = None
        if stream is None:
            return
        with suppress(ModelError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await stream.aclose()

    def _make_fault(self, kind: FaultKind, problem: str) -> Fault:
        provider = self._model.info.name.partition(":")[0]
        return Fault(kind, f"{provider}: {problem}", retryable=True)

    def _end_overlong_reply(self, piece: ContentPiece) -> ContentPiece:
        """Replace more output by the end that the server should have sent at its cap (B5)."""
        if isinstance(piece, UsageDelta | ReplyEnd):
            return piece
        self._was_cut = True
        problem = (
            "makes calls without end"
            if self._assembly.has_too_many_calls
            else f"ignores the output cap: it was asked for {self._move.reserved.output} tokens"
        )
        chars = self._assembly.output_chars
        _log.warning("%s %s; cut at %s characters", self._model.info.name, problem, chars)
        return ReplyEnd("length")

    @property
    def is_whole(self) -> bool:
        return self._assembly.stop is not None

    @property
    def is_main(self) -> bool:
        """Whether it asks for a step of the run, not for a summary."""
        return self.purpose == "main"

    @property
    def is_whole_reply(self) -> bool:
        """Whether it is a whole reply to the run itself."""
        return self.is_whole and self.is_main

    @property
    def partial_text(self) -> str:
        return self._assembly.text

    def pieces_so_far(self) -> Iterator[ContentPiece]:
        """Yield what has come of the reply, as pieces."""
        return self._assembly.pieces_so_far()

    def mark_seen(self) -> None:
        """Note that a watcher saw some of the text."""
        self._was_seen = True

    def compute_charge(self, fault: Fault | None = None) -> Charge | None:
        """Return what the request cost: nothing if it was refused, maybe something if it broke off.

        A reply that starts over counts for what had come, because the process may die before the
        end of the response reports all of it. What that end reports is less by as much.
        `fault` is why it failed, if it did.
        """
        if fault is not None and not self._may_have_cost(fault):
            return None
        charge = settle_attempt(
            self._model.info,
            self._move.reserved,
            self._assembly.usage,
            self._assembly.output_bytes,
            whole=self.is_whole and not self._was_cut,
            overlong=self._assembly.output_chars > self._output_chars_max,
        )
        if self._continued is not None:
            charge = self._continued.take_off(charge)
        return replace(charge, purpose=self.purpose)

    def restart(self, fault: Fault) -> "RestartedReply | None":
        """Return what the next attempt reads on in, if the provider started its reply over."""
        if self.restarted_stream is None:
            return None
        charge = self.compute_charge(fault)
        charges = () if charge is None else (charge,)
        earlier = () if self._continued is None else self._continued.charges
        return RestartedReply(self.restarted_stream, (*earlier, *charges))

    def _may_have_cost(self, fault: Fault) -> bool:
        if self._has_content or fault.kind == "stalled":
            return True
        # An error that a server announces in place of a reply is a refusal, whatever its status.
        return self._established and fault.kind in _BROKEN_STREAM_KINDS

    def make_proposal(self) -> StepProposed:
        # Steps are numbered within the session, so that the ids of calls are unique in it.
        reply = self._assembly.build_reply(self._model.info.name, f"c{self._move.step}_")
        return StepProposed(reply, self._assembly.stop or "end", self.compute_charge())

    def make_failure(self, fault: Fault, wait_s: float) -> AttemptFailed:
        return AttemptFailed(
            fault,
            charge=self.compute_charge(fault),
            established=self._established,
            visible=self._was_seen,
            partial=self.partial_text,
            wait_s=wait_s,
        )


class RestartedReply(NamedTuple):
    """A response in which the provider started its reply over."""

    stream: PieceStream
    charges: tuple[Charge, ...]
    """What is on record for the attempts that have read from it."""

    def take_off(self, charge: Charge) -> Charge:
        """Return what a charge adds to those on record, if the provider has reported all of it."""
        usage = charge.usage
        if usage is None or usage.estimated:
            return charge
        usd = charge.usd
        for earlier in self.charges:
            usage = usage.minus(earlier.usage or Usage())
            usd = None if usd is None else max(Decimal(0), usd - (earlier.usd or 0))
        return replace(charge, usage=usage, usd=usd)


async def _read_on(
    rest: tuple[ReplyPiece, ...], stream: PieceStream
) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
    """Yield what is left of a batch, and then the rest of the stream that it came from."""
    async with aclosing(stream):
        if rest:
            yield rest
        async for streamed in stream:
            yield streamed if isinstance(streamed, tuple) else (streamed,)


def _open_stream(model: Model, prompt: Prompt) -> PieceStream:
    if _has_batches(type(model)):
        return cast("BatchingModel", model).stream_batches(prompt)
    return model.stream(prompt)


@cache
def _has_batches(kind: type[Model]) -> bool:
    """Whether models of a class stream batches, unless it overrides only the stream of its base.

    Found out once for each class: with a protocol, `isinstance` takes longer than many a batch.
    """
    for base in kind.__mro__:
        if "stream_batches" in vars(base):
            return True
        if "stream" in vars(base):
            return False
    return False


class _StreamWatchdog:
    """Ends the wait for a stream that lasts too long, or sends no content for too long.

    Noting content must cost next to nothing, as it comes thousands of times: it only stores the
    time, and one timer looks at it.
    """

    def __init__(self, timeouts: Timeouts, guard: asyncio.Timeout) -> None:
        self._loop = asyncio.get_running_loop()
        self._guard = guard
        self._began_at = self._loop.time()
        self._timeouts = timeouts
        self._last_content_at: float | None = None
        self.ended: Literal["no_content", "idle", "too_long"] | None = None
        """Why it ended the wait, if it did. Too long: the limit of the whole attempt."""
        limits = (timeouts.first_byte_s, timeouts.idle_s, timeouts.step_s)
        # It looks for the first time when the shortest limit may be over.
        first_s = min((limit for limit in limits if limit is not None), default=None)
        self._timer = None if first_s is None else self._loop.call_later(first_s, self._look)

    @property
    def age_s(self) -> float:
        """Seconds since the request was made."""
        return self._loop.time() - self._began_at

    def note_content(self) -> None:
        """Note that content came."""
        self._last_content_at = self._loop.time()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """End the wait if a limit is over; else look again when the next one may be."""
        now = self._loop.time()
        began, since = self._began_at, self._last_content_at
        limits = self._timeouts
        dues: list[tuple[float, Literal["no_content", "idle", "too_long"]]] = []
        if limits.step_s is not None:
            dues.append((began + limits.step_s, "too_long"))
        if since is None and limits.first_byte_s is not None:
            dues.append((began + limits.first_byte_s, "no_content"))
        elif limits.idle_s is not None:
            # Before the first content, it may come at any time, and then it counts.
            dues.append(((now if since is None else since) + limits.idle_s, "idle"))
        due, reason = min(dues, default=(0.0, None))
        if reason is None:
            self._timer = None
        elif due - now < TIMER_GRAIN_S:
            self.ended = reason
            self._guard.reschedule(now)
        else:
            self._timer = self._loop.call_later(due - now, self._look)


def _describe_timeout(timeouts: Timeouts, watchdog: _StreamWatchdog | None) -> str:
    """Return which limit of time ended an attempt, and what to do about it."""
    match watchdog and watchdog.ended:
        case "no_content":
            return (
                f"the model sent nothing for {timeouts.first_byte_s:g} s after the request. If it "
                "needs longer to begin, set Timeouts(first_byte_s=…)."
            )
        case "idle":
            return (
                f"the model fell silent: nothing came for {timeouts.idle_s:g} s in the middle of "
                "its reply. If it pauses for longer, set Timeouts(idle_s=…)."
            )
        case "too_long":
            return (
                f"the reply was not complete after {timeouts.step_s:g} s, the limit "
                "Timeouts(step_s=…), and was cut off. Set a longer step_s, or None for no limit."
            )
        case _:
            age = _describe_age(watchdog)
            return f"the connection timed out{age}. Check the network and the server."


def _describe_age(watchdog: _StreamWatchdog | None) -> str:
    return f" after {watchdog.age_s:.1f} s" if watchdog is not None else ""
