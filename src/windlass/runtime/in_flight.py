"""What a run has under way: not on record yet, and not to be lost when the run is stopped."""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import chain
from typing import Any, TypeVar

import msgspec

from windlass.core.decide.reserving import settle_attempt
from windlass.core.events import CallFinished, ContentPiece, RunEnded
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import ClearedCall
from windlass.core.state import RunState, State, find_call
from windlass.ports import World
from windlass.runtime.attempt import ModelAttempt, RestartedReply
from windlass.runtime.parked_calls import ParkedCalls

ValueT = TypeVar("ValueT")

PROOF_LASTS_S = 0.25
"""How long after its start was recorded a call may begin without asking who drives the session."""


EndChildren = Callable[
    [State, RunEnded, Collection[str]], Coroutine[Any, Any, Mapping[str, Sequence[Charge]]]
]
"""Ends the runs of sub-agents that work for open calls of a run, except for the calls named here.

Returns what they cost, by the id of the call.
"""


async def _has_no_children(
    _state: State, _end: RunEnded, _closed_calls: Collection[str]
) -> Mapping[str, Sequence[Charge]]:
    return {}


async def _always_driving() -> bool:
    return True


def _ignore_stop(_reason: str) -> None:
    pass


class InFlight(msgspec.Struct):
    """The request, the running calls, and the ended calls that are on their way to the journal."""

    attempt: ModelAttempt | None = None
    standing_text: str = ""
    """What streamed of an attempt that failed, until watchers are told of the next attempt."""
    restarted: RestartedReply | None = None
    """A response in which the provider started its reply over: the next attempt reads on in it."""
    running_calls: dict[asyncio.Task[ToolResult], ClearedCall] = msgspec.field(
        default_factory=dict[asyncio.Task[ToolResult], ClearedCall]
    )
    """Each call, by its task."""
    ended_calls: list[CallFinished] = msgspec.field(default_factory=list[CallFinished])
    charges_by_call: dict[str, Sequence[Charge]] = msgspec.field(
        default_factory=dict[str, Sequence[Charge]]
    )
    """What each call has paid to models of its own so far; it may grow while the call runs."""
    parked_calls: ParkedCalls = msgspec.field(default_factory=ParkedCalls)
    leftovers: set[asyncio.Future[Any]] = msgspec.field(default_factory=set[asyncio.Future[Any]])
    """What calls have left running, such as a thread that cannot be stopped."""
    wave_state: State | None = None
    """The state in which the calls that run were planned."""
    has_raised_limits: bool = False
    """Limits were raised since the calls of this wave began, with shares of the old ones."""
    is_releasing: bool = False
    """The driver lets go of the run: no request and no call may begin."""

    still_driving: Callable[[], Awaitable[bool]] = _always_driving
    """Ask the journal whether this driver still has the session."""

    end_children: EndChildren = _has_no_children
    """End what works for open calls of the run, and say what it cost."""

    stop_run: Callable[[str], None] = _ignore_stop
    """End the run, for this reason."""
    program_exit: KeyboardInterrupt | SystemExit | None = None
    """What a tool, a gate or a model raised to end the program. It is raised after the run."""

    _starts_recorded_at: float = 0.0
    """When the starts of the latest calls were on record, by the clock of the event loop."""

    def keep_leftover(self, work: "asyncio.Future[Any]") -> None:
        """Note that something of a call runs on, until it is over."""
        self.leftovers.add(work)
        work.add_done_callback(self.leftovers.discard)

    def take_restarted(self) -> RestartedReply | None:
        """Return the response that the next attempt reads on in, if there is one."""
        restarted = self.restarted
        self.restarted = None
        return restarted

    async def drop_restarted(self) -> None:
        """Close the response in which a reply was started over: no attempt follows at once."""
        restarted = self.take_restarted()
        if restarted is not None:
            await restarted.stream.aclose()

    def pieces_so_far(self) -> Iterator[ContentPiece]:
        """Yield what has come of the reply that is streaming, as pieces."""
        if self.attempt is not None and self.attempt.is_main:
            yield from self.attempt.pieces_so_far()

    def note_starts(self) -> None:
        """Say that the starts of the next calls are on record: nobody else drives the session."""
        self._starts_recorded_at = asyncio.get_running_loop().time()

    async def run_if_driving(self, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        """Run a call, unless its start was recorded a while ago and the session is lost meanwhile.

        A process that was stopped in between, and goes on now, must ask again.
        """
        passed_s = asyncio.get_running_loop().time() - self._starts_recorded_at
        if passed_s > PROOF_LASTS_S and not await self.still_driving():
            work.close()
            return ToolResult.from_text(
                "cancelled", "The call did not start: another driver has taken the session over."
            )
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as error:
            self._note_program_exit(error)
            name = type(error).__name__
            return ToolResult.from_text("error", f"{name}: the tool ended the program")

    async def hold_program_exit(self, work: Awaitable[ValueT]) -> ValueT:
        """Wait for work of the run. What would end the program ends the run first.

        A task must not end with such an exception: asyncio would raise it out of the event loop
        at once, and nobody could record the end of the run.
        """
        try:
            return await work
        except (KeyboardInterrupt, SystemExit) as error:
            self._note_program_exit(error)
            raise asyncio.CancelledError from error

    def _note_program_exit(self, error: KeyboardInterrupt | SystemExit) -> None:
        self.program_exit = self.program_exit or error
        self.stop_run(f"{type(error).__name__} was raised inside the run")

    def charges_so_far(self, run: RunState | None, world: World) -> tuple[Charge, ...]:
        """Return all that a run has paid so far, including what is not on record yet."""
        if run is None:
            return ()
        charges = list(run.ledger.charges)
        if run.outcome is None:
            charges += chain.from_iterable(self.charges_by_call.values())
        if run.attempt is not None:
            if self.attempt is not None:
                charge = self.attempt.compute_charge()
            else:
                info = world.models[run.attempt.model].info
                charge = settle_attempt(info, run.attempt.reserved, None, 0, whole=False)
            if charge is not None:
                charges.append(charge)
        return tuple(charges)

    def take_finished(self, task: asyncio.Task[ToolResult]) -> CallFinished:
        """Remove a call that is over, and return its end."""
        cleared = self.running_calls.pop(task)
        call_id = cleared.call.id
        charges = tuple(self.charges_by_call.pop(call_id, ()))
        return CallFinished(call_id, result_of_task(task), charges, cleared.spec.name)

    def unrecorded_ends(self, state: State) -> Iterator[CallFinished]:
        """Yield the ended calls that are still open in a state, so that they can be recorded."""
        for fact in self.ended_calls:
            call = find_call(state, fact.call_id)
            if call is not None and call.phase in ("started", "interrupted"):
                yield fact


def result_of_task(task: asyncio.Task[ToolResult]) -> ToolResult:
    """Return the result of a call that is over. A call that raised has an error as its result."""
    if task.cancelled():
        return ToolResult.from_text("cancelled", "The tool was cancelled.")
    error = task.exception()
    if error is None:
        return task.result()
    # Only the type: the text of an unexpected exception may hold anything.
    return ToolResult.from_text("error", f"{type(error).__name__}: the tool failed")
