"""Running the calls of a step side by side, and finding out about those that were interrupted.

Invariant: a call begins only after its start is on record, and each result is recorded as soon as
it arrives.

A suspect is a call at which a driver has died. Invariant: of all suspects of a process, one runs.
So if the process dies, only that one can be held to account, and the journal of its session says
which it was. Threads with event loops of their own share the turn.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache, partial
from threading import Lock

from msgspec.structs import replace

from windlass.core.decide.scheduling import share_of_wave
from windlass.core.events import (
    RULES_VERSION,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    CallWaiting,
    RunEnded,
    RunResumed,
)
from windlass.core.limits import Amount
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import ClearedCall, RunCalls
from windlass.core.question import Question
from windlass.core.state import State, find_call
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, PersonAnswer, stamp_question
from windlass.ports import CallContext, ModelRequest, UndoableTools, World, WrittenReply
from windlass.runtime.in_flight import InFlight, ParkedCalls
from windlass.runtime.judging import judge_known_call
from windlass.runtime.recorder import Recorder


async def run_calls(move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight) -> None:
    """Run the calls that may run now; first find out about those that a crash interrupted."""
    interrupted = [call for call in move.calls if call.interrupted and not call.repeatable]
    if interrupted:
        await recorder.flush()
    for cleared in interrupted:
        await recorder.record(await _reconcile_call(cleared, move, world, recorder, in_flight))
    if interrupted:
        return
    if any(cleared.is_suspect for cleared in move.calls):
        await _run_in_turn(move, world, recorder, in_flight)
    else:
        await _run_side_by_side(move, world, recorder, in_flight)


async def _run_in_turn(
    move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> None:
    """Run a suspect once no other suspect runs in this process. Until then it has not started."""
    await recorder.flush()
    decided_from = recorder.state
    async with PROCESS_TURN.get().hold():
        # If a message reached the run in the meantime, the loop decides again.
        if recorder.state is decided_from and not in_flight.is_releasing:
            await _run_side_by_side(move, world, recorder, in_flight)


async def _reconcile_call(
    cleared: ClearedCall, move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> CallFinished | CallJudged:
    """Ask the tool whether a write took effect, and return the fact that follows."""
    call = cleared.call
    # Looking is not running: what a reconcile reports as paid is not charged to the run.
    apart = InFlight(still_driving=in_flight.still_driving, find_epoch=in_flight.find_epoch)
    context = _call_context(cleared, world, recorder, apart)
    match await world.tools.reconcile(cleared, context):
        case ToolResult() as result:
            return await _finish_interrupted(cleared, result, recorder, in_flight)
        case "not_done":
            verdict = await _judge_undone(cleared, world, recorder.state)
            return await end_denied_work(verdict, recorder.state, in_flight)
        case "unknown" if move.ask_if_unknown:
            question = f"{call.name} was interrupted and may have taken effect. Run it again?"
            return CallJudged(call.id, _ask_again(recorder.state, call.id, question, world))
        case "unknown":
            message = "Interrupted: the call had started. It is not known whether it took effect."
            result = ToolResult.from_text("unknown", message)
            return await _finish_interrupted(cleared, result, recorder, in_flight)


def _ask_again(state: State, call_id: str, question: str, world: World) -> Ask:
    """Return the question whether to run a call again, for those who had to agree to it before."""
    known = find_call(state, call_id)
    ask = Ask(question, "interrupted", approvals=known.approvals if known else ())
    if not ask.approvals or state.run is None:
        return ask
    return stamp_question(ask, state.run.caller, state.run.context, world.clock.now())


async def _judge_undone(cleared: ClearedCall, world: World, state: State) -> CallJudged:
    """Return the verdict on a write that had not happened: it was allowed, unless that is doubted.

    Then it is judged as if it had not started, from what the model wrote: what a gate or a person
    is said to have made of it is not believed either.
    """
    known = find_call(state, cleared.call.id)
    if known is not None and known.doubted:
        return await judge_known_call(cleared.call, cleared.spec, world, state)
    return CallJudged(cleared.call.id, Allow("reconcile: it had not happened"))


async def _finish_interrupted(
    cleared: ClearedCall, result: ToolResult, recorder: Recorder, in_flight: InFlight
) -> CallFinished:
    """Return the end of a call that does not run again, with what models had cost it."""
    charges = await _end_work(cleared.call.id, recorder.state, in_flight)
    return CallFinished(cleared.call.id, result, charges, cleared.spec.name)


async def end_denied_work(verdict: CallJudged, state: State, in_flight: InFlight) -> CallJudged:
    """End what works for a call that began earlier and is now denied. Returns the whole verdict.

    Without this, a sub-agent that waits would stay open, and what it cost would be on no record of
    its caller.
    """
    known = find_call(state, verdict.call_id)
    is_denied = isinstance(verdict.verdict, Deny | InvalidCall)
    if known is None or not known.began or not is_denied:
        return verdict
    return replace(verdict, charges=await _end_work(known.id, state, in_flight))


async def _end_work(call_id: str, state: State, in_flight: InFlight) -> tuple[Charge, ...]:
    """End the sessions that work for a call. Returns what they cost."""
    others = {call.id for call in state.step_calls if call.id != call_id}
    end = RunEnded("cancelled", "the call that it worked for does not run any more")
    charges = await in_flight.end_children(state, end, others)
    return tuple(charges.get(call_id, ()))


async def _run_side_by_side(
    move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> None:
    """Run calls side by side. Each start is on record before it, each end as soon as it comes."""
    snapshots: Mapping[str, str] = {}
    if any(cleared.spec.undo for cleared in move.calls):
        snapshots = await _take_snapshots(move, world, recorder, in_flight)
    waiting = deque(move.calls)
    running = in_flight.running_calls
    ended_calls = in_flight.ended_calls
    parked = in_flight.parked_calls = ParkedCalls()
    in_flight.has_raised_limits = False
    in_flight.wave_state = recorder.state
    while waiting or running:
        if in_flight.is_releasing:
            waiting.clear()
        free_slots = min(len(waiting), move.at_once_max - len(running) + len(parked))
        starting = [waiting.popleft() for _ in range(free_slots)]
        starts = [
            CallStarted(one.call.id, one.key, one.spec.name, snapshots.get(one.call.id, ""))
            for one in starting
        ]
        if ended_calls or starts:
            await recorder.record(*ended_calls, *starts)
            in_flight.starts_recorded_at = asyncio.get_running_loop().time()
            ended_calls.clear()
        for cleared in starting:
            _start_call(cleared, move.timeout_s, world, recorder, in_flight)
        if len(parked) and parked.covers([cleared.call.id for cleared in running.values()]):
            await recorder.stage(*ended_calls, *await _leave_parked_calls(in_flight))
            ended_calls.clear()
            return
        ended = [task for task in running if task.done()]
        if not ended:
            await parked.changed
            ended = [task for task in running if task.done()]
        ended_calls += map(in_flight.take_finished, ended)
    # The last results are written with the next fact, which follows at once.
    await recorder.stage(*ended_calls)
    ended_calls.clear()


def _start_call(
    cleared: ClearedCall,
    timeout_s: float | None,
    world: World,
    recorder: Recorder,
    in_flight: InFlight,
) -> None:
    """Run a call in its own task, which wakes the wave when it has ended."""
    context = _call_context(cleared, world, recorder, in_flight)
    # No coroutine is made before its task begins, which may be cancelled before that.
    work = partial(in_flight.run_if_driving, partial(world.tools.run, cleared, context))
    task = asyncio.create_task(work() if timeout_s is None else _limit_time(timeout_s, work))
    task.add_done_callback(in_flight.parked_calls.announce_change)
    in_flight.running_calls[task] = cleared


async def _take_snapshots(
    move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> dict[str, str]:
    """Return what must be known to undo the calls that are about to run, by their ids.

    Calls that run side by side change different things, so none spoils the snapshot of another. A
    call that runs again keeps its first snapshot: what it would find now may be its own work.
    """
    tools = world.tools
    began = {call.id for call in recorder.state.step_calls if call.began}
    undoable = [call for call in move.calls if call.spec.undo and call.call.id not in began]
    if not undoable or not isinstance(tools, UndoableTools):
        return {}
    await recorder.flush()
    contexts = [_call_context(cleared, world, recorder, in_flight) for cleared in undoable]
    taken = await asyncio.gather(*map(tools.take_snapshot, undoable, contexts))
    return {cleared.call.id: text for cleared, text in zip(undoable, taken, strict=True)}


async def _leave_parked_calls(in_flight: InFlight) -> Sequence[CallWaiting | RunResumed]:
    """Leave the sub-agents of all running calls alone, because nothing else can move.

    Returns what they wait for. A sub-agent that was released waits for nothing: its call stays as
    it would be after a crash, and runs again when the run is resumed. If limits were raised
    meanwhile, that is at once, because the sub-agents may get more now.
    """
    waits = in_flight.parked_calls.seal()
    tasks = tuple(in_flight.running_calls)
    for task in tasks:
        task.cancel()
    in_flight.running_calls.clear()
    await asyncio.wait(tasks)
    if in_flight.is_releasing:
        return ()
    return (*waits, RunResumed(rules=RULES_VERSION)) if in_flight.has_raised_limits else waits


async def _limit_time(seconds: float, work: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
    try:
        async with asyncio.timeout(seconds):
            return await work()
    except TimeoutError:
        return ToolResult.from_text("timed_out", f"The tool timed out after {seconds:g} s.")


def _call_context(
    cleared: ClearedCall, world: World, recorder: Recorder, in_flight: InFlight
) -> CallContext:
    """Return what a call may know of its run: data and functions, never the run's own objects."""
    state = recorder.state
    call_id = cleared.call.id
    publisher = recorder.publisher
    undoes = state.run.undoes if state.run else ()

    def report_charges(charges: Iterable[Charge]) -> None:
        in_flight.charges_by_call[call_id] = charges

    def share_now() -> Amount:
        began_from = in_flight.wave_state
        setup = recorder.setup
        return Amount() if began_from is None else share_of_wave(began_from, setup)

    context = CallContext(
        recorder.session,
        state.run.number if state.run else 0,
        report=lambda text: publisher.show_delta(CallProgress(call_id, text)),
        on_late_result=lambda result: recorder.add_late_result(CallLate(call_id, result)),
        report_charges=report_charges,
        earlier_result=state.transcript.find_result,
        remaining=cleared.spending_left,
        remaining_now=share_now,
        labels=state.labels,
        undoes=next((undone for undone in undoes if undone.by == call_id), None),
        folder=world.find_folder(state.folder) if state.folder else None,
        mask_text=recorder.mask.mask_text,
        blobs=world.blobs,
        fencing_token=in_flight.find_epoch() or (state.run.opening_seq if state.run else 0),
        park=lambda waiting: in_flight.parked_calls.park(call_id, waiting),
        unpark=lambda: in_flight.parked_calls.unpark(call_id),
        keep_leftover=lambda work: in_flight.keep_leftover(work),  # noqa: PLW0108 - as below
        # Not the method itself, which would lead a tool to the driver.
        still_driving=lambda: in_flight.still_driving(),  # noqa: PLW0108 - as above
        run_is_open=lambda: recorder.state.is_active,
    )
    return _add_requests(context, call_id, world)


