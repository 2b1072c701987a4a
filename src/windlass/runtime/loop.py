"""The loop: ask what to do next, do it, write down what happened.

    facts ──fold──▶ State ──decide──▶ Move ──perform──▶ deltas, facts ──▶ journal ──▶ watchers
                      ▲                                        │
                      └──────────────── apply ─────────────────┘

Invariant: nothing here chooses, `decide` does; nothing here remembers, the recorder's state does.
"""

import asyncio
from contextlib import aclosing

from windlass.core.decide.compacting import format_summary
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import output_chars_max
from windlass.core.decide.retrying import backoff_s, explain_long_wait
from windlass.core.errors import Fault, WindlassError
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptRetrying,
    AttemptStarted,
    ContextCompacted,
    LookupsPlanned,
    ModelFellBack,
    NoteGiven,
    ReplyJudged,
    RunPaused,
    SteeringTaken,
    StreamStalled,
)
from windlass.core.moves import (
    AwaitBudget,
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
    StayWaiting,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.state import State
from windlass.core.verdicts import Deny, InvalidCall
from windlass.ports import RequestPermit, World
from windlass.runtime.attempt import ModelAttempt, RestartedReply
from windlass.runtime.governor import record_start, wait_for_permit
from windlass.runtime.in_flight import InFlight, PaidFact
from windlass.runtime.judging import judge_call, judge_reply, recall_knowledge
from windlass.runtime.recorder import Recorder
from windlass.runtime.running_calls import end_denied_work, run_calls
from windlass.runtime.shared_limits import begin_budget_wait, draw_on_budget


async def run_loop(  # noqa: C901, PLR0915 - an arm per move
    world: World, recorder: Recorder, in_flight: InFlight
) -> FinalMove | None:
    """Perform one move after another until the run must end or wait; return that last move.

    Returns None if the driver releases the run and there is still something to do. It is the body
    of a task that can be abandoned: what would end the program ends the run first.
    """
    try:
        if in_flight.must_stop:
            raise asyncio.CancelledError
        while True:
            state = recorder.state
            move = decide(state)
            # Found out here, because a move may begin, and send a request, without a turn of the
            # event loop in which this task could be cancelled.
            if in_flight.must_stop and not isinstance(move, FinalMove):
                raise asyncio.CancelledError
            # A request and a call write what is staged with their own first fact, in one append.
            if in_flight.is_releasing or not isinstance(move, RequestReply | RunCalls):
                await recorder.flush()
                if recorder.state is not state:
                    continue  # A message was recorded meanwhile.
                if in_flight.is_releasing and not isinstance(move, FinalMove):
                    in_flight.decided_from = state
                    return None
            if in_flight.restarted is not None and not isinstance(move, RequestReply):
                await in_flight.drop_restarted()
            match move:
                case RequestReply():
                    await make_attempt(move, world, recorder, in_flight)
                case JudgeCalls():
                    await judge_calls(move, world, recorder, in_flight)
                case RunCalls():
                    await run_calls(move, world, recorder, in_flight)
                case JudgeReply():
                    await judge_final_reply(move, world, recorder)
                case RemindModel(text, why):
                    await recorder.record(NoteGiven(text, why))
                case DrawBudget():
                    await recorder.record(await draw_on_budget(move, world.journal, state))
                case AwaitBudget():
                    await begin_budget_wait(move, world.journal, recorder)
                case Compact(upto, note, how):
                    await recorder.record(ContextCompacted(upto, note, how))
                case Summarize():
                    await summarize(move, world, recorder, in_flight)
                case TakeSteering():
                    await recorder.record(SteeringTaken())
                case LookUp(calls):
                    await recorder.record(LookupsPlanned(calls))
                case RecallKnowledge(text):
                    await recorder.record(await recall_knowledge(text, world, state))
                case PauseRun(reason, needed, cause=cause):
                    await recorder.record(RunPaused(reason, cause=cause, needed=needed))
                case WaitForAnswers() | StayWaiting() | StayPaused() | EndRun():
                    # Noted before any other task can run: what is said later was not considered.
                    in_flight.decided_from = state
                    return move
    except (KeyboardInterrupt, SystemExit) as error:
        in_flight.note_program_exit(error)
        raise asyncio.CancelledError from error
    finally:
        await in_flight.drop_restarted()


async def make_attempt(
    move: RequestReply, world: World, recorder: Recorder, in_flight: InFlight
) -> None:
    """Make one attempt at a step, and record a whole reply or a failure."""
    if move.last_failure is not None:
        await recorder.flush()
        in_flight.standing_text = ""
        await _announce_retry(move, move.last_failure, world, recorder)
    decided_from = recorder.state
    if move.fell_back_from:
        await in_flight.drop_restarted()
    restarted, in_flight.restarted = in_flight.restarted, None
    # An attempt that reads on makes no request.
    permit = await wait_for_permit(move, world, recorder) if restarted is None else None
    if permit is not None and recorder.state is not decided_from and move.last_failure is None:
        # A message was recorded while the run waited for its turn: decide again.
        permit.close(None)
        return
    model = move.prompt.model
    start = AttemptStarted(move.step, move.attempt, model, move.reserved, move.landing)
    await record_start(start, permit, recorder)
    attempt = in_flight.attempt = _new_attempt(move, world, recorder.state, permit, restarted)
    fault = await attempt.stream(world.timeouts, recorder.publisher.show_pieces)
    if fault is None:
        in_flight.attempt = None
        async with aclosing(attempt):
            await _record_paid(attempt.make_proposal(), recorder, in_flight)
        return
    await _record_failure(attempt, fault, move, world, recorder)
    # In flight until its failure is on record: if the run is stopped in the meantime, its end keeps
    # the text that was streamed. The same holds until the next attempt is announced to the
    # watchers.
    in_flight.attempt = None
    in_flight.standing_text = attempt.partial_text
    in_flight.restarted = attempt.restart(fault)


async def _record_paid(fact: PaidFact, recorder: Recorder, in_flight: InFlight) -> None:
    """Record what an attempt came to.

    It may have to wait for an append of another task first. If the run is stopped in the meantime,
    its end is recorded together with this fact.
    """
    in_flight.paid = fact
    try:
        await recorder.record(fact)
    except WindlassError:
        in_flight.paid = None  # The journal takes nothing more, so no end can record it either.
        raise
    in_flight.paid = None


async def _record_failure(
    attempt: ModelAttempt, fault: Fault, move: RequestReply, world: World, recorder: Recorder
) -> None:
    """Record why an attempt failed, and how long to wait before the next one."""
    if fault.kind == "stalled":
        recorder.publisher.show_delta(StreamStalled(move.step, move.attempt))
    retries = recorder.setup.retries
    fault = explain_long_wait(retries, fault)
    # An attempt that reads on in the same response does not wait.
    wait_s = 0.0
    if attempt.restarted_stream is None:
        wait_s = backoff_s(retries, move.attempt - 1, fault, world.clock.random_fraction())
    await recorder.record(attempt.make_failure(fault, wait_s))


def _new_attempt(
    move: RequestReply | Summarize,
    world: World,
    state: State,
    permit: RequestPermit | None,
    restarted: RestartedReply | None = None,
) -> ModelAttempt:
    model = move.prompt.model
    chars_max = output_chars_max(state, model, move.reserved)
    return ModelAttempt(move, world.models[model], chars_max, permit, restarted)


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


async def judge_calls(
    move: JudgeCalls, world: World, recorder: Recorder, in_flight: InFlight
) -> None:
    """Judge every call of a step; the verdicts are recorded together, before any call runs."""
    names = [spec.name for spec in move.tools]
    state = recorder.state
    verdicts = [await judge_call(proposed, names, world, state) for proposed in move.calls]
    for at, verdict in enumerate(verdicts):
        if isinstance(verdict.verdict, Deny | InvalidCall):
            verdicts[at] = await end_denied_work(verdict, state, in_flight)
    await recorder.stage(*verdicts)


async def summarize(move: Summarize, world: World, recorder: Recorder, in_flight: InFlight) -> None:
    """Have the beginning of the conversation summed up; a failure is recorded and ends nothing."""
    model = move.prompt.model
    permit = await wait_for_permit(move, world, recorder)
    start = AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction")
    await record_start(start, permit, recorder)
    attempt = in_flight.attempt = _new_attempt(move, world, recorder.state, permit)
    # No watcher is shown how a summary is written.
    fault = await attempt.stream(world.timeouts, lambda _: False)
    in_flight.attempt = None
    if attempt.restarted_stream is not None:
        await attempt.restarted_stream.aclose()
    text = attempt.partial_text
    if fault is None and (attempt.make_proposal().stop == "refusal" or not text.strip()):
        fault = Fault("other", "the model refused to write the summary, or left it empty")
    async with aclosing(attempt):
        if fault is None:
            note = format_summary(text)
            charge = attempt.compute_charge()
            paid = ContextCompacted(move.upto, note, "summary", charge)
        else:
            paid = attempt.make_failure(fault, 0.0)
        await _record_paid(paid, recorder, in_flight)


async def judge_final_reply(move: JudgeReply, world: World, recorder: Recorder) -> None:
    """Judge a final reply: does it fit the output type, and may it be said?"""
    await recorder.record(ReplyJudged(await judge_reply(move, world, recorder.state)))
