"""The loop: ask what to do next, do it, write down what happened.

    facts ──fold──▶ State ──decide──▶ Move ──perform──▶ deltas, facts ──▶ journal ──▶ watchers
                      ▲                                        │
                      └──────────────── apply ─────────────────┘

Nothing here chooses: `decide` does. Nothing here remembers: the recorder's state does.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from windlass.attempt import Attempt
from windlass.core.decide import (
    Act,
    Cleared,
    Finish,
    Gate,
    Hear,
    Hold,
    Proposed,
    Reason,
    Remind,
    Shrink,
    decide,
)
from windlass.core.events import (
    AttemptDiscarded,
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    Compacted,
    Fact,
    FellBack,
    NoteGiven,
    ReplyJudged,
    Retrying,
    Stalled,
)
from windlass.core.messages import Result
from windlass.core.names import did_you_mean
from windlass.core.repair import Refused, prepare
from windlass.core.retry import backoff_s
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Misfit, Modify, Verdict, sound
from windlass.ports import CallContext, Request, World
from windlass.recorder import Recorder

BROKEN = (Exception, asyncio.CancelledError)
"""What a gate may fail with."""


@dataclass(slots=True)
class Underway:
    """What a run has in the air: not yet on record, and not to be lost when it is stopped."""

    attempt: Attempt | None = None
    calls: dict[asyncio.Task[Result], str] = field(default_factory=dict[asyncio.Task[Result], str])


async def run(world: World, recorder: Recorder, underway: Underway) -> Finish | Hold:
    """Go on until the run must end or wait for a person."""
    while True:
        match decide(recorder.state):
            case Reason() as move:
                await reason(move, world, recorder, underway)
            case Gate() as move:
                await gate(move, world, recorder)
            case Act() as move:
                await act(move, world, recorder, underway)
            case Hear() as move:
                await hear(move, world, recorder)
            case Remind(text):
                await recorder.record(NoteGiven(text, "same_call"))
            case Shrink(upto, note):
                await recorder.record(Compacted(upto, note))
            case Hold() as hold:
                return hold
            case Finish() as finish:
                return finish


async def reason(move: Reason, world: World, recorder: Recorder, underway: Underway) -> None:
    """One attempt at one step: a whole reply on record, or its failure."""
    if move.last is not None:
        await _after_failure(move, move.last, world, recorder)
    model = move.prompt.model
    await recorder.record(
        AttemptStarted(move.step, move.attempt, model, move.reserved, move.landing),
    )
    attempt = underway.attempt = Attempt(move, world.models[model])
    fault = await attempt.stream(world.timeouts, recorder.pass_on)
    underway.attempt = None
    if fault is None:
        await recorder.record(attempt.proposed())
        return
    if fault.kind == "stalled":
        recorder.show(Stalled(move.step, move.attempt))
    wait_s = backoff_s(recorder.setup.retries, move.attempt - 1, fault, world.clock.roll())
    await recorder.record(attempt.failed(fault, wait_s))


async def _after_failure(
    move: Reason, last: AttemptFailed, world: World, recorder: Recorder
) -> None:
    """Say what happens while it happens, and wait."""
    if move.discard:
        recorder.show(AttemptDiscarded(move.step, move.failed, last.fault.message))
    if move.moved_from:
        recorder.show(FellBack(move.step, move.prompt.model, move.moved_from))
    else:
        recorder.show(Retrying(move.step, move.attempt, move.wait_s, last.fault.message))
        await world.clock.sleep(move.wait_s)


async def gate(move: Gate, world: World, recorder: Recorder) -> None:
    """Judge every call of a step; all verdicts go on record together."""
    names = [spec.name for spec in move.tools]
    verdicts = [await _judge(proposed, names, world, recorder.state) for proposed in move.calls]
    await recorder.record(*verdicts)


async def _judge(
    proposed: Proposed,
    names: Sequence[str],
    world: World,
    state: State,
) -> CallJudged:
    call, spec = proposed.call, proposed.spec
    if spec is None:
        message = f"There is no tool {call.name!r}.{did_you_mean(call.name, names)}"
        return CallJudged(call.id, Invalid("unknown_tool", message))
    if proposed.cut and spec.effect != "read":
        # What was to follow is not known, and an effect cannot be taken back.
        message = f"{call.name}: your reply was cut off by its length. Make the call anew, whole."
        return CallJudged(call.id, Invalid("arguments_truncated", message))
    prepared = prepare(call.arguments, world.schemas[spec.name], cut=proposed.cut)
    if isinstance(prepared, Refused):
        message = f"{call.name}: {prepared.message}"
        return CallJudged(call.id, Invalid(prepared.code, message))
    arguments = prepared.arguments
    request = Request(state.session, call.id, spec, arguments, state.labels)
    verdict = await _verdict(request, world)
    counts = verdict.arguments if isinstance(verdict, Modify) else arguments
    return CallJudged(
        call.id,
        verdict,
        arguments if prepared.changes else None,
        prepared.changes,
        world.tools.resource(call.name, counts),
    )


async def _verdict(request: Request, world: World) -> Verdict:
    if world.gate is None:
        return Allow("no gate is set")
    try:
        verdict = await world.gate.judge(request)
    except BROKEN as error:
        return _shut_by_itself(error)
    if not sound(verdict, Verdict):
        return Deny("the gate gave no verdict", "gate-failure")
    schema = world.schemas[request.tool.name]
    if isinstance(verdict, Modify) and not schema.accepts(verdict.arguments):
        return Deny("the gate's own arguments do not fit the tool", verdict.rule)
    return verdict


def _shut_by_itself(error: BaseException) -> Deny:
    """A gate that breaks is a gate that is shut; but a cancel of the run is no fault of its own."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
    return Deny(f"the gate failed: {type(error).__name__}", "gate-failure")


