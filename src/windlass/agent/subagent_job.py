"""One task of a sub-agent, from the call that gives it to its result.

The law: a sub-agent that waits, is paused or was let go has no result. Its call is parked until it
can go on; if nothing else of its caller's step can move, the caller's run waits as well, with the
questions of all that work for it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from windlass.agent.build import AgentParts
from windlass.agent.child_sessions import (
    ChargesSoFar,
    as_subagent_charges,
    find_own_session,
    limit_spending,
    read_own_session,
)
from windlass.agent.nested_sessions import mark_waiting
from windlass.agent.openings import RunTask
from windlass.agent.undo_plans import plan_task_undo
from windlass.core.control_facts import NestedQuestion
from windlass.core.decide.undoing import UndoPlan
from windlass.core.errors import ConfigError, SessionBusy
from windlass.core.events import (
    CallWaiting,
    Event,
    Fact,
    LimitsRaised,
    NestedEvent,
    RunPaused,
    RunStarted,
)
from windlass.core.fold.run import fold
from windlass.core.limits import Limits, RaisedLimits
from windlass.core.messages import Charge, Label, TextPart
from windlass.core.result import Question, RunResult, build_result
from windlass.core.state import State
from windlass.ports import CallContext, CallerRun, Mailbox
from windlass.runtime.driver import Opening, RunDriver
from windlass.runtime.run_control import RunControl

OpenFirst = Callable[[State, State], Sequence[Fact]]
"""Opens the run of a job with the states of its session and of its caller."""
_UNFINISHED = ("suspended", "paused", "released")


class SubagentJob:
    """One task of a sub-agent: new, or as another driver left it."""

    def __init__(
        self,
        parts: AgentParts,
        run: CallerRun,
        call: CallContext,
        call_id: str,
        own_limits: Limits,
    ) -> None:
        """Make the job of a call. `own_limits` are those of the sub-agent without its caller."""
        self._own_limits = own_limits
        self._limits = parts.setup.limits
        self._runs = parts.make_runs()
        self._openings = parts.make_openings()
        self._world = parts.world
        self._mask_text = parts.mask.mask_text
        self._run = run
        self._call = call
        self._call_id = call_id
        self._parent_call = f"{call.session}/{call_id}"

    async def work(self, name: str, task: str) -> tuple[Sequence[Charge], RunResult[Any]]:
        """Do the task, or go on with it. Returns what it cost in all, and what came of it."""
        # The journal holds the task with its secrets masked.
        journal = self._world.journal
        state = await find_own_session(journal, self._parent_call, self._mask_text(task))
        if state.run is not None and not state.is_active:
            result = build_result(state, recorded=True)
        else:
            opening = partial(self._open_session, open_first=partial(self._open_new, task=task))
            result = await self._drive_to_result(name, state.session, opening)
        return as_subagent_charges(result.ledger.charges), result

    async def undo(self, name: str, task: str, undone_call: str) -> RunResult[Any]:
        """Undo what was done for an earlier call, in its session, or go on with undoing it.

        Raises NothingToDo if nothing is to be undone, RunUnfinished if the task is not over yet.
        """
        journal = self._world.journal
        call = f"{self._call.session}/{undone_call}"
        session, facts = await read_own_session(journal, call, self._mask_text(task))
        state = fold(session, facts)
        if _last_parent(facts) != self._parent_call:
            plan = await plan_task_undo(journal, state, facts, self._openings.tools)
            open_first = partial(self._open_undo, plan=plan, seq=state.seq)
        elif not state.is_active:
            return build_result(state, recorded=True)
        else:
            # Another driver has begun it, by the plan that is on record.
            open_first = self._refuse_opening
        opening = partial(self._open_session, open_first=open_first)
        return await self._drive_to_result(name, session, opening)

    async def _drive_to_result(self, name: str, session: str, opening: Opening) -> RunResult[Any]:
        while True:
            driver = self._runs.make_driver(
                session,
                opening,
                partial(self._show_nested, name, session),
            )
            self._call.report_charges(ChargesSoFar(driver))
            nest = partial(NestedEvent, self._call_id, name, session)
            child = LiveChild(driver.control, self._share_limits, nest)
            self._run.add_child(child)
            try:
                result = await self._runs.drive_to_end(driver)
            finally:
                self._run.remove_child(child)
            if result.outcome not in _UNFINISHED:
                return result
            # Without a wait in between: whoever begins to watch meanwhile must be told of it.
            parked = ParkedChild(child.take_snapshot())
            self._run.add_child(parked)
            try:
                await self._wait_to_go_on(driver, result, parked)
            finally:
                self._run.remove_child(parked)

    def _open_session(self, state: State, open_first: OpenFirst) -> Sequence[Fact]:
        caller = self._run.read_state()
        pause = caller.run.pause if caller.run else None
        # Consent to a changed setup was given when the caller's run was resumed.
        if state.is_active and pause is None:
            opening = self._openings.open_continued(state, consent=True)
            return (*opening, *self._raise_limits())
        if state.is_active:
            opening = self._openings.open_resumed(state, consent=True)
        else:
            opening = open_first(state, caller)
        is_paused = state.is_active and state.run is not None and state.run.pause is not None
        if pause is None or is_paused:
            return opening
        return (*opening, RunPaused(pause.reason, pause.by))

    def _raise_limits(self) -> Iterator[LimitsRaised]:
        """Yield a fact if the limits of the caller were raised since this job began."""
        raised = self._share_limits()
        if raised.raise_run(self._limits) != self._limits:
            yield LimitsRaised(raised)

    def _share_limits(self) -> RaisedLimits:
        """Return what the sub-agent may spend in all, by the limits that its caller has now."""
        try:
            limits = limit_spending(self._own_limits, self._call.remaining_now())
        except ConfigError:
            return RaisedLimits()
        return RaisedLimits(usd=limits.usd, tokens=limits.tokens)

    def _open_new(self, state: State, caller: State, task: str) -> Sequence[Fact]:
        labels: tuple[Label, ...] = tuple(sorted(self._call.labels))
        return self._openings.open_new(
            state,
            RunTask(
                prompt=(TextPart(task),),
                caller=caller.run.caller if caller.run else "",
                context=caller.run.context if caller.run else {},
                parent=self._parent_call,
                labels=labels,
                folder=caller.folder,
            ),
        )

    def _open_undo(self, state: State, caller: State, plan: UndoPlan, seq: int) -> Sequence[Fact]:
        labels: tuple[Label, ...] = tuple(sorted(self._call.labels))
        by = caller.run.caller if caller.run else ""
        return self._openings.open_undo(
            state, plan, seq=seq, caller=by, parent=self._parent_call, labels=labels
        )

    def _refuse_opening(self, state: State, _caller: State) -> Sequence[Fact]:
        raise SessionBusy(f"session {state.session} has gone on meanwhile: undo it again")

    def _show_nested(self, name: str, session: str, event: Event) -> None:
        self._run.show_delta(NestedEvent(self._call_id, name, session, event))

    async def _wait_to_go_on(
        self, driver: RunDriver, result: RunResult[Any], child: "ParkedChild"
    ) -> None:
        """Park the call until the sub-agent can go on; or until the call is cancelled."""
        if result.outcome == "released":
            # The caller must not let go of its session before this one is free.
            self._call.keep_leftover(driver.session_freed)
            self._call.park(None)
            await asyncio.get_running_loop().create_future()
        questions = tuple(self._nest_question(result, question) for question in result.questions)
        session = result.session_id
        await self._pause_caller(session)
        waiters = await self._listen_for_mail(
            {session, *(question.session for question in questions)}
        )
        waiting = CallWaiting(self._call_id, session, questions)
        child.marks = await mark_waiting(self._world.journal, waiting)
        woken = self._call.park(waiting)
        try:
            await asyncio.wait({woken, *waiters}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
        if not self._call.unpark():
            await asyncio.get_running_loop().create_future()

    async def _pause_caller(self, session: str) -> None:
        """If the sub-agent is parked because of a call, park the whole tree: pause its caller.

        Otherwise the next driver of the caller would continue the sub-agent on its own.
        """
        run = (await self._runs.read_state(session)).run
        if run is not None and run.pause is not None and run.pause.cause == "deaths":
            await self._run.pause_run(run.pause.reason, run.pause.by or self._world.agent)

    def _nest_question(self, result: RunResult[Any], question: Question) -> NestedQuestion:
        world = self._world
        return NestedQuestion(
            session=question.session or result.session_id,
            call_id=question.call.id,
            tool=question.call.name,
            arguments=msgspec.json.encode(question.arguments).decode(),
            question=question.question,
            digest=question.digest,
            expires_at=question.expires_at,
            agents=question.agents or (*world.lineage, world.agent),
            rule=question.rule,
        )

    async def _listen_for_mail(self, sessions: set[str]) -> list[asyncio.Task[None]]:
        """Return a task for each session that ends when there may be mail for it."""
        journal = self._world.journal
        if not isinstance(journal, Mailbox):
            return []
        waiters: list[asyncio.Task[None]] = []
        for session in sorted(sessions):
            state = fold(session, await journal.read(session))
            waiting = _wait_for_mail(journal, session, state.mail_taken)
            waiters.append(asyncio.create_task(waiting))
        return waiters


def _last_parent(facts: Sequence[Fact]) -> str:
    """Return the call that the last run of a session works for; empty if there is none."""
    return next((fact.parent for fact in reversed(facts) if isinstance(fact, RunStarted)), "")


async def _wait_for_mail(mailbox: Mailbox, session: str, after: int) -> None:
    """Wait until there is mail; a store may wake its waiters without a reason."""
    while not await mailbox.read_mail(session, "control", after):
        await mailbox.wait_for_mail(session, "control", after)


class LiveChild:
    """The run of a sub-agent while this process drives it, as its caller sees it."""

    def __init__(
        self,
        control: RunControl,
        share_limits: Callable[[], RaisedLimits],
        nest: Callable[[Any], NestedEvent],
    ) -> None:
        """Make the child of a run; `nest` makes an event of the caller of one of this run."""
        self._control = control
        self._share_limits = share_limits
        self._nest = nest

    def release(self, reason: str, grace_s: float) -> None:
        self._control.release(reason, grace_s)

    def pause(self, reason: str, by: str) -> None:
        self._control.pause(reason, by)

    def end_pause(self, by: str) -> None:
        self._control.end_pause(by)

    def raise_limits(self, by: str) -> None:
        self._control.raise_limits(self._share_limits(), by)

    def take_snapshot(self) -> Iterator[NestedEvent]:
        return map(self._nest, self._control.take_snapshot())


class ParkedChild:
    """The run of a sub-agent that waits: nothing reaches it here, and it is still shown."""

    def __init__(self, marks: Iterable[NestedEvent]) -> None:
        self.marks: Sequence[NestedEvent] = tuple(marks)
        """Of its facts, and of those of the sub-agents that wait below it."""

    def release(self, reason: str, grace_s: float) -> None:
        """Nobody drives it."""

    def pause(self, reason: str, by: str) -> None:
        """It is paused when it goes on, if its caller is paused then."""

    def end_pause(self, by: str) -> None:
        """As for `pause`."""

    def raise_limits(self, by: str) -> None:
        """It goes on with the limits that its caller has then."""

    def take_snapshot(self) -> Iterable[NestedEvent]:
        return self.marks