def _add_requests(context: CallContext, call_id: str, world: World) -> CallContext:
    """Return the context with the means to ask a person or a model, if the run has them."""
    if world.run is None or world.make_requests is None:
        return context
    # Made when the call first asks: most never do.
    requests = cache(partial(world.make_requests, world.run, call_id, context))

    # Functions, as above: a tool must not get from these to the run.
    async def ask_person(question: Question) -> PersonAnswer | None:
        return await requests().ask_person(question)

    async def ask_model(request: ModelRequest) -> WrittenReply:
        return await requests().ask_model(request)

    return replace(context, ask_person=ask_person, ask_model=ask_model)


class SuspectTurn:
    """Gives the turn to one caller after the other, in the order in which they asked."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._is_taken = False
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Wait for the turn, and hold it.

        A call that drives another run inside of itself must not wait for its own turn, so what is
        started meanwhile has its own turn.
        """
        await self._take()
        nested = PROCESS_TURN.set(SuspectTurn())
        try:
            yield
        finally:
            self._free()
            PROCESS_TURN.reset(nested)

    async def _take(self) -> None:
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # The turn came together with the cancel.
                self._free()
            raise

    def _free(self) -> None:
        with self._guard:
            while self._waiters:
                loop, waiter = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(self._hand_over, waiter)
                except RuntimeError:
                    continue  # Its event loop is closed.
                return
            self._is_taken = False

    def _hand_over(self, waiter: "asyncio.Future[None]") -> None:
        if waiter.cancelled():
            self._free()
        else:
            waiter.set_result(None)


PROCESS_TURN: ContextVar[SuspectTurn] = ContextVar("PROCESS_TURN", default=SuspectTurn())  # noqa: B039 - one for all
"""The turn of the process. A simulation of several processes gives each its own."""
