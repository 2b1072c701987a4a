"""Plays a plan: processes work on a session, one after another, until nothing is left to do."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from random import Random
from typing import Any

from proof.simulate.agents import build_agent
from proof.simulate.control import (
    answer_by_mail,
    answer_second,
    start_control,
    start_rivals,
)
from proof.simulate.meddling import start_meddlers, steer_between
from proof.simulate.outside import OutsideWorld, ProcessPower, SimJournal, make_prompt
from proof.simulate.people import call_number, reply_to_question
from proof.simulate.plan import SessionPlan
from proof.simulate.provider_limit import ProviderLimit
from proof.simulate.undoing import finish_due_undo, split_undo_facts, undo_session
from windlass.agent.agent import Agent
from windlass.agent.answering import answer, list_undecided
from windlass.core.errors import (
    ConfigError,
    NothingToDo,
    QuestionDecided,
    RunUnfinished,
    SessionBusy,
)
from windlass.core.events import Event, Fact, RunReleased
from windlass.core.fold.run import apply_fact, fold
from windlass.core.question import Question
from windlass.core.result import RunFailed, RunResult
from windlass.core.state import State
from windlass.journals.memory import MemoryJournal
from windlass.runtime.running_calls import PROCESS_TURN, SuspectTurn
from windlass.testing.clock import VirtualClock
from windlass.testing.faults import PowerCut

PROCESSES_MAX = 60
LINGER_S = 4.0
"""Seconds that a process lives on after its run."""
CLOCK_SET_SHARE = 0.1
"""Of the processes in whose time the wall clock is set."""
WRONG_DIGEST = "0" * 32
"""A digest that no arguments have."""


@dataclass(slots=True, repr=False)
class ProcessDrive:
    """One drive of a run in one process: what a watcher saw, and how it ended."""

    events: list[Event] = field(default_factory=list[Event])
    result: RunResult[Any] | None = None
    cancelled_at: float | None = None
    ended_at: float = 0.0
    powered: bool = True
    died: bool = False
    """It lost its power, during the drive or after it."""
    was_too_late: bool = False
    """Another process drove the session, so this one did nothing."""


@dataclass(slots=True, repr=False)
class PlayedSession:
    """A session that was played to its end."""

    plan: SessionPlan
    outside: OutsideWorld
    store: MemoryJournal
    drives: list[ProcessDrive]
    state: State
    facts: list[Fact] = field(default_factory=list[Fact])
    inner: dict[str, list[Fact]] = field(default_factory=dict[str, list[Fact]])
    """The facts of the sessions of helpers and of code, by session."""
    undo_facts: Sequence[Fact] = ()
    """What was recorded when the runs were undone, after all else."""
    inner_undo_facts: dict[str, list[Fact]] = field(default_factory=dict[str, list[Fact]])
    """The same of the sessions of helpers, by session."""
    beside: list["PlayedSession"] = field(default_factory=list["PlayedSession"])

    @property
    def has_crashed(self) -> bool:
        return any(drive.died for drive in self.drives)

    @property
    def was_let_go(self) -> bool:
        """Whether a driver let go of a run before its end."""
        return any(isinstance(fact, RunReleased) for fact in self.facts)


def play_plan(plan: SessionPlan) -> PlayedSession:
    """Play a plan on virtual time."""
    # The same seed drives the plan and the clock, so a session can be played again exactly.
    clock = VirtualClock(seed=plan.seed)
    return clock.run(lambda clock: _play_sessions(plan, clock), tasks_left="cancel")


async def _play_sessions(plan: SessionPlan, clock: VirtualClock) -> PlayedSession:
    store = MemoryJournal(now=clock.now)
    sessions = (_play_session(one, clock, store) for one in (plan, *plan.beside))
    played, *beside = await asyncio.gather(*sessions)
    played.beside = beside
    for one in (played, *beside):
        for other in (played, *beside):
            for (session, number), letter in other.outside.posted_beside.items():
                if session == one.plan.session:
                    one.outside.posted[number] = letter
    return played


async def _play_session(
    plan: SessionPlan, clock: VirtualClock, store: MemoryJournal
) -> PlayedSession:
    played = PlayedSession(
        plan,
        OutsideWorld(plan, store, plan.calls, provider_limit=ProviderLimit.of_plan(plan)),
        store,
        [],
        State(plan.session),
    )
    for number in range(1, plan.runs + 1):
        for _ in range(PROCESSES_MAX):
            if _is_over(played.state, number):
                break
            await _run_process(played, clock, number)
        if not _is_over(played.state, number):
            raise AssertionError(f"run {number} did not end in {PROCESSES_MAX} processes")
    if plan.more.on_failure == "undo":
        await finish_due_undo(plan, played.outside, clock)
    else:
        # Messages that nobody could take any more are refused; then each has its fact.
        last = build_agent(played.outside, ProcessPower(None, has_run=False), clock)
        await last.drive(plan.session)
    await undo_session(plan, played.outside, clock)
    await _read_journal(played)
    keys = sorted(played.outside.started) if plan.more.helped or plan.more.coded else ()
    # The session of a helper or of code is named by the key of the call that it works for.
    played.inner = {key: facts for key in keys if (facts := list(await store.read(key)))}
    _set_undoing_apart(played)
    return played


def _set_undoing_apart(played: PlayedSession) -> None:
    """Keep what was recorded by runs that undo others apart: it has rules of its own."""
    played.facts, played.undo_facts = split_undo_facts(played.facts)
    played.state = reduce(apply_fact, played.facts, State(played.plan.session))
    for key, facts in played.inner.items():
        played.inner[key], undone = split_undo_facts(facts)
        if undone:
            played.inner_undo_facts[key] = undone


def _is_over(state: State, number: int) -> bool:
    """Whether a run has ended. A rival may have begun the next one from the queue already."""
    run = state.run
    if run is None or run.number < number:
        return False
    return run.number > number or run.outcome is not None


async def _run_process(played: PlayedSession, clock: VirtualClock, number: int) -> None:
    """Run one process: it starts a run, or does the next thing for the run that it finds."""
    drive = ProcessDrive()
    plan = played.plan
    outside = played.outside
    at = len(played.drives) + 1
    if at in plan.more.steers_between:
        await steer_between(outside, clock, f"Between {at}")
        await _read_journal(played)
    PROCESS_TURN.set(SuspectTurn())
    power = ProcessPower(plan.crashes[at - 1] if at <= len(plan.crashes) else None, has_run=True)
    played.drives.append(drive)
    agent = build_agent(outside, power, clock)
    task = asyncio.create_task(_drive_run(agent, drive, played, power, clock, number))

    def cancel() -> None:
        cancelled = task.cancel() if plan.outer_cancel else agent.cancel(plan.session)
        drive.cancelled_at = clock.elapsed_s if cancelled else None

    if at == 1 and plan.cancel_after_s is not None:
        asyncio.get_running_loop().call_later(plan.cancel_after_s, cancel)
    _set_clock_later(plan, clock, at)
    meddlers = start_meddlers(outside, power, clock, agent, at)
    meddlers += start_control(outside, agent, at)
    rivals = start_rivals(outside, clock, at)
    with suppress(asyncio.CancelledError, PowerCut):
        await task
    await asyncio.gather(*rivals)
    drive.ended_at = clock.elapsed_s
    drive.powered = power.on
    # From here on the process has no run, so an intruder may take the session.
    power.has_run = power.has_written = False
    await asyncio.sleep(LINGER_S)  # A tool that ignores its cancel may still finish.
    drive.died = not power.on
    power.turn_off()
    for meddler in meddlers:
        meddler.cancel()
    await _read_journal(played)


def _set_clock_later(plan: SessionPlan, clock: VirtualClock, process: int) -> None:
    """Let somebody set the time of day forward while some of the processes work."""
    # Drawn apart from the plan, so that the sessions of the seeds stay as they are.
    draw = Random(f"clock {plan.seed} {process}")
    if draw.random() < CLOCK_SET_SHARE:
        by_s = draw.choice((3_600.0, 3e7))
        asyncio.get_running_loop().call_later(draw.uniform(0.0, 4.0), clock.set_wall_clock, by_s)


async def _read_journal(played: PlayedSession) -> None:
    """Read the new facts and fold them into the state."""
    facts = await played.store.read(played.plan.session, len(played.facts))
    played.facts += facts
    played.state = reduce(apply_fact, facts, played.state)


async def _drive_run(
    agent: Agent[str],
    drive: ProcessDrive,
    played: PlayedSession,
    power: ProcessPower,
    clock: VirtualClock,
    number: int,
) -> None:
    plan = played.plan
    session = plan.session
    watch = drive.events.append if plan.watched else None
    state = played.state
    # An answer may have been accepted before its process died: then it is not given again.
    waiting = await list_undecided(played.store, state) if state.is_active else ()
    try:
        if state.run is None or state.run.number < number:
            if number > 1 and played.outside.queued:
                drive.result = await agent.drive(session, on_event=watch)
                return
            pinned = plan.more.pinned[number - 1]
            prompt = make_prompt(plan, number)
            drive.result = await agent.run(prompt, session=session, on_event=watch, pinned=pinned)
        elif waiting and plan.control.answers_by_mail:
            await answer_by_mail(played.outside, waiting)
            drive.result = await agent.resume(session, on_event=watch)
        elif waiting and not plan.more.answers_apart:
            drive.result = await _answer_one(agent, drive, played, waiting)
        else:
            if waiting:
                await _answer_from_outside(played, power, clock, waiting)
            drive.result = await agent.resume(session, on_event=watch)
    except RunFailed as failed:
        drive.result = failed.result
    except (SessionBusy, NothingToDo, RunUnfinished):
        if not any(rival.process == len(played.drives) for rival in plan.control.rivals):
            raise
        drive.was_too_late = True


async def _answer_one(
    agent: Agent[str],
    drive: ProcessDrive,
    played: PlayedSession,
    waiting: tuple[Question, ...],
) -> RunResult[str]:
    """Answer one question through the agent that goes on with the run."""
    outside = played.outside
    question = _pick_question(played, waiting)
    session = question.session
    call_id = question.call_id
    reply = reply_to_question(outside, question)
    if outside.call_plan(call_number(question.arguments)).mistaken:
        with suppress(ConfigError):
            await agent.answer(session, call_id, reply, digest=WRONG_DIGEST)
            outside.problems.append("G6: an answer for different arguments was accepted")
    watch = drive.events.append if played.plan.watched else None
    return await agent.answer(session, call_id, reply, digest=question.digest, on_event=watch)


async def _answer_from_outside(
    played: PlayedSession, power: ProcessPower, clock: VirtualClock, waiting: tuple[Question, ...]
) -> None:
    """Answer all questions with only the journal."""
    outside = played.outside
    plan = played.plan.session
    journal = SimJournal(outside, power)
    while waiting:
        question = _pick_question(played, waiting)
        session = question.session
        call_id = question.call_id
        reply = reply_to_question(outside, question)
        if outside.call_plan(call_number(question.arguments)).mistaken:
            with suppress(ConfigError):
                await answer(journal, session, call_id, reply, digest=WRONG_DIGEST, clock=clock)
                outside.problems.append("G6: an answer for different arguments was accepted")
        try:
            waiting = await answer(
                journal, session, call_id, reply, digest=question.digest, by="apart", clock=clock
            )
        except QuestionDecided:  # It has expired.
            waiting = await list_undecided(journal, fold(plan, await journal.read(plan)))
        await answer_second(outside, session, question)


def _pick_question(played: PlayedSession, waiting: tuple[Question, ...]) -> Question:
    picks = played.plan.more.picks
    return waiting[picks[len(played.outside.replies) % len(picks)] % len(waiting)]
