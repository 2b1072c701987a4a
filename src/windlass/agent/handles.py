"""Start a run, and hold it: its events, its result and its controls, wherever it is driven.

Invariants: a start returns when it is durable, as a run or as a prompt in the queue, and the same
key never begins a second run. The key is looked up again under the lease, so that this holds across
processes. A handle looks at a run and speaks to it, and is never a part of it: cancelling a caller
that awaits a result cancels nothing, unless the run belongs to that caller (`Agent.run`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic

from typing_extensions import override

from windlass.agent import control
from windlass.agent.control import ControlReceipt, wait_for_change
from windlass.agent.driving import SessionDriver
from windlass.agent.event_stream import EventStream, follow_text
from windlass.agent.openings import (
    RunOpenings,
    RunTask,
    StartRepeated,
)
from windlass.agent.options import OnBusy, PromptInput, RunOptions
from windlass.agent.runs import PAUSED_OUTCOMES, RELEASE_GRACE_S, LaunchedRun, LiveRuns
from windlass.core.errors import (
    ConfigError,
    ForOperator,
    MailRejected,
    NothingToDo,
    RunUnfinished,
    SessionBusy,
    WorkspaceMissing,
)
from windlass.core.events import (
    Event,
    Fact,
    MailRefused,
    PromptWithdrawn,
    RunEnded,
    RunQueued,
    RunStarted,
    RunSuspended,
)
from windlass.core.fold.control import find_start
from windlass.core.fold.run import apply_fact
from windlass.core.limits import RaisedLimits
from windlass.core.mail import PromptMail
from windlass.core.result import OutputT, RunResult, build_result, raise_if_failed
from windlass.core.setup import digest
from windlass.core.state import StartKey, State
from windlass.ports import Watcher
from windlass.runtime.driver import RunDriver
from windlass.runtime.leftover_tasks import wait_until_done
from windlass.runtime.mailbox import queue_first, read_queue

LEASE_POLL_S = 1.0
"""How often to look whether a run that stops is still driven."""
KEY_WAIT_S = 5.0
"""How long to wait for the first record of another process that starts a run with the same key."""
FREE_WAIT_S = 10.0
"""How long to wait for a session to be free once its run was cancelled."""
FREE_POLL_S = 0.02
ACCEPT_WAIT_S = 2.0
"""How long to wait for a driver that has the session of a prompt and no run in it."""


class RunHandle(Generic[OutputT]):
    """A run that was started. It continues whether or not a program holds this."""

    def __init__(
        self,
        runs: LiveRuns,
        session: str,
        parse: Callable[[RunResult[Any]], RunResult[OutputT]],
        *,
        run: int = 0,
        mail: int = 0,
        launched: LaunchedRun | None = None,
    ) -> None:
        """Make a handle of a run by its number, or of a prompt by its number in the queue.

        `parse` adds the parsed output to a result.
        """
        self._runs = runs
        self._journal = runs.world.journal
        self._session = session
        self._parse = parse
        self._run = run
        self._mail = mail
        self._launched = launched
        self._has_begun = False
        self.is_watched = False
        """Whether a watcher of the caller gets all events of the run."""

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
        """The number of the run in its session, from 1; 0 while its prompt waits behind a run."""
        return self._run

    @property
    def prompt_number(self) -> int:
        """The number of its prompt in the queue of the session; 0 if it was not in the queue."""
        return self._mail

    @property
    def is_queued(self) -> bool:
        """Whether the run had not begun when this was last looked at."""
        return self._mail > 0 and not self._has_begun

    async def queue_place(self) -> int:
        """Return how many prompts are to begin before this run has begun, itself included.

        0 once the run has begun.
        """
        if not self._mail:
            return 0
        state = await self._runs.read_state(self._session)
        letters = await read_queue(self._journal, state)
        return sum(letter.number <= self._mail for letter in letters)

    async def events(self, after: int | None = None) -> AsyncGenerator[Event]:
        """Yield the events of the run: recorded ones, then live ones, up to its one end.

        They begin with the first fact of the run, or after the sequence number `after`. A prompt
        that waits behind a run is waited for. The iteration stays with the run when it waits for a
        person, is paused, or changes its driver, and stops only with RunEnded.
        """
        start = await self._find_start()
        seen = max(after or 0, start - 1)
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
        """Wait until the run has ended or stops, and return what it did.

        A run stops for now if it waits for a person, is paused, or was released by this
        agent. Raises RunFailed if the run failed, and MailRejected if its prompt was refused.
        """
        return raise_if_failed(await self.wait(is_tied=False))

    async def wait(self, *, is_tied: bool) -> RunResult[OutputT]:
        """Return the result of the run, even if it failed, once it stops.

        `is_tied` is for a caller that the run belongs to: if the caller is cancelled, the run is
        cancelled, and has ended if this agent drives it.
        """
        launched = self._launched
        if launched is not None and launched.task.get_loop() is asyncio.get_running_loop():
            # A run that was paused before may have been resumed since: then the journal decides.
            is_old = not is_tied and launched.task.done()
            result = await launched.wait(is_tied=is_tied)
            if result.outcome not in PAUSED_OUTCOMES or not is_old:
                await self._runs.wait_for_undo(self._session)
                return self._parse(result)
        try:
            return self._parse(await self._follow_to_result())
        except asyncio.CancelledError:
            if is_tied:
                await self._cancel_elsewhere("the caller was cancelled")
            raise

    @asynccontextmanager
    async def stream_into(self, events: EventStream[OutputT]) -> AsyncGenerator[None]:
        """Bring the events to a stream, unless it watches the run already, and its result.

        The block is tied to the run: an error in it cancels the run. Raises RunFailed on leaving
        if the run failed.
        """
        events.on_cancel = self._request_cancel
        following: asyncio.Task[RunResult[OutputT]] | None = None
        launched = self._launched
        if launched is not None and self.is_watched:
            launched.task.add_done_callback(partial(self._close_stream, events))
        else:
            following = asyncio.create_task(self._push_events(events))
        try:
            yield
        except BaseException:
            if launched is not None:
                await launched.stop("the watcher failed")
            else:
                await self._cancel_elsewhere("the watcher failed")
            if following is not None:
                await wait_until_done(following)
            raise
        raise_if_failed(await (self.wait(is_tied=True) if following is None else following))

    async def _push_events(self, events: EventStream[OutputT]) -> RunResult[OutputT]:
        """Push the events of a run that began elsewhere, up to its end or a question."""
        try:
            async with aclosing(self.events()) as followed:
                async for event in followed:
                    events.push(event)
                    if isinstance(event, RunSuspended):
                        break
            result = await self.wait(is_tied=False)
            events.close(result)
            return result
        finally:
            events.close()

    def _close_stream(
        self, events: EventStream[OutputT], task: "asyncio.Task[RunResult[Any]]"
    ) -> None:
        has_result = not task.cancelled() and task.exception() is None
        events.close(self._parse(task.result()) if has_result else None)

    def _request_cancel(self, reason: str) -> None:
        driver = self._find_driver()
        if driver is not None:
            driver.cancel(reason)
        elif self._launched is None:
            self._runs.start_task(self._cancel_elsewhere(reason))

    async def _cancel_elsewhere(self, reason: str) -> None:
        """Cancel a run that another driver has. A prompt behind a run stays in the queue."""
        with suppress(NothingToDo):
            await asyncio.shield(self.cancel(reason))

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
        """Stop the run before its next request, until it is resumed."""
        number = await self._number_to_address()
        return await control.pause(self._journal, self._session, reason, run=number, by=by)

    async def resume(self, *, by: str = "") -> ControlReceipt:
        """End the pause of the run. A run without a driver waits for the next one."""
        number = await self._number_to_address()
        return await control.resume(self._journal, self._session, run=number, by=by)

    async def raise_limits(self, limits: RaisedLimits, *, by: str = "") -> ControlReceipt:
        """Raise the limits of the run, and of its sub-agents."""
        number = await self._number_to_address()
        return await control.raise_limits(self._journal, self._session, limits, run=number, by=by)

    def release(self, reason: str = "released", grace_s: float = RELEASE_GRACE_S) -> bool:
        """Release the run without ending it, if this agent drives it; returns whether it does.

        Calls that run get `grace_s` seconds to finish. Then any process can resume the run.
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

    async def look(self) -> None:
        """Learn from the journal whether the prompt is a run by now, and whether that has begun."""
        with suppress(MailRejected):
            for fact in await self._journal.read(self._session):
                self._learn(fact)

    async def _number_to_address(self) -> int:
        """Return the number of the run. Raises NothingToDo while its prompt is behind a run."""
        if not self._run:
            for fact in await self._journal.read(self._session):
                self._learn(fact)
        if not self._run:
            raise NothingToDo(
                f"prompt {self._mail} waits in the queue of session {self._session}, behind "
                "another run: wait until that one has ended, or withdraw the prompt"
            )
        return self._run

    def _learn(self, fact: Fact) -> bool:
        """Return whether a fact begins this run. Raises MailRejected if it refuses its prompt."""
        if isinstance(fact, RunStarted | RunQueued):
            if self._mail and fact.mail == self._mail:
                self._run = fact.run
            is_own = fact.run == self._run
            self._has_begun = self._has_begun or (is_own and isinstance(fact, RunStarted))
            return is_own
        if isinstance(fact, PromptWithdrawn) and fact.prompt == self._mail:
            raise MailRejected("the prompt was withdrawn")
        if isinstance(fact, MailRefused) and fact.lane == "prompts" and fact.mail == self._mail:
            raise MailRejected(f"the prompt was refused: {fact.reason}")
        return False

    async def _find_start(self) -> int:
        """Return the number of the first fact of the run; waits for it."""
        after = 0
        while True:
            for fact in await self._journal.read(self._session, after):
                after = fact.seq
                if self._learn(fact):
                    return after
            await wait_for_change(self._journal, self._session, after)

    async def _has_ended_by(self, start: int, seen: int) -> bool:
        """Return whether the end of the run lies at or before a place."""
        if seen < start:
            return False
        facts = await self._journal.read(self._session, start)
        return any(isinstance(fact, RunEnded) and fact.seq <= seen for fact in facts)

    async def _follow_to_result(self) -> RunResult[Any]:
        """Follow the journal until the run has ended, or waits without a driver."""
        state = State(self._session)
        while True:
            is_driven = await self._runs.is_driven(self._session)
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


