"""The loop: ask what to do next, do it, write down what happened.

    facts ──fold──▶ State ──decide──▶ Move ──perform──▶ deltas, facts ──▶ journal ──▶ watchers
                      ▲                                        │
                      └──────────────── apply ─────────────────┘

The law: nothing here chooses, `decide` does; and nothing here remembers, the recorder's state does.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import output_chars_max
from windlass.core.decide.retrying import backoff_s, explain_long_wait
from windlass.core.decide.summarizing import format_summary
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    ContextCompacted,
    LookupsPlanned,
    ModelFellBack,
    NoteGiven,
    ReplyJudged,
    RunPaused,
    SteeringTaken,
    StreamStalled,
)
from windlass.core.faults import Fault
from windlass.core.messages import Charge, ToolResult
from windlass.core.moves import (
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    FinalMove,
    JudgeCalls,
    JudgeReply,
    LookUp,
    PauseRun,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    StayPaused,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask
from windlass.ports import CallContext, World
from windlass.runtime.attempt import ModelAttempt
from windlass.runtime.in_flight import InFlight
from windlass.runtime.judging import judge_call, judge_reply, recall_knowledge
from windlass.runtime.recorder import Recorder
from windlass.runtime.shared_budgets import draw_on_budget


async def run_loop(  # noqa: C901 - an arm per move
    world: World, recorder: Recorder, in_flight: InFlight
) -> FinalMove:
    """Perform one move after another until the run must end or wait; return that last move."""
    while True:
        move = decide(recorder.state)
        # A request and a call write what is staged with their own first fact, in one append.
        if not isinstance(move, RequestReply | RunCalls):
            await recorder.flush()
        match move:
            case RequestReply():
                await make_attempt(move, world, recorder, in_flight)
            case JudgeCalls():
                await judge_calls(move, world, recorder)
            case RunCalls():
                await run_calls(move, world, recorder, in_flight)
            case JudgeReply():
                await judge_final_reply(move, world, recorder)
            case RemindModel(text):
                await recorder.record(NoteGiven(text, "same_call"))
            case DrawBudget():
                await recorder.record(await draw_on_budget(move, world.journal, recorder.state))
            case Compact(upto, note, how):
                await recorder.record(ContextCompacted(upto, note, how))
            case Summarize():
                await summarize(move, world, recorder, in_flight)
            case TakeSteering():
                await recorder.record(SteeringTaken())
            case LookUp(calls):
                await recorder.record(LookupsPlanned(calls))
            case RecallKnowledge(text):
                await recorder.record(await recall_knowledge(text, world, recorder.state))
            case PauseRun(reason, needed):
                await recorder.record(RunPaused(reason, cause="budget", needed=needed))
            case WaitForAnswers() | StayPaused() | EndRun():
                return move


async def make_attempt(
    move: RequestReply, world: World, recorder: Recorder, in_flight: InFlight
) -> None:
    """Make one attempt at a step, and record a whole reply or a failure."""
    if move.last_failure is not None:
        await recorder.flush()
        await _announce_retry(move, move.last_failure, world, recorder)
    model = move.prompt.model
    await recorder.record(
        AttemptStarted(move.step, move.attempt, model, move.reserved, move.landing),
    )
    attempt = in_flight.attempt = _new_attempt(move, world, recorder.state)
    fault = await attempt.stream(world.timeouts, recorder.publisher.show_piece)
    if fault is None:
        in_flight.attempt = None
        await recorder.record(attempt.make_proposal())
        return
    if fault.kind == "stalled":
        recorder.publisher.show_delta(StreamStalled(move.step, move.attempt))
    retries = recorder.setup.retries
    fault = explain_long_wait(retries, fault)
    wait_s = backoff_s(retries, move.attempt - 1, fault, world.clock.random_fraction())
    # In flight until its failure is on record: if the run is stopped meanwhile, its end keeps the
    # text that was streamed.
    await recorder.record(attempt.make_failure(fault, wait_s))
    in_flight.attempt = None


def _new_attempt(move: RequestReply | Summarize, world: World, state: State) -> ModelAttempt:
    model = move.prompt.model
    return ModelAttempt(move, world.models[model], output_chars_max(state, model, move.reserved))


async def _announce_retry(
    move: RequestReply, last: AttemptFailed, world: World, recorder: Recorder
) -> None:
    """Tell the watchers why another attempt is made, and wait for as long as `decide` says."""
    show_delta = recorder.publisher.show_delta
    reason = last.fault.message
    if move.must_discard:
        show_delta(AttemptDiscarded(move.step, move.failed_attempts, reason))
    if move.fell_back_from:
        show_delta(ModelFellBack(move.step, move.prompt.model, move.fell_back_from))
    else:
        show_delta(AttemptRetrying(move.step, move.attempt, move.wait_s, reason))
        await world.clock.sleep(move.wait_s)


async def judge_calls(move: JudgeCalls, world: World, recorder: Recorder) -> None:
    """Judge every call of a step; the verdicts go on record together, before any of them runs."""
    names = [spec.name for spec in move.tools]
    verdicts = [await judge_call(proposed, names, world, recorder.state) for proposed in move.calls]
    await recorder.stage(*verdicts)


async def summarize(move: Summarize, world: World, recorder: Recorder, in_flight: InFlight) -> None:
    """Have the beginning of the conversation summed up; a failure is recorded and ends nothing."""
    model = move.prompt.model
    await recorder.record(
        AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction"),
    )
    attempt = in_flight.attempt = _new_attempt(move, world, recorder.state)
    # No watcher is shown how a summary is written.
    fault = await attempt.stream(world.timeouts, lambda _: False)
    in_flight.attempt = None
    text = attempt.partial_text
    if fault is None and (attempt.make_proposal().stop == "refusal" or not text.strip()):
        fault = Fault("other", "the model refused to write the summary, or left it empty")
    if fault is None:
        charge = attempt.compute_charge()
        await recorder.record(ContextCompacted(move.upto, format_summary(text), "summary", charge))
    else:
        await recorder.record(attempt.make_failure(fault, 0.0))


async def judge_final_reply(move: JudgeReply, world: World, recorder: Recorder) -> None:
    """Judge a final reply: does it fit the output type, and may it be said?"""
    await recorder.record(ReplyJudged(await judge_reply(move, world, recorder.session)))


async def run_calls(move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight) -> None:
    """Run the calls that may run now; first find out about those that a crash interrupted."""
    interrupted = [call for call in move.calls if call.interrupted and not call.repeatable]
    if interrupted:
        await recorder.flush()
    for cleared in interrupted:
        await recorder.record(await _reconcile_call(cleared, move, world, recorder, in_flight))
    if not interrupted:
        await _run_side_by_side(move, world, recorder, in_flight)


async def _reconcile_call(
    cleared: ClearedCall, move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> CallFinished | CallJudged:
    """Ask the tool what became of a write, and return the fact that follows from its answer."""
    call = cleared.call
    # Looking is not running: what a reconcile reports as paid is not charged to the run.
    apart = InFlight(still_driving=in_flight.still_driving)
    context = _call_context(cleared, world, recorder, apart)
    match await world.tools.reconcile(cleared, context):
        case ToolResult() as result:
            return CallFinished(call.id, result, name=cleared.spec.name)
        case "not_done":
            return CallJudged(call.id, Allow("reconcile: it had not happened"))
        case "unknown" if move.ask_if_unknown:
            question = f"{call.name} was interrupted and may have taken effect. Run it again?"
            return CallJudged(call.id, Ask(question, "interrupted"))
        case "unknown":
            message = "Interrupted: the call had started. It is not known whether it took effect."
            result = ToolResult.from_text("unknown", message)
            return CallFinished(call.id, result, name=cleared.spec.name)


async def _run_side_by_side(
    move: RunCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> None:
    """Run calls side by side. Each start is on record before it, each end as soon as it comes."""
    waiting = deque(move.calls)
    running = in_flight.running_calls
    ended_calls = in_flight.ended_calls
    while waiting or running:
        free_slots = min(len(waiting), move.at_once_max - len(running))
        starting = [waiting.popleft() for _ in range(free_slots)]
        starts = [
            CallStarted(cleared.call.id, cleared.key, cleared.spec.name) for cleared in starting
        ]
        if ended_calls or starts:
            await recorder.record(*ended_calls, *starts)
            in_flight.note_starts()
            ended_calls.clear()
        for cleared in starting:
            context = _call_context(cleared, world, recorder, in_flight)
            work = in_flight.run_if_driving(world.tools.run(cleared, context))
            bounded = work if move.timeout_s is None else _limit_time(move.timeout_s, work)
            running[asyncio.create_task(bounded)] = cleared
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        ended_calls += [in_flight.take_finished(task) for task in tuple(running) if task in done]
    # The last results are written with the next fact, which follows at once.
    await recorder.stage(*ended_calls)
    ended_calls.clear()


async def _limit_time(seconds: float, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return ToolResult.from_text("timed_out", f"The tool timed out after {seconds:g} s.")


def _call_context(
    cleared: ClearedCall, world: World, recorder: Recorder, in_flight: InFlight
) -> CallContext:
    """Return what a call may know of its run: data and functions, never the run's own objects."""
    state = recorder.state
    call_id = cleared.call.id
    publisher = recorder.publisher

    def report_charges(charges: Sequence[Charge]) -> None:
        in_flight.charges_by_call[call_id] = charges

    return CallContext(
        recorder.session,
        state.run.number if state.run else 0,
        report=lambda text: publisher.show_delta(CallProgress(call_id, text)),
        on_late_result=lambda result: recorder.add_late_result(CallLate(call_id, result)),
        report_charges=report_charges,
        earlier_result=state.transcript.find_result,
        remaining=cleared.spending_left,
        labels=state.labels,
        mask_text=recorder.mask.mask_text,
        blobs=world.blobs,
        fencing_token=state.run.opening_seq if state.run else 0,
        # Not the method itself, which would lead a tool to the driver.
        still_driving=lambda: in_flight.still_driving(),  # noqa: PLW0108 - as above
    )
