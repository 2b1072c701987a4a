"""What a run has under way, and what it still owes its journal when its loop has stopped.

Invariant: what had come is recorded, and what was paid is charged by what had streamed.
"""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.core.decide.reserving import settle_attempt
from windlass.core.errors import OUT_OF_FILES, fault_from_error, is_out_of_files
from windlass.core.events import (
    AttemptFailed,
    CallFinished,
    CallLate,
    CallWaiting,
    ContentPiece,
    ContextCompacted,
    Fact,
    RunEnded,
    RunReleased,
    StepProposed,
)
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import ClearedCall
from windlass.core.state import RunState, State, find_call
from windlass.logs import get_logger
from windlass.ports import World
from windlass.runtime.attempt import ModelAttempt, RestartedReply
from windlass.runtime.leftover_tasks import LeftoverTasks
from windlass.runtime.recorder import Recorder


class ParkedCalls:
    """Calls of one wave that wait for a person or were released with their sub-agent, by id.

    A parked call still has its task, which costs nothing. If what it waits for comes while other
    calls of its step run, it resumes at once. If no other call runs, the loop seals the parked
    calls: their sub-agents are left alone, and the run itself waits or is released. The calls that
    have not begun by then begin after that.
    """

    def __init__(self) -> None:
        self._parked: dict[str, tuple[CallWaiting | None, asyncio.Future[None]]] = {}
        self._changed: asyncio.Future[None] | None = None
        self._is_sealed = False

    def __len__(self) -> int:
        return len(self._parked)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._parked

    def park(self, call_id: str, waiting: CallWaiting | None) -> "asyncio.Future[None]":
        """Note that a call goes no further now; `waiting` is what its sub-agent waits for, if any.

        Returns a future that is done when the call should look again.
        """
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked[call_id] = (waiting, woken)
        self.announce_change()
        return woken

    def unpark(self, call_id: str) -> bool:
        """Let a call resume. Returns False if it is too late: the loop has given it up."""
        if self._is_sealed:
            return False
        self._parked.pop(call_id, None)
        return True

    def wake_all(self) -> None:
        """Let the parked calls look again whether they can resume."""
        for _, woken in self._parked.values():
            if not woken.done():
                woken.set_result(None)

    def covers(self, call_ids: Collection[str]) -> bool:
        """Whether there are calls, and all of them are parked and have not been woken."""
        return bool(call_ids) and all(
            call_id in self._parked and not self._parked[call_id][1].done() for call_id in call_ids
        )

    def seal(self) -> list[CallWaiting]:
        """Give the parked calls up. Returns what those that wait are waiting for."""
        self._is_sealed = True
        return [waiting for waiting, _ in self._parked.values() if waiting is not None]

    @property
    def changed(self) -> "asyncio.Future[None]":
        """Done when a call is parked, or when the wave should look around for another reason."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def announce_change(self, _ended: object = None) -> None:
        """Let the wave look around: a call has ended, or another reason has come."""
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


_log = get_logger(__name__)

PROOF_LASTS_S = 0.25
"""How long after its start was recorded a call may begin without asking who drives the session."""


PaidFact = StepProposed | ContextCompacted | AttemptFailed
"""What an attempt came to, with its charge."""

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


def _is_certain() -> bool:
    return True


def _ignore_stop(_reason: str) -> None:
    pass


class InFlight(msgspec.Struct):
    """The request, the running calls, and the ended calls that are on their way to the journal."""

    attempt: ModelAttempt | None = None
    paid: PaidFact | None = None
    """What the last attempt came to, until that is on record."""
    standing_text: str = ""
    """What a failed attempt streamed, until the next attempt is announced to the watchers."""
    restarted: RestartedReply | None = None
    """A response in which the provider started its reply over: the next attempt reads on in it."""
    running_calls: dict[asyncio.Task[ToolResult], ClearedCall] = msgspec.field(
        default_factory=dict[asyncio.Task[ToolResult], ClearedCall]
    )
    """Each call, by its task."""
    ended_calls: list[CallFinished] = msgspec.field(default_factory=list[CallFinished])
    charges_by_call: dict[str, Iterable[Charge]] = msgspec.field(
        default_factory=dict[str, Iterable[Charge]]
    )
    """What each call has paid to models of its own so far; it may grow while the call runs."""
    parked_calls: ParkedCalls = msgspec.field(default_factory=ParkedCalls)
    abandoned: list[str] = msgspec.field(default_factory=list[str])
    """The calls that still ran when the run ended or was released."""
    leftovers: set[asyncio.Future[Any]] = msgspec.field(default_factory=set[asyncio.Future[Any]])
    """What calls have left running, such as a thread that cannot be stopped."""
    wave_state: State | None = None
    """The state in which the calls that run were planned."""
    has_raised_limits: bool = False
    """Limits were raised since the calls of this wave began, with shares of the old ones."""
    stopped_at: "asyncio.Future[float] | None" = None
    """Done once the run is cancelled or out of time."""
    decided_from: State | None = None
    """The state in which the loop decided to end or to wait; None while it runs."""
    is_releasing: bool = False
    """The driver releases the run: no request and no call may begin."""

    still_driving: Callable[[], Awaitable[bool]] = _always_driving
    """Ask the journal whether this driver still has the session."""
    is_certain: Callable[[], bool] = _is_certain
    """Whether no other driver can have the session, without asking."""
    find_epoch: Callable[[], int] = lambda: 0
    """Return the fencing token of the driver's lease; 0 if it has none of its own."""

    end_children: EndChildren = _has_no_children
    """End what works for open calls of the run, and say what it cost."""

    stop_run: Callable[[str], None] = _ignore_stop
    """End the run, for this reason."""
    program_exit: KeyboardInterrupt | SystemExit | None = None
    """What a tool, a gate or a model raised to end the program. It is raised after the run."""

    starts_recorded_at: float = 0.0
    """When the starts of the latest calls were on record, by the clock of the event loop.

    No other driver had the session then.
    """

    @property
    def must_stop(self) -> bool:
        """Whether the run is cancelled or out of time."""
        return self.stopped_at is not None and self.stopped_at.done()

    def keep_leftover(self, work: "asyncio.Future[Any]") -> None:
        """Note that something of a call runs on, until it is over."""
        self.leftovers.add(work)
        work.add_done_callback(self.leftovers.discard)

    async def drop_restarted(self) -> None:
        """Close the response in which a reply was started over: no attempt follows at once."""
        restarted, self.restarted = self.restarted, None
        if restarted is not None:
            await restarted.stream.aclose()

    def pieces_so_far(self) -> Iterator[ContentPiece]:
        """Yield what has come of the reply that is streaming, as pieces."""
        if self.attempt is not None and self.attempt.is_main:
            yield from self.attempt.pieces_so_far()

    async def run_if_driving(self, work: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Run a call, unless its start was recorded a while ago and the session was lost since.

        A process that was stopped in between, and resumes now, must ask again.
        """
        passed_s = asyncio.get_running_loop().time() - self.starts_recorded_at
        # The clock of the loop stands still while the machine sleeps; that of the lease does not.
        is_proven = passed_s <= PROOF_LASTS_S and self.is_certain()
        if not is_proven and not await self.still_driving():
            return ToolResult.from_text(
                "cancelled", "The call did not start: another driver has taken the session over."
            )
        try:
            return await work()
        except (KeyboardInterrupt, SystemExit) as error:
            self.note_program_exit(error)
            name = type(error).__name__
            return ToolResult.from_text("error", f"{name}: the tool ended the program")

    def note_program_exit(self, error: KeyboardInterrupt | SystemExit) -> None:
        """Stop the run, because a part of it would end the program.

        A task must not end with such an exception: asyncio would raise it out of the event loop
        at once, and the end of the run could not be recorded.
        """
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
            elif self.paid is not None:
                charge = self.paid.charge
            else:
                info = world.models[run.attempt.model].info
                charge = settle_attempt(info, run.attempt.reserved, None, 0, whole=False)
            if charge is not None:
                charges.append(charge)
        return tuple(charges)

    def take_finished(self, task: asyncio.Task[ToolResult]) -> CallFinished:
        """Remove a call that is over, and return its end. If it raised, its result is an error."""
        cleared = self.running_calls.pop(task)
        call_id = cleared.call.id
        charges = tuple(self.charges_by_call.pop(call_id, ()))
        if task.cancelled():
            result = ToolResult.from_text("cancelled", "The tool was cancelled.")
        elif (error := task.exception()) is not None:
            # Only the type: the text of an unexpected exception may hold anything.
            result = ToolResult.from_text("error", f"{type(error).__name__}: the tool failed")
        else:
            result = task.result()
        return CallFinished(call_id, result, charges, cleared.spec.name)


async def settle_end(
    end: RunEnded,
    recorder: Recorder,
    in_flight: InFlight,
    leftovers: LeftoverTasks,
    wait_for_stage: Callable[[asyncio.Task[Any]], Awaitable[None]],
) -> Sequence[Fact]:
    """Return the facts that end the run, once those that work for it have ended too.

    `wait_for_stage` waits for a task for as long as an end may take.
    """
    parked = in_flight.parked_calls
    # The sub-agents of these calls are driven here: they are cancelled with their calls.
    driven = {call for call in in_flight.charges_by_call if call not in parked}
    facts = wind_up_calls(recorder, in_flight, leftovers)
    finished = {fact.call_id for fact in facts if isinstance(fact, CallFinished)}
    state = recorder.expected_state
    if all(call.phase == "closed" or not call.began for call in state.step_calls):
        return (*facts, _complete_end(end, recorder, in_flight, {}))
    ending = asyncio.create_task(in_flight.end_children(state, end, driven | finished))
    await wait_for_stage(ending)
    if ending.done() and not ending.cancelled() and ending.exception() is None:
        return (*facts, _complete_end(end, recorder, in_flight, ending.result()))
    _log.warning("session %s: its sub-agents may still be open", recorder.session)
    return (*facts, _complete_end(end, recorder, in_flight, {}))


def wind_up_calls(
    recorder: Recorder, in_flight: InFlight, leftovers: LeftoverTasks
) -> Sequence[Fact]:
    """Return what had ended but was not on record, and abandon the calls that still run."""
    facts: list[Fact] = []
    attempt = in_flight.attempt
    if attempt is not None and attempt.is_whole_reply:
        facts.append(attempt.make_proposal())
    elif in_flight.paid is not None and _has_open_attempt(recorder):
        facts.append(in_flight.paid)
    for fact in in_flight.ended_calls:
        call = find_call(recorder.expected_state, fact.call_id)
        if call is not None and call.phase in ("started", "interrupted"):
            facts.append(fact)
    for task, cleared in tuple(in_flight.running_calls.items()):
        if task.done() and not task.cancelled():
            facts.append(in_flight.take_finished(task))
        else:
            call_id = cleared.call.id
            leftovers.abandon_call(task, partial(_add_late_result, recorder, call_id))
            in_flight.abandoned.append(call_id)
            in_flight.keep_leftover(task)
    in_flight.running_calls.clear()
    return facts


def _add_late_result(recorder: Recorder, call_id: str, result: ToolResult) -> None:
    recorder.add_late_result(CallLate(call_id, result))


def _complete_end(
    end: RunEnded,
    recorder: Recorder,
    in_flight: InFlight,
    earlier_charges: Mapping[str, Sequence[Charge]],
) -> RunEnded:
    """Add to the end what was paid and streamed by an attempt that did not finish.

    `earlier_charges` is what calls have paid under earlier drivers, by the id of the call.
    """
    attempt = in_flight.attempt
    end = replace(end, still_running=tuple(in_flight.abandoned))
    charges = {**earlier_charges, **in_flight.charges_by_call}
    if charges:
        end = replace(end, charges=tuple(chain.from_iterable(charges.values())))
    standing_text = in_flight.standing_text
    if attempt is None:
        return replace(end, partial=end.partial or standing_text)
    if attempt.is_whole_reply:
        return end
    partial_text = attempt.partial_text if attempt.is_main else standing_text
    return replace(end, partial=partial_text, charge=_charge_open_attempt(recorder, attempt))


def complete_release(release: RunReleased, recorder: Recorder, in_flight: InFlight) -> RunReleased:
    """Add to the release what the attempt in flight has cost so far."""
    attempt = in_flight.attempt
    if attempt is None or attempt.is_whole_reply:
        return release
    return replace(release, charge=_charge_open_attempt(recorder, attempt))


def _charge_open_attempt(recorder: Recorder, attempt: ModelAttempt) -> Charge | None:
    # A failure that is on record, or is being written, brings its own charge.
    return attempt.compute_charge() if _has_open_attempt(recorder) else None


def _has_open_attempt(recorder: Recorder) -> bool:
    """Whether what the last attempt came to is neither on record nor being written."""
    run = recorder.expected_state.run
    return run is not None and run.attempt is not None


def make_failed_end(error: BaseException) -> RunEnded | RunReleased:
    """Return the end of a run that an error stopped.

    Without file descriptors it is released: any driver can resume it, like after a full disk.
    """
    if is_out_of_files(error):
        return RunReleased(OUT_OF_FILES)
    fault = fault_from_error(error)
    return RunEnded("failed", fault.message, fault)