class RunStarter(Generic[OutputT]):
    """Starts the runs of one agent."""

    def __init__(
        self,
        runs: LiveRuns,
        openings: RunOpenings,
        sessions: SessionDriver,
        parse: Callable[[RunResult[Any]], RunResult[OutputT]],
    ) -> None:
        self._runs = runs
        self._journal = runs.world.journal
        self._openings = openings
        self._sessions = sessions
        self._parse = parse

    async def start(
        self,
        prompt: PromptInput,
        session: str | None,
        options: RunOptions,
        watcher: Watcher | None = None,
        *,
        is_tied: bool = False,
    ) -> RunHandle[OutputT]:
        """Start a run, or find the one that the key began. Returns once it is durable.

        `watcher` gets the events if the run begins here. With `is_tied` the run belongs to the
        caller: it ends if the caller is cancelled, and this agent begins no other prompt of the
        queue after it. Raises SessionBusy, RunUnfinished or MailboxFull if the session is busy, as
        `on_busy` says, and ConfigError if the key was used for another prompt.
        """
        name, task = self._openings.plan_run(prompt, session, options)
        if session is None and not task.key:
            self._runs.note_new(name)
        on_busy = options.get("on_busy") or "refuse"
        if not options.get("drive", True):
            return await self._leave_to_others(name, task, on_busy)
        try:
            return await self._start_here(task, name, on_busy, watcher, is_tied=is_tied)
        except WorkspaceMissing:
            if is_tied:
                raise
            # Another process has the folder. If none does, a worker pauses the run.
            return await self._leave_to_others(name, task, on_busy)

    async def _start_here(
        self,
        task: RunTask,
        session: str,
        on_busy: OnBusy,
        watcher: Watcher | None,
        *,
        is_tied: bool,
    ) -> RunHandle[OutputT]:
        while True:
            if task.key:
                found = await self._find_started(session, task)
                if found is not None:
                    return found
            if on_busy == "queue" and await self._sessions.has_queue(session):
                return await self._queue_here(session, task)
            try:
                launched = await self._runs.begin(
                    session,
                    partial(self._openings.open_new, task=task),
                    watcher,
                    is_tied=is_tied,
                    waits_for_writer=on_busy == "refuse" and not task.key,
                    on_ended=None if is_tied else self._sessions.continue_queue,
                )
            except StartRepeated:
                continue
            except (SessionBusy, RunUnfinished):
                if task.key and await self._wait_for_key(session, task.key):
                    continue
                if on_busy == "refuse":
                    raise
                handle = await self._on_busy(session, task, on_busy)
                if handle is not None:
                    return handle
            else:
                handle = self._make_handle(session, run=launched.number, launched=launched)
                handle.is_watched = watcher is not None
                return handle

    async def _leave_to_others(
        self, session: str, task: RunTask, on_busy: OnBusy
    ) -> RunHandle[OutputT]:
        """Put a prompt into the queue of its session, and leave it to the driver of the session.

        Returns the run that the key began, or its prompt in the queue, if there is one.
        """
        state = await self._runs.read_state(session)
        if task.key:
            start = find_start(state, task.key)
            if start is not None:
                self._check_same_prompt(session, start, task)
                return self._handle_of_start(state, start)
            found = await self._find_queued(session, state, task)
            if found is not None:
                return found
        if state.is_active and on_busy == "refuse":
            raise RunUnfinished(
                f"the last run of session {session} has not ended: resume, answer or abandon it "
                'first, or pass on_busy="queue"'
            )
        if state.is_active and on_busy != "queue":
            handle = await self._on_busy(session, task, on_busy)
            if handle is not None:
                return handle
        return await self._queue(session, task)

    async def _find_started(self, session: str, task: RunTask) -> RunHandle[OutputT] | None:
        """Return the run that this key began, or its prompt in the queue; None without either."""
        state = await self._runs.read_state(session)
        start = find_start(state, task.key)
        if start is None:
            return self._continue_queue(await self._find_queued(session, state, task))
        self._check_same_prompt(session, start, task)
        if state.is_queued:
            return self._continue_queue(self._handle_of_start(state, start))
        live = self._runs.find_live(session)
        if live is None and state.is_active and state.run and state.run.number == start.run:
            # Its process may have died: then the caller again drives it.
            return await self._take_over(session, state)
        return self._make_handle(session, run=start.run)

    def _handle_of_start(self, state: State, start: StartKey) -> RunHandle[OutputT]:
        is_queued = state.run is not None and state.run.number == start.run
        mail = state.run.queued_mail if state.run is not None and is_queued else 0
        return self._make_handle(state.session, run=start.run, mail=mail)

    async def _take_over(self, session: str, state: State) -> RunHandle[OutputT]:
        run = state.run.number if state.run else 0
        if state.is_waiting or state.is_paused:
            return self._make_handle(session, run=run)
        with suppress(SessionBusy, NothingToDo):  # It is driven, or it has ended meanwhile.
            opening = partial(self._openings.open_resumed, consent=False)
            launched = await self._runs.begin(
                session, opening, on_ended=self._sessions.continue_queue
            )
            return self._make_handle(session, run=run, launched=launched)
        return self._make_handle(session, run=run)

    async def _find_queued(
        self, session: str, state: State, task: RunTask
    ) -> RunHandle[OutputT] | None:
        for letter in await self._journal.read_mail(session, "prompts", state.prompts_taken):
            if letter.key == task.key and isinstance(letter.message, PromptMail):
                start = StartKey(task.key, 0, digest(letter.message.prompt))
                self._check_same_prompt(session, start, task)
                return self._make_handle(session, mail=letter.number)
        return None

    def _continue_queue(self, handle: RunHandle[OutputT] | None) -> RunHandle[OutputT] | None:
        """Begin the queue that a handle's prompt waits in: no other process may come to do it."""
        if handle is not None:
            self._sessions.continue_queue(handle.session)
        return handle

    def _check_same_prompt(self, session: str, start: StartKey, task: RunTask) -> None:
        if start.digest != digest(self._mask_prompt(task).prompt):
            raise ConfigError(
                f"key={task.key!r}: session {session} has a run with this key and another prompt. "
                "Use one key for one start."
            )

    def _mask_prompt(self, task: RunTask) -> RunStarted:
        """Return the prompt as the journal would hold it."""
        fact = RunStarted(
            1, task.prompt, None, task.caller, dict(task.context), earlier=task.earlier
        )
        masked = self._runs.mask.mask_fact(fact)
        return masked if isinstance(masked, RunStarted) else fact

    async def _wait_for_key(self, session: str, key: str) -> bool:
        """Wait for another process that begins a run here. Returns whether to look again.

        It holds the session before its first record is there.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(KEY_WAIT_S):
                while True:
                    state = await self._runs.read_state(session)
                    if find_start(state, key) is not None:
                        return True
                    if state.is_active or not await self._runs.is_driven(session):
                        return not state.is_active
                    await wait_for_change(self._journal, session, state.seq, wait_s=0.2)
        return False

    async def _on_busy(
        self, session: str, task: RunTask, on_busy: OnBusy
    ) -> RunHandle[OutputT] | None:
        """Do what the caller chose for a busy session. Returns None if it may be free now."""
        if on_busy == "queue":
            return await self._queue_here(session, task)
        if on_busy == "steer":
            return await self._steer(session, task)
        await self._end_open_run(session)
        return None

    async def _queue_here(self, session: str, task: RunTask) -> RunHandle[OutputT]:
        handle = await self._queue(session, task)
        # The run before may have ended by now, and no other driver may come to begin this one.
        self._sessions.continue_queue(session)
        return handle

    async def _queue(self, session: str, task: RunTask) -> RunHandle[OutputT]:
        """Accept a run that this process does not drive now. No other code accepts one."""
        if task.earlier and await self._is_known(session):
            raise ConfigError(
                f"messages=…: session {session} already has a conversation. Leave "
                "`messages` out to go on with it, or leave `session` out to begin a new one."
            )
        masked = self._mask_prompt(task)
        message = PromptMail(
            prompt=masked.prompt,
            key=task.key,
            caller=masked.caller,
            context=masked.context,
            pinned=task.pinned,
            labels=task.labels,
            trace=task.trace,
            agent=self._runs.world.agent,
            earlier=masked.earlier,
            budgets=task.budgets,
            own_folder=task.own_folder,
            on_partial=task.on_partial,
        )
        receipt = await self._journal.post_mail(session, message, by=task.caller, key=task.key)
        await self._let_exist(session, receipt.number)
        handle = self._make_handle(session, mail=receipt.number)
        await handle.look()
        return handle

    async def _let_exist(self, session: str, number: int) -> None:
        """Make a prompt a run that waits for a driver, unless it waits behind another run.

        The append that ends that run makes it one.
        """
        letters = await self._journal.read_mail(session, "prompts")

        def queue(state: State) -> Sequence[Fact]:
            is_free = not state.is_active and not (state.run and state.run.undo_due)
            return queue_first(self._journal, state, letters) if is_free else ()

        with suppress(TimeoutError):
            async with asyncio.timeout(ACCEPT_WAIT_S):
                while True:
                    with suppress(SessionBusy):
                        return await self._runs.write_facts(session, queue)
                    state = await self._runs.read_state(session)
                    if state.is_active or state.prompts_taken >= number:
                        return None
                    # A driver has the session, and writes or frees it next.
                    await wait_for_change(self._journal, session, state.seq, FREE_POLL_S)

    async def _is_known(self, session: str) -> bool:
        """Return whether a session has a run, or is to have one."""
        if await self._journal.read(session):
            return True
        return bool(await self._journal.read_mail(session, "prompts"))

    async def _steer(self, session: str, task: RunTask) -> RunHandle[OutputT] | None:
        state = await self._runs.read_state(session)
        if state.run is None or not state.takes_steering:
            await wait_for_change(self._journal, session, state.seq, wait_s=0.2)
            return None
        number = state.run.number
        try:
            await control.steer(
                self._journal, session, task.prompt, run=number, by=task.caller, key=task.key
            )
        except ForOperator:
            if (await self._runs.read_state(session)).takes_steering:
                raise
            return None
        return self._make_handle(session, run=number)

    async def _end_open_run(self, session: str) -> None:
        """Cancel the open run of a session, and wait until the session is free."""
        reason = "replaced by another prompt"
        driver = self._runs.find_live(session)
        async with asyncio.timeout(FREE_WAIT_S):
            if driver is not None:
                driver.cancel(reason)
            else:
                state = await self._runs.read_state(session)
                if state.is_active and state.run is not None:
                    run = state.run.number
                    receipt = await control.cancel(self._journal, session, reason, run=run)
                    await receipt.taken()
            if driver is not None and driver.event_loop is asyncio.get_running_loop():
                await driver.finished.wait()
            # A lease is freed a moment after the end, and no event reports it.
            while await self._runs.is_driven(session):  # noqa: ASYNC110
                await asyncio.sleep(FREE_POLL_S)

    def _make_handle(
        self, session: str, *, run: int = 0, mail: int = 0, launched: LaunchedRun | None = None
    ) -> RunHandle[OutputT]:
        return RunHandle(self._runs, session, self._parse, run=run, mail=mail, launched=launched)
