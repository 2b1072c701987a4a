"""A handle on a run that was started, wherever it is driven: its events, its result, its controls.

The law: a handle is a way to look at a run and to speak to it, never a part of it. Cancelling
whoever awaits its result cancels nothing, and a handle that is dropped leaves the run alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Generic

import msgspec
from typing_extensions import override

from windlass.agent import control
from windlass.agent.control import ControlReceipt, wait_for_change
from windlass.agent.event_stream import EventStream
from windlass.agent.options import PromptInput
from windlass.agent.reply_text import follow_text
from windlass.agent.runs import PAUSED_OUTCOMES, RELEASE_GRACE_S, LiveRuns
from windlass.core.errors import MailRejected, NothingToDo
from windlass.core.events import Event, Fact, MailRefused, RunEnded, RunStarted, RunSuspended
from windlass.core.fold.run import apply_fact
from windlass.core.limits import RaisedLimits
from windlass.core.result import OutputT, RunResult, build_result
from windlass.core.state import State
from windlass.ports import Mailbox, SessionLeases
from windlass.runtime.driver import Opening, RunDriver
from windlass.runtime.leftover_tasks import wait_until_done

LEASE_POLL_S = 1.0
"""How often to look whether a run that goes no further is still driven."""


class LaunchedRun(msgspec.Struct):
    """A run that a task of this agent drives."""

    driver: RunDriver
    task: "asyncio.Task[RunResult[Any]]"
    opened: Event | None = None
    """The first fact of the driver, which is durable; None if the journal took none."""


class RunHandle(Generic[OutputT]):
    """A run that was started. It goes on, whether or not anybody holds this."""

    def __init__(
        self,
        runs: LiveRuns,
        session: str,
        finish: Callable[[RunResult[Any]], RunResult[OutputT]],
        *,
        run: int = 0,
        mail: int = 0,
        launched: LaunchedRun | None = None,
    ) -> None:
        """Make a handle of a run by its number, or of a prompt by its number in the queue.

        `finish` parses the output of a result, and raises RunFailed if the run failed.
        """
        self._runs = runs
        self._journal = runs.world.journal
        self._session = session
        self._finish = finish
        self._run = run
        self._mail = mail
        self._launched = launched

    @override
    def __repr__(self) -> str:
        where = f"run {self._run}" if self._run else f"number {self._mail} in the queue"
        return f"RunHandle({self._session!r}, {where})"

    @property
    def session(self) -> str:
        """The session that the run belongs to."""
        return self._session

    @property
    def run(self) -> int:
        """The number of the run in its session, from 1; 0 while its prompt waits in the queue."""
        return self._run

    @property
    def is_queued(self) -> bool:
        """Whether the prompt waited in the queue when this was last looked at."""
        return self._run == 0

    async def queue_place(self) -> int:
        """Return how many prompts are to begin before this run has begun, itself included.

        0 once the run has begun.
        """
        if self._run or not isinstance(self._journal, Mailbox):
            return 0
        state = await self._runs.read_state(self._session)
        if state.prompts_taken >= self._mail:
            return 0
        letters = await self._journal.read_mail(self._session, "prompts", state.prompts_taken)
        return sum(letter.number <= self._mail for letter in letters)

    async def events(self, after: int | None = None) -> AsyncGenerator[Event]:
        """Yield the events of the run: recorded ones, then live ones, up to its one end.

        They begin with the start of the run, or after the sequence number `after`. A prompt that
        waits in the queue is waited for. The iteration stays with the run when it waits for a
        person, is paused, or changes its driver, and stops only with RunEnded.
        """
        start = await self._find_start()
        seen = max(after or 0, start.seq - 1)
        if await self._has_ended_by(start, seen):
            return
        while True:
            async with aclosing(self._runs.watch(self._session, seen)) as events:
                async for event in events:
                    if not event.nth:
                        seen = max(seen, event.seq)
                    yield event
                    if isinstance(event, RunEnded):
                        return
            await wait_for_change(self._journal, self._session, seen)

    async def text(self) -> AsyncGenerator[str]:
        """Yield the whole text of the reply so far, at most once per turn of the event loop.

        Each value replaces the one before. After an attempt broke off the next value is shorter,
        and a later reply of the run replaces an earlier one. Like `events`, it stays with the run
        until it has ended.
        """
        async with aclosing(self.events()) as events, aclosing(follow_text(events)) as values:
            async for value in values:
                yield value

    async def result(self) -> RunResult[OutputT]:
        """Wait until the run has ended or goes no further, and return what it did.

        A run goes no further for now if it waits for a person, is paused, or was released by this
        agent. Raises RunFailed if the run failed, and MailRejected if its prompt was refused.
        """
        launched = self._launched
        if launched is not None and launched.task.get_loop() is asyncio.get_running_loop():
            is_old = launched.task.done()
            result = await asyncio.shield(launched.task)
            if launched.driver.program_exit is not None:
                raise launched.driver.program_exit
            if result.outcome not in PAUSED_OUTCOMES or not is_old:
                return self._finish(result)
        return self._finish(await self._follow_to_result())

    async def steer(self, prompt: PromptInput, *, by: str = "", key: str = "") -> ControlReceipt:
        """Say something to the run before its next step. Returns once it is durable."""
        number = await self._number_to_address()
        return await control.steer(self._journal, self._session, prompt, run=number, by=by, key=key)

    async def cancel(self, reason: str = "cancelled", *, by: str = "") -> ControlReceipt | None:
        """End the run, wherever it is driven. Returns None if this agent drives it itself."""
        driver = self._find_driver()
        if driver is not None:
            driver.cancel(reason)
            return None
        number = await self._number_to_address()
        return await control.cancel(self._journal, self._session, reason, run=number, by=by)

    async def pause(self, reason: str = "", *, by: str = "") -> ControlReceipt:
        """Stop the run before its next request, until somebody resumes it."""
        number = await self._number_to_address()
        return await control.pause(self._journal, self._session, reason, run=number, by=by)

    async def resume(self, *, by: str = "") -> ControlReceipt:
        """End the pause of the run. If nobody drives it, it goes on when somebody does."""
        number = await self._number_to_address()
        return await control.resume(self._journal, self._session, run=number, by=by)

    async def raise_limits(self, limits: RaisedLimits, *, by: str = "") -> ControlReceipt:
        """Raise the limits of the run, and of its sub-agents."""
        number = await self._number_to_address()
        return await control.raise_limits(self._journal, self._session, limits, run=number, by=by)

    def release(self, reason: str = "released", grace_s: float = RELEASE_GRACE_S) -> bool:
        """Let go of the run without ending it, if this agent drives it; returns whether it does.

        Calls that run get `grace_s` seconds to finish. Then any process can go on with the run.
        """
        driver = self._find_driver()
        if driver is not None:
            driver.release(reason, grace_s)
        return driver is not None

    def _find_driver(self) -> RunDriver | None:
        launched = self._launched
        if launched is not None and not launched.task.done():
            return launched.driver
        return None

    async def _number_to_address(self) -> int:
        """Return the number of the run. Raises NothingToDo if it has not begun yet."""
        if not self._run:
            async for fact in self._read_facts():
                self._learn(fact)
        if not self._run:
            raise NothingToDo(
                f"the prompt waits in the queue of session {self._session}: its run has not begun"
            )
        return self._run

    async def _read_facts(self) -> AsyncGenerator[Fact]:
        for fact in await self._journal.read(self._session):
            yield fact

    def _learn(self, fact: Fact) -> bool:
        """Return whether a fact begins this run. Raises MailRejected if it refuses its prompt."""
        if isinstance(fact, RunStarted):
            if self._mail and fact.mail == self._mail:
                self._run = fact.run
            return fact.run == self._run
        if isinstance(fact, MailRefused) and fact.lane == "prompts" and fact.mail == self._mail:
            raise MailRejected(f"the prompt was refused: {fact.reason}")
        return False

    async def _find_start(self) -> RunStarted:
        """Return the fact that began the run; waits for it."""
        after = 0
        while True:
            for fact in await self._journal.read(self._session, after):
                after = fact.seq
                if self._learn(fact) and isinstance(fact, RunStarted):
                    return fact
            await wait_for_change(self._journal, self._session, after)

    async def _has_ended_by(self, start: RunStarted, seen: int) -> bool:
        """Return whether the end of the run lies at or before a place."""
        if seen < start.seq:
            return False
        facts = await self._journal.read(self._session, start.seq)
        return any(isinstance(fact, RunEnded) and fact.seq <= seen for fact in facts)

    async def _follow_to_result(self) -> RunResult[Any]:
        """Follow the journal until the run has ended, or waits with nobody who drives it."""
        state = State(self._session)
        while True:
            is_driven = await self._is_driven()
            facts = await self._journal.read(self._session, state.seq)
            for fact in self._runs.mask.mask_foreign(facts):
                state = apply_fact(state, fact)
                self._learn(fact)
                is_own = state.run is not None and state.run.number == self._run
                if is_own and isinstance(fact, RunEnded):
                    return build_result(state, recorded=True)
            is_open = state.run is not None and state.run.number == self._run and state.is_active
            goes_no_further = is_open and (state.is_waiting or state.is_paused)
            if goes_no_further and not is_driven:
                return build_result(state, recorded=True)
            wait_s = LEASE_POLL_S if goes_no_further else control.WAKE_S
            await wait_for_change(self._journal, self._session, state.seq, wait_s)

    async def _is_driven(self) -> bool:
        journal = self._journal
        return isinstance(journal, SessionLeases) and await journal.is_leased(self._session)


@asynccontextmanager
async def stream_handle(handle: RunHandle[OutputT]) -> AsyncGenerator[EventStream[OutputT]]:
    """Show a run that may be driven elsewhere, or begin later, as `Agent.stream` does.

    An error in the block cancels the run. Raises RunFailed on leaving if the run failed.
    """
    cancels: set[asyncio.Task[Any]] = set()

    def cancel(reason: str) -> None:
        cancels.add(asyncio.create_task(handle.cancel(reason)))

    events: EventStream[OutputT] = EventStream(cancel=cancel)

    async def follow() -> RunResult[OutputT]:
        async with aclosing(handle.events()) as followed:
            async for event in followed:
                events.push(event)
                if isinstance(event, RunSuspended):
                    break
        return await handle.result()

    following = asyncio.create_task(follow())
    following.add_done_callback(events.finish)
    try:
        yield events
    except BaseException:
        await asyncio.shield(handle.cancel("the watcher failed"))
        await wait_until_done(following)
        raise
    await following


@asynccontextmanager
async def stream_driver(
    runs: LiveRuns,
    session: str,
    opening: Opening,
    finish: Callable[[RunResult[Any]], RunResult[OutputT]],
) -> AsyncGenerator[EventStream[OutputT]]:
    """Drive a run and show its events. Leaving early waits for it; an error in the block stops it.

    `finish` parses the output of its result. Raises what ends the program, if a tool raised it.
    """

    def cancel(reason: str) -> None:
        driver.cancel(reason)

    events: EventStream[OutputT] = EventStream(cancel=cancel)
    driver = runs.make_driver(session, opening, events.push)

    async def drive() -> RunResult[OutputT]:
        return finish(await runs.drive_until_ended(driver))

    running = asyncio.create_task(drive())
    running.add_done_callback(events.finish)
    try:
        yield events
    except BaseException:
        driver.cancel("the watcher failed")
        await wait_until_done(running)
        raise
    await running
    if driver.program_exit is not None:
        raise driver.program_exit
