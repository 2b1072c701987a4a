"""One request to a model: its pieces passed on, its silence bounded, its reply assembled."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from msgspec.structs import replace

from windlass.core.decide.reserving import settle
from windlass.core.errors import ModelError
from windlass.core.events import AttemptFailed, Piece, ReplyEnd, StepProposed, UsageDelta
from windlass.core.faults import Fault
from windlass.core.messages import Charge, Purpose
from windlass.core.moves import Reason, Summarise
from windlass.core.reply_assembly import Assembly
from windlass.ports import Model, Timeouts

AFTERWORD_S = 5.0
"""How long a stream may take to close once its reply is whole."""


GRAIN_S = 0.001
"""Less than this is no time left."""


class Attempt:
    """What has come of one request so far."""

    def __init__(self, move: Reason | Summarise, model: Model) -> None:
        self._move = move
        self.purpose: Purpose = "main" if isinstance(move, Reason) else "compaction"
        self._model = model
        self._assembly = Assembly()
        self._established = False
        self.visible = False
        """A watcher saw some of the text."""

    async def stream(self, timeouts: Timeouts, show: Callable[[Piece], bool]) -> Fault | None:
        """Make the request; None once the reply is whole, else what went wrong."""
        assembly = self._assembly
        try:
            pieces = self._model.stream(self._move.prompt)
            async with _watched(timeouts) as dog, aclosing(pieces):
                async for piece in pieces:
                    self._established = True
                    assembly.add(piece)
                    dog.hear(piece)
                    if show(piece):
                        self.visible = True
            fault = Fault("incomplete_stream", "the stream ended without its end", retryable=True)
        except ModelError as error:
            fault = error.fault
        except TimeoutError:
            fault = Fault("stalled", "the model fell silent", retryable=True)
        # Once the end marker is there, the reply is whole, whatever happens to the connection.
        return None if self.whole else fault

    @property
    def whole(self) -> bool:
        return self._assembly.stop is not None

    @property
    def answers(self) -> bool:
        """A whole reply of the run itself, not one that sums up."""
        return self.whole and self.purpose == "main"

    @property
    def partial(self) -> str:
        return self._assembly.text

    def charge(self, fault: Fault | None = None) -> Charge | None:
        """What it cost. A request that was refused cost nothing; one that was cut short may."""
        if fault is not None and fault.kind != "stalled" and not self._established:
            return None
        usage, size = self._assembly.usage, self._assembly.size
        info, reserved = self._model.info, self._move.reserved
        charge = settle(info, reserved, usage, size, whole=self.whole)
        return charge if self.purpose == "main" else replace(charge, purpose=self.purpose)

    def proposed(self) -> StepProposed:
        # The step's number is the session's, and so the ids of its calls are unique there.
        reply = self._assembly.reply(self._model.info.name, f"c{self._move.step}_")
        return StepProposed(reply, self._assembly.stop or "end", self.charge())

    def failed(self, fault: Fault, wait_s: float) -> AttemptFailed:
        return AttemptFailed(
            fault,
            charge=self.charge(fault),
            established=self._established,
            visible=self.visible,
            partial=self.partial,
            wait_s=wait_s,
        )


class _Watchdog:
    """Content feeds it; when it has not been fed for too long, it ends the wait.

    Feeding must cost next to nothing: it only leaves the time, and one timer looks for that.
    """

    def __init__(self, timeouts: Timeouts, guard: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._time, self._call_later = loop.time, loop.call_later
        self._guard = guard
        self._idle_s = timeouts.idle_s
        self._fed_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.wait(timeouts.first_byte_s)

    def hear(self, piece: Piece) -> None:
        if type(piece) is UsageDelta:
            return
        first, self._fed_at = self._fed_at is None, self._time()
        if type(piece) is ReplyEnd:
            self._idle_s = AFTERWORD_S
            self.wait(AFTERWORD_S)
        elif first:
            self.wait(self._idle_s)

    def wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._call_later(seconds, self._look)

    def _look(self) -> None:
        now, left = self._time(), 0.0
        if self._fed_at is not None and self._idle_s is not None:
            left = self._fed_at + self._idle_s - now
        if left < GRAIN_S:
            self._guard.reschedule(now)
        else:
            self.wait(left)


@asynccontextmanager
async def _watched(timeouts: Timeouts) -> AsyncGenerator[_Watchdog]:
    async with asyncio.timeout(timeouts.step_s) as guard:
        dog = _Watchdog(timeouts, guard)
        try:
            yield dog
        finally:
            dog.wait(None)
