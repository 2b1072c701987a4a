"""The loop: ask what to do next, do it, write down what happened.

    facts ──fold──▶ State ──decide──▶ Move ──perform──▶ deltas, facts ──▶ journal ──▶ watchers
                      ▲                                        │
                      └──────────────── apply ─────────────────┘

Nothing here chooses: `decide` does. Nothing here remembers: the recorder's state does.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers
from windlass.core.decide.retrying import backoff_s
from windlass.core.decide.summarizing import summed_up
from windlass.core.errors import JournalFailed
from windlass.core.events import (
    Allotted,
    AttemptDiscarded,
    AttemptFailed,
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallLate,
    CallProgress,
    CallStarted,
    Compacted,
    FellBack,
    Heeded,
    Hydrated,
    NoteGiven,
    Recalled,
    ReplyJudged,
    Retrying,
    Stalled,
)
from windlass.core.faults import Fault
from windlass.core.messages import Charge, Result
from windlass.core.moves import (
    Act,
    Cleared,
    Draw,
    Finish,
    Gate,
    Hear,
    Heed,
    Hold,
    Hydrate,
    Reason,
    Recall,
    Remind,
    Shrink,
    Summarise,
)
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask
from windlass.logs import logger
from windlass.ports import CallContext, Pools, World
from windlass.runtime.attempt import Attempt
from windlass.runtime.in_flight import Underway
from windlass.runtime.judging import judge, judge_reply, may_recall
from windlass.runtime.recorder import Recorder

_log = logger(__name__)
RECALL_S = 10.0
"""How long a run waits for what is known about its prompt."""


async def run(world: World, recorder: Recorder, underway: Underway) -> Finish | Hold:
    """Go on until the run must end or wait for a person."""
    while True:
        move = decide(recorder.state)
        if not isinstance(move, Reason | Act):
            await recorder.flush()
        match move:
            case Reason():
                await reason(move, world, recorder, underway)
            case Gate():
                await gate(move, world, recorder)
            case Act():
                await act(move, world, recorder, underway)
            case Hear():
                await hear(move, world, recorder)
            case Remind(text):
                await recorder.record(NoteGiven(text, "same_call"))
            case Draw():
                await draw(move, world, recorder)
            case Shrink(upto, note, how):
                await recorder.record(Compacted(upto, note, how))
            case Summarise():
                await summarise(move, world, recorder, underway)
            case Heed():
                await recorder.record(Heeded())
            case Hydrate(calls):
                await recorder.record(Hydrated(calls))
            case Recall(text):
                await recorder.record(await recall(text, world, recorder.state))
            case Hold() | Finish():
                return move


async def reason(move: Reason, world: World, recorder: Recorder, underway: Underway) -> None:
    """One attempt at one step: a whole reply on record, or its failure."""
    if move.last is not None:
        await recorder.flush()
        await _after_failure(move, move.last, world, recorder)
    model = move.prompt.model
    await recorder.record(
        AttemptStarted(move.step, move.attempt, model, move.reserved, move.landing),
    )
    attempt = underway.attempt = Attempt(move, world.models[model])
    fault = await attempt.stream(world.timeouts, recorder.pass_on)
    if fault is None:
        underway.attempt = None
        await recorder.record(attempt.proposed())
        return
    if fault.kind == "stalled":
        recorder.show(Stalled(move.step, move.attempt))
    wait_s = backoff_s(recorder.setup.retries, move.attempt - 1, fault, world.clock.roll())
    await recorder.record(attempt.failed(fault, wait_s))
    underway.attempt = None


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
    """Judge every call of a step; the verdicts go on record together, before any of them runs."""
    names = [spec.name for spec in move.tools]
    verdicts = [await judge(proposed, names, world, recorder.state) for proposed in move.calls]
    await recorder.carry(*verdicts)


async def summarise(move: Summarise, world: World, recorder: Recorder, underway: Underway) -> None:
    """Have the beginning summed up; a failure is on record, and fails nothing else."""
    model = move.prompt.model
    await recorder.record(
        AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction"),
    )
    attempt = underway.attempt = Attempt(move, world.models[model])
    fault = await attempt.stream(world.timeouts, lambda _: False)
    underway.attempt = None
    if fault is None and (attempt.proposed().stop == "refusal" or not attempt.partial.strip()):
        fault = Fault("other", "the summary was refused, or is empty")
    if fault is None:
        note = summed_up(attempt.partial)
        await recorder.record(Compacted(move.upto, note, "summary", attempt.charge()))
    else:
        await recorder.record(attempt.failed(fault, 0.0))


async def recall(text: str, world: World, state: State) -> Recalled:
    """What is known about a prompt; if nobody can say, or the gate does not let them, nothing."""
    if world.recall is None or not await may_recall(text, world, state):
        return Recalled("")
    try:
        async with asyncio.timeout(RECALL_S):
            known = await world.recall(text)
        return msgspec.convert(msgspec.to_builtins(known), Recalled)
    except Exception:  # noqa: BLE001 - what is not recalled fails no run
        _log.warning("nothing could be recalled", exc_info=True)
        return Recalled("")


async def draw(move: Draw, world: World, recorder: Recorder) -> None:
    """Ask a shared budget for what the next request may cost; it may have less."""
    pools, state = world.journal, recorder.state
    if not isinstance(pools, Pools) or state.run is None:
        raise JournalFailed(f"the journal keeps no budgets, and {move.budget.name} is one")
    budget, wanted = move.budget, move.wanted
    amount = await pools.draw(budget, state.session, state.run.number, wanted)
    await recorder.record(Allotted(budget.name, amount, dry=not covers(amount, wanted)))


async def hear(move: Hear, world: World, recorder: Recorder) -> None:
    """Judge a final reply: does it fit the output type, and may it be said?"""
    verdict = await judge_reply(move, world, recorder.session)
    await recorder.record(ReplyJudged(verdict))


async def act(move: Act, world: World, recorder: Recorder, underway: Underway) -> None:
    """Run the calls that may run now; first find out about those that a crash interrupted."""
    lost = [call for call in move.calls if call.interrupted and not call.repeatable]
    if lost:
        await recorder.flush()
    for cleared in lost:
        await recorder.record(await _reconcile(cleared, move, world, recorder))
    if not lost:
        await _together(move, world, recorder, underway)


async def _reconcile(
    cleared: Cleared, move: Act, world: World, recorder: Recorder
) -> CallFinished | CallJudged:
    call = cleared.call
    context = _context(cleared, world, recorder, Underway())
    match await world.tools.reconcile(cleared, context):
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


async def _together(move: Act, world: World, recorder: Recorder, underway: Underway) -> None:
    """Run calls side by side. Each start is on record before it, each end as soon as it comes."""
    waiting, running, ended = deque(move.calls), underway.calls, underway.ended
    while waiting or running:
        room = min(len(waiting), move.at_once_max - len(running))
        starting = [waiting.popleft() for _ in range(room)]
        starts = [CallStarted(cleared.call.id, cleared.key) for cleared in starting]
        if ended or starts:
            await recorder.record(*ended, *starts)
            ended.clear()
        for cleared in starting:
            context = _context(cleared, world, recorder, underway)
            work = world.tools.run(cleared, context)
            bounded = work if move.seconds is None else _within(move.seconds, work)
            running[asyncio.create_task(bounded)] = cleared.call.id
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        ended += [underway.finished(task) for task in tuple(running) if task in done]
    # The last results go on record with whatever comes next, which is at once.
    await recorder.carry(*ended)
    ended.clear()


async def _within(seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        return Result.say("timed_out", f"It was not there within {seconds:g} s.")


def _context(cleared: Cleared, world: World, recorder: Recorder, underway: Underway) -> CallContext:
    state, call_id = recorder.state, cleared.call.id

    def paid(charges: Sequence[Charge]) -> None:
        underway.paid[call_id] = charges

    return CallContext(
        recorder.session,
        state.run.number if state.run else 0,
        report=lambda text: recorder.show(CallProgress(call_id, text)),
        late=lambda result: recorder.late(CallLate(call_id, result)),
        paid=paid,
        earlier=recorder.state.transcript.result_of,
        left=cleared.left,
        blobs=world.blobs,
        budgets=recorder.setup.budgets,
        hide=recorder.hide,
        mask=recorder.mask,
        show=recorder.show,
        caller=state.run.caller if state.run else "",
        trusted=state.run.context if state.run else {},
        labels=state.labels,
        world=world,
    )
