"""One request to a model: its pieces passed on, its silence bounded, its reply assembled."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from msgspec.structs import replace

from windlass.core.decide.reserving import settle_attempt
from windlass.core.errors import ModelError
from windlass.core.events import AttemptFailed, ReplyEnd, ReplyPiece, StepProposed, UsageDelta
from windlass.core.faults import Fault
from windlass.core.messages import Charge, Purpose
from windlass.core.moves import RequestReply, Summarize
from windlass.core.reply_assembly import ReplyAssembly
from windlass.ports import Model, Timeouts

AFTER_REPLY_S = 5.0
"""How long a stream may take to close once its reply is whole."""


TIMER_GRAIN_S = 0.001
"""Less than this is no time left."""


class ModelAttempt:
    """What has come of one request so far."""

    def __init__(self, move: RequestReply | Summarize, model: Model) -> None:
        self._move = move
        self.purpose: Purpose = "main" if isinstance(move, RequestReply) else "compaction"
        self._model = model
        self._assembly = ReplyAssembly()
        self._established = False
        self.was_seen = False
        """A watcher saw some of the text."""

    async def stream(
        self, timeouts: Timeouts, show_piece: Callable[[ReplyPiece], bool]
    ) -> Fault | None:
        """Make the request; None once the reply is whole, else what went wrong."""
        assembly = self._assembly
        try:
            pieces = self._model.stream(self._move.prompt)
            async with _watch_silence(timeouts) as watchdog, aclosing(pieces):
                async for piece in pieces:
                    self._established = True
                    assembly.add_piece(piece)
                    watchdog.note_piece(piece)
                    if show_piece(piece):
                        self.was_seen = True
            fault = Fault("incomplete_stream", "the stream ended without its end", retryable=True)
        except ModelError as error:
            fault = error.fault
        except TimeoutError:
            fault = Fault("stalled", "the model fell silent", retryable=True)
        # Once the end marker is there, the reply is whole, whatever happens to the connection.
        return None if self.is_whole else fault

    @property
    def is_whole(self) -> bool:
        return self._assembly.stop is not None

    @property
    def is_answer(self) -> bool:
        """A whole reply of the run itself, not one that sums up."""
        return self.is_whole and self.purpose == "main"

    @property
    def partial_text(self) -> str:
        return self._assembly.text

    def compute_charge(self, fault: Fault | None = None) -> Charge | None:
        """What it cost. A request that was refused cost nothing; one that was cut short may."""
        if fault is not None and fault.kind != "stalled" and not self._established:
            return None
        usage, size = self._assembly.usage, self._assembly.output_bytes
        info, reserved = self._model.info, self._move.reserved
        charge = settle_attempt(info, reserved, usage, size, whole=self.is_whole)
        return charge if self.purpose == "main" else replace(charge, purpose=self.purpose)

    def make_proposal(self) -> StepProposed:
        # The step's number is the session's, and so the ids of its calls are unique there.
        reply = self._assembly.build_reply(self._model.info.name, f"c{self._move.step}_")
        return StepProposed(reply, self._assembly.stop or "end", self.compute_charge())

    def make_failure(self, fault: Fault, wait_s: float) -> AttemptFailed:
        return AttemptFailed(
            fault,
            charge=self.compute_charge(fault),
            established=self._established,
            visible=self.was_seen,
            partial=self.partial_text,
            wait_s=wait_s,
        )


class _SilenceWatchdog:
    """Content feeds it; when it has not been fed for too long, it ends the wait.

    Feeding must cost next to nothing: it only leaves the time, and one timer looks for that.
    """

    def __init__(self, timeouts: Timeouts, guard: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._time, self._call_later = loop.time, loop.call_later
        self._guard = guard
        self._idle_s = timeouts.idle_s
        self._last_content_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.restart_timer(timeouts.first_byte_s)

    def note_piece(self, piece: ReplyPiece) -> None:
        if type(piece) is UsageDelta:
            return
        first, self._last_content_at = self._last_content_at is None, self._time()
        if type(piece) is ReplyEnd:
            self._idle_s = AFTER_REPLY_S
            self.restart_timer(AFTER_REPLY_S)
        elif first:
            self.restart_timer(self._idle_s)

    def restart_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        now, left = self._time(), 0.0
        if self._last_content_at is not None and self._idle_s is not None:
            left = self._last_content_at + self._idle_s - now
        if left < TIMER_GRAIN_S:
            self._guard.reschedule(now)
        else:
            self.restart_timer(left)


@asynccontextmanager
async def _watch_silence(timeouts: Timeouts) -> AsyncGenerator[_SilenceWatchdog]:
    async with asyncio.timeout(timeouts.step_s) as guard:
        watchdog = _SilenceWatchdog(timeouts, guard)
        try:
            yield watchdog
        finally:
            watchdog.restart_timer(None)
