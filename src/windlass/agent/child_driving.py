"""One session that works for a call of a run, from the call to its result.

The session of a sub-agent, of code that calls tools, or of a model that writes for a call. They
differ in who replies, which tools there are and what the caller gets back; `subagents.py`,
`nested_calls.py` and `call_requests.py` describe that. This module drives all of them.

Invariant: a child is its own session in the journal of its caller. If its call runs again
after a crash, the child is found there and nothing is paid for twice. It stops with its caller and
is free before its caller is. A sub-agent that waits, is paused or was released has no result: its
call is parked until it can resume, and if no other call of the step can move, the caller waits
too, with the questions of all that work for it. Every other child ends with its call.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from windlass.agent.child_sessions import (
    TASK_RUN,
    as_subagent_charges,
    limit_spending,
    plan_nested_undo,
    read_own_session,
)
from windlass.agent.nested_sessions import mark_waiting
from windlass.agent.openings import RunOpenings, RunTask
from windlass.agent.options import AgentParts
from windlass.agent.runs import PAUSED_OUTCOMES, LiveRuns
from windlass.core.control_facts import NestedQuestion
from windlass.core.decide.undoing import plan_undo
from windlass.core.errors import ConfigError, NothingToDo, RunUnfinished, SessionBusy
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
from windlass.core.messages import Charge, TextPart
from windlass.core.question import Question
from windlass.core.result import RunResult, build_result
from windlass.core.setup import OUTPUT_KEY
from windlass.core.state import State
from windlass.ports import CallContext, CallerRun, Journal
from windlass.runtime.driver import Opening, RunDriver
from windlass.runtime.run_control import RunControl


class CallSession:
    """A session that works for a call. To the run of the call it is a `ChildRun`."""

    def __init__(
        self,
        name: str,
        parts: AgentParts,
        caller: CallerRun,
        call: CallContext,
        call_id: str,
        own_limits: Limits | None = None,
        *,
        is_free: bool = False,
    ) -> None:
        """Make the child of a call; `parts` are what works, and watchers are shown the `name`.

        `own_limits`: those of a sub-agent without its caller's. None: it ends with its call, and
        what is asked of its caller does not reach it. `is_free`: it pays for nothing.
        """
        self._name = name
        self._parts = parts
        self._runs = LiveRuns(parts)
        self._openings = RunOpenings(parts)
        self._caller = caller
        self._call = call
        self._call_id = call_id
        self._own_limits = own_limits
        self._is_free = is_free
        self.parent_call = f"{call.session}/{call_id}"
        self._session = ""
        self._driver: RunDriver | None = None
        """None before it is driven, and while it waits."""
        self._control: RunControl | None = None
        """Takes what is asked of the caller; None if that does not reach the child."""
        self._marks: Sequence[NestedEvent] = ()
        """While it waits: of its facts, and of those of the sub-agents that wait below it."""

    def make_task(self, prompt: str) -> RunTask:
        """Return the task of this child, with the caller, context and labels of its parent run."""
        caller = self._caller.read_state()
        context = caller.run.context if caller.run else {}
        return RunTask(
            prompt=(TextPart(prompt),),
            caller=caller.run.caller if caller.run else "",
            # The schema is that of the caller's reply.
            context={key: value for key, value in context.items() if key != OUTPUT_KEY},
            parent=self.parent_call,
            labels=tuple(sorted(self._call.labels)),
            folder=caller.folder,
        )

    async def work(
        self, state: State, task: RunTask, paid: tuple[Charge, ...] = ()
    ) -> RunResult[Any]:
        """Do a task in a session as it was found: begin it, resume it, or return its result.

        `paid`: what other sessions that worked for the call have cost.
        """
        if state.run is not None and not state.is_active:
            result = build_result(state, recorded=True)
            self._report_charges(paid, result)
            return result
        open_first = partial(self._openings.open_new, task=task)
        return await self.drive(state.session, partial(self._open, open_first), paid)

    async def undo(self, task: str, undone_call: str) -> RunResult[Any]:
        """Undo what was done for an earlier call, in its session, or resume undoing it.

        Raises NothingToDo if nothing has to be undone, RunUnfinished if the task is not over yet.
        """
        journal = self._parts.world.journal
        call = f"{self._call.session}/{undone_call}"
        session, facts = await read_own_session(journal, call, self._parts.mask.mask_text(task))
        state = fold(session, facts)
        parents = (fact.parent for fact in reversed(facts) if isinstance(fact, RunStarted))
        if next(parents, "") != self.parent_call:
            if not facts:
                raise NothingToDo("the agent did nothing")
            if state.is_active:
                raise RunUnfinished(f"the run of session {session} has not ended")
            own = self.make_task(task)
            tools = self._parts.setup.tools
            nested = await plan_nested_undo(journal, state, tools)
            open_first = partial(
                self._openings.open_undo,
                plan=plan_undo(state, facts, tools, TASK_RUN, nested),
                seq=state.seq,
                caller=own.caller,
                parent=own.parent,
                labels=own.labels,
            )
        elif not state.is_active:
            return build_result(state, recorded=True)
        else:
            # Another driver has begun it, by the plan that is on record.
            open_first = _refuse_opening
        return await self.drive(session, partial(self._open, open_first))

    async def drive(
        self, session: str, opening: Opening, paid: tuple[Charge, ...] = ()
    ) -> RunResult[Any]:
        """Drive the session until its run ends, and return the result."""
        self._session = session
        while True:
            self._driver = driver = self._runs.make_driver(session, opening, self._show)
            self._control = driver.control if self._own_limits is not None else None
            # Also says that the session is driven here, and ends with the call.
            self._call.report_charges(() if self._is_free else _ChargesSoFar(driver, paid))
            # The caller must not release its session before this one is free.
            self._call.keep_leftover(driver.session_freed)
            self._caller.add_child(self)
            try:
                result = await self._runs.drive_to_end(driver)
                if result.outcome not in PAUSED_OUTCOMES:
                    break
                if self._own_limits is None:
                    # It was paused from outside, and cannot be resumed without its call.
                    await self._runs.undriven.end_child(await self._runs.read_state(session))
                    break
                # No await in between: a watcher that arrives meanwhile must see the marks.
                self._marks = tuple(self.take_snapshot())
                self._driver = self._control = None
                await self._wait_to_resume(result)
            finally:
                self._caller.remove_child(self)
        self._report_charges(paid, result)
        return result

    def _report_charges(self, paid: tuple[Charge, ...], result: RunResult[Any]) -> None:
        if not self._is_free:
            own = as_subagent_charges(result.ledger.charges)
            self._call.report_charges((*paid, *own))

    def _open(self, open_first: Opening, state: State) -> Sequence[Fact]:
        """Open the run of the session as it is found, paused if the caller is paused."""
        caller = self._caller.read_state().run
        pause = caller.pause if caller is not None and self._own_limits is not None else None
        # Consent to a changed setup was given when the caller's run was resumed.
        if not state.is_active:
            opening = open_first(state)
        elif pause is None:
            opening = self._openings.open_continued(state, consent=True)
            return (*opening, *self._raise_limits())
        else:
            opening = self._openings.open_resumed(state, consent=True)
        is_paused = state.is_active and state.run is not None and state.run.pause is not None
        if pause is None or is_paused:
            return opening
        return (*opening, RunPaused(pause.reason, pause.by))

    def _raise_limits(self) -> Iterator[LimitsRaised]:
        """Yield a fact if the limits of the caller were raised since the call began."""
        limits = self._parts.setup.limits
        raised = self._share_limits()
        if raised.raise_run(limits) != limits:
            yield LimitsRaised(raised)

    def _share_limits(self) -> RaisedLimits:
        """Return what a sub-agent may spend in all, by the limits that its caller has now."""
        if self._own_limits is None:
            return RaisedLimits()
        try:
            limits = limit_spending(self._own_limits, self._call.remaining_now())
        except ConfigError:
            return RaisedLimits()
        return RaisedLimits(usd=limits.usd, tokens=limits.tokens)

    # What its caller asks of it. While it waits, nothing reaches it: it resumes with the pause and
    # the limits that its caller has then.

    def release(self, reason: str, grace_s: float, reply_s: float = 0.0) -> None:
        if self._control is not None:
            self._control.release(reason, grace_s, reply_s)

    def pause(self, reason: str, by: str) -> None:
        if self._control is not None:
            self._control.pause(reason, by)

    def end_pause(self, by: str) -> None:
        if self._control is not None:
            self._control.end_pause(by)

    def raise_limits(self, by: str) -> None:
        if self._control is not None:
            self._control.raise_limits(self._share_limits(), by)

    def take_snapshot(self) -> Iterable[NestedEvent]:
        if self._driver is None:
            return self._marks
        return map(self._nest, self._driver.control.take_snapshot())

    def _nest(self, event: Any) -> NestedEvent:  # noqa: ANN401 - an event, or a mark of facts
        return NestedEvent(self._call_id, self._name, self._session, event)

    def _show(self, event: Event) -> None:
        self._caller.show_delta(self._nest(event))

    async def _wait_to_resume(self, result: RunResult[Any]) -> None:
        """Park the call until the sub-agent can resume; or until the call is cancelled."""
        if result.outcome == "released":
            self._call.park(None)
            await asyncio.get_running_loop().create_future()
        world = self._parts.world
        run = (await self._runs.read_state(self._session)).run
        if run is not None and run.pause is not None and run.pause.cause == "deaths":
            # A call below is parked, so the whole tree is: otherwise the next driver of the caller
            # would continue the sub-agent on its own.
            await self._caller.pause_run(run.pause.reason, run.pause.by or world.agent)
        questions = tuple(self._nest_question(question) for question in result.questions)
        asking = {self._session, *(question.session for question in questions)}
        waiters = await _listen_for_mail(world.journal, asking)
        waiting = CallWaiting(self._call_id, self._session, questions)
        self._marks = await mark_waiting(world.journal, waiting)
        woken = self._call.park(waiting)
        try:
            await asyncio.wait({woken, *waiters}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
        if not self._call.unpark():
            await asyncio.get_running_loop().create_future()

    def _nest_question(self, question: Question) -> NestedQuestion:
        world = self._parts.world
        return NestedQuestion(
            session=question.session,
            call_id=question.call_id,
            tool=question.tool,
            arguments=msgspec.json.encode(question.arguments).decode(),
            question=question.question,
            digest=question.digest,
            expires_at=question.expires_at,
            agents=question.chain or (*world.lineage, world.agent),
            rule=question.rule,
            approvals=question.approvals,
            agreed=question.agreed,
        )


def _refuse_opening(state: State) -> Sequence[Fact]:
    raise SessionBusy(f"session {state.session} has changed in the meantime: undo it again")


async def _listen_for_mail(journal: Journal, sessions: set[str]) -> list[asyncio.Task[None]]:
    """Return a task for each session that ends when there may be mail for it."""
    waiters: list[asyncio.Task[None]] = []
    for session in sorted(sessions):
        state = fold(session, await journal.read(session))
        waiters.append(asyncio.create_task(_wait_for_mail(journal, session, state.mail_taken)))
    return waiters


async def _wait_for_mail(journal: Journal, session: str, after: int) -> None:
    """Wait until there is mail; a store may wake its waiters without a reason."""
    while not await journal.read_mail(session, "control", after):
        await journal.wait_for_mail(session, "control", after)


class _ChargesSoFar(msgspec.Struct, frozen=True):
    """What a running child has paid, for its caller's ledger: looked up whenever it is read."""

    driver: RunDriver
    paid: tuple[Charge, ...]

    def __iter__(self) -> Iterator[Charge]:
        yield from self.paid
        yield from as_subagent_charges(self.driver.charges_so_far)