async def hear(move: Hear, world: World, recorder: Recorder) -> None:
    """Judge a final reply: does it fit the output type, and may it be said?"""
    text = move.reply.text
    misfit = world.fit(text) if world.fit and move.whole else None
    if misfit is not None:
        await recorder.record(ReplyJudged(Misfit(misfit)))
        return
    verdict: Allow | Deny = Allow()
    if world.gate is not None and world.gate.judges_replies:
        try:
            verdict = await world.gate.judge_reply(recorder.session, text)
        except BROKEN as error:
            verdict = _shut_by_itself(error)
        if not sound(verdict, Allow | Deny):
            verdict = Deny("the gate gave no verdict", "gate-failure")
    await recorder.record(ReplyJudged(verdict))


async def act(move: Act, world: World, recorder: Recorder, underway: Underway) -> None:
    """Run the calls that may run now; first find out about those that a crash interrupted."""
    lost = [call for call in move.calls if call.interrupted and not call.repeatable]
    for cleared in lost:
        await recorder.record(await _reconcile(cleared, move, world, recorder))
    if not lost:
        await _together(move.calls, move.at_once_max, world, recorder, underway)


async def _reconcile(
    cleared: Cleared, move: Act, world: World, recorder: Recorder
) -> CallFinished | CallJudged:
    call = cleared.call
    match await world.tools.reconcile(cleared, _context(cleared, recorder)):
        case Result() as result:
            return CallFinished(call.id, result)
        case "not_done":
            return CallJudged(call.id, Allow("reconcile: it had not happened"))
        case "unknown" if move.ask_unknown:
            question = f"{call.name} was interrupted and may have taken effect. Run it again?"
            return CallJudged(call.id, Ask(question, "interrupted"))
        case "unknown":
            told = "Interrupted: it had started, and whether it took effect is not known."
            return CallFinished(call.id, Result.say("unknown", told))


async def _together(
    calls: Sequence[Cleared],
    at_once_max: int,
    world: World,
    recorder: Recorder,
    underway: Underway,
) -> None:
    """Run calls side by side. Each start is on record before it, each end as soon as it comes."""
    waiting, running = deque(calls), underway.calls
    facts: list[Fact] = []
    while waiting or running or facts:
        room = min(len(waiting), at_once_max - len(running))
        starting = [waiting.popleft() for _ in range(room)]
        facts += [CallStarted(cleared.call.id, cleared.key) for cleared in starting]
        if facts:
            await recorder.record(*facts)
        for cleared in starting:
            task = asyncio.create_task(world.tools.run(cleared, _context(cleared, recorder)))
            running[task] = cleared.call.id
        facts = []
        if running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in running if task in done]
            facts = [CallFinished(running.pop(task), outcome_of(task)) for task in ended]


def outcome_of(task: asyncio.Task[Result]) -> Result:
    """The result of a call that is over; a failing call never takes its siblings with it."""
    if task.cancelled():
        return Result.say("cancelled", "The tool gave up.")
    error = task.exception()
    if error is None:
        return task.result()
    return Result.say("error", f"{type(error).__name__}: the tool failed")


def _context(cleared: Cleared, recorder: Recorder) -> CallContext:
    number = recorder.state.run.number if recorder.state.run else 0
    call_id = cleared.call.id
    return CallContext(
        recorder.session,
        number,
        report=lambda text: recorder.show(CallProgress(call_id, text)),
        late=lambda result: recorder.late(CallLate(call_id, result)),
    )
