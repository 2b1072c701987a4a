"""Starting runs: once per key, and in a session that may be busy.

The law: a start returns when it is durable, as a run or as a prompt in the queue, and the same key
never begins a second run. The key is looked up again under the lease, so that this holds across
processes.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic

from windlass.agent import control
from windlass.agent.control import require_mailbox, wait_for_change
from windlass.agent.driving import SessionDriver
from windlass.agent.handles import LaunchedRun, RunHandle
from windlass.agent.openings import RunOpenings, RunTask, StartRepeated, find_start
from windlass.agent.options import OnBusy, RunOptions, check_on_busy
from windlass.agent.runs import LiveRuns
from windlass.core.errors import (
    ConfigError,
    ForOperator,
    RunUnfinished,
    SessionBusy,
    WorkspaceMissing,
)
from windlass.core.events import Event, RunStarted
from windlass.core.mail import PromptMail
from windlass.core.result import OutputT, RunResult
from windlass.core.setup import digest
from windlass.core.state import StartKey, State
from windlass.ports import Journal, Mailbox, SessionLeases, Watcher
from windlass.runtime.driver import Opening

KEY_WAIT_S = 5.0
"""How long to wait for the first record of another process that starts a run with the same key."""
FREE_WAIT_S = 10.0
"""How long to wait for a session to be free once its run was cancelled."""
FREE_POLL_S = 0.02


class RunStarter(Generic[OutputT]):
    """Starts the runs of one agent."""

    def __init__(
        self,
        runs: LiveRuns,
        openings: RunOpenings,
        sessions: SessionDriver,
        finish: Callable[[RunResult[Any]], RunResult[OutputT]],
    ) -> None:
        self._runs = runs
        self._openings = openings
        self._sessions = sessions
        self._finish = finish

    @property
    def _journal(self) -> Journal:
        return self._runs.world.journal

    async def start(
        self, task: RunTask, session: str, options: RunOptions, watcher: Watcher | None = None
    ) -> RunHandle[OutputT]:
        """Start a run, or find the one that the key began. Returns once it is durable.

        `watcher` gets the events if the run begins here. Raises SessionBusy, RunUnfinished or
        MailboxFull if the session is busy, as `on_busy` says, and ConfigError if the key was used
        for another prompt.
        """
        on_busy = check_on_busy(options)
        if not options.get("drive", True):
            return await self._leave_to_others(session, task, on_busy)
        try:
            return await self._start_here(task, session, on_busy, watcher)
        except WorkspaceMissing:
            if not isinstance(self._journal, Mailbox):
                raise
            # Another process has the folder. If none does, a worker pauses the run.
            return await self._leave_to_others(session, task, on_busy)

    async def _start_here(
        self, task: RunTask, session: str, on_busy: OnBusy, watcher: Watcher | None
    ) -> RunHandle[OutputT]:
        while True:
            if task.key:
                found = await self._find_started(session, task)
                if found is not None:
                    return found
            if on_busy == "queue" and await self._sessions.has_queue(session):
                return await self._queue_here(session, task)
            try:
                return await self._launch(session, task, watcher)
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

    async def _leave_to_others(
        self, session: str, task: RunTask, on_busy: OnBusy
    ) -> RunHandle[OutputT]:
        """Put a prompt into the queue of its session, and leave it to whoever drives that.

        Returns the run that the key began, or its prompt in the queue, if there is one.
        """
        state = await self._runs.read_state(session)
        if task.key:
            start = find_start(state, task.key)
            if start is not None:
                self._check_same_prompt(session, start, task)
                return self._make_handle(session, run=start.run)
            found = await self._find_queued(session, state, task)
            if found is not None:
                return found
        if state.is_active and on_busy == "refuse":
            raise RunUnfinished(
                f"the last run of session {session} has not ended: resume, answer or abandon it "
                'first, or give on_busy="queue"'
            )
        if state.is_active and on_busy != "queue":
            handle = await self._on_busy(session, task, on_busy)
            if handle is not None:
                return handle
        return await self._queue(session, task)

    async def _launch(
        self, session: str, task: RunTask, watcher: Watcher | None
    ) -> RunHandle[OutputT]:
        opening = partial(self._openings.open_new, task=task)
        launched = await self._open(session, opening, watcher)
        run = launched.opened.run if isinstance(launched.opened, RunStarted) else 0
        return self._make_handle(session, run=run, launched=launched)

    async def _open(
        self, session: str, opening: Opening, watcher: Watcher | None = None
    ) -> LaunchedRun:
        """Begin to drive a session. Returns once the first fact is durable; raises if none was."""
        opened: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        driver = self._runs.make_driver(session, opening, watcher, opened.set_result)
        task = self._runs.launch(driver, self._sessions.continue_queue)
        await asyncio.wait({opened, task}, return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            opened.cancel()
            task.result()
            return LaunchedRun(driver, task)
        return LaunchedRun(driver, task, opened.result())

    async def _find_started(self, session: str, task: RunTask) -> RunHandle[OutputT] | None:
        """Return the run that this key began, or its prompt in the queue; None if there is none."""
        state = await self._runs.read_state(session)
        start = find_start(state, task.key)
        if start is None:
            return self._continue_queue(await self._find_queued(session, state, task))
        self._check_same_prompt(session, start, task)
        live = self._runs.find_live(session)
        if live is None and state.is_active and state.run and state.run.number == start.run:
            # Its process may have died: then the one who asks again drives it.
            return await self._take_over(session, state)
        return self._make_handle(session, run=start.run)

    async def _take_over(self, session: str, state: State) -> RunHandle[OutputT]:
        run = state.run.number if state.run else 0
        if state.is_waiting or state.is_paused:
            return self._make_handle(session, run=run)
        with suppress(SessionBusy):
            opening = partial(self._openings.open_resumed, consent=False)
            launched = await self._open(session, opening)
            return self._make_handle(session, run=run, launched=launched)
        return self._make_handle(session, run=run)

    async def _find_queued(
        self, session: str, state: State, task: RunTask
    ) -> RunHandle[OutputT] | None:
        journal = self._journal
        if not isinstance(journal, Mailbox):
            return None
        for letter in await journal.read_mail(session, "prompts", state.prompts_taken):
            if letter.key == task.key and isinstance(letter.message, PromptMail):
                start = StartKey(task.key, 0, digest(letter.message.prompt))
                self._check_same_prompt(session, start, task)
                return self._make_handle(session, mail=letter.number)
        return None

    def _continue_queue(self, handle: RunHandle[OutputT] | None) -> RunHandle[OutputT] | None:
        """Begin the queue that a handle's prompt waits in: nobody else may come to do it."""
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
                    if state.is_active or not await self._is_driven(session):
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
        # The run before may have ended meanwhile, and nobody else may come to begin this one.
        self._sessions.continue_queue(session)
        return handle

    async def _queue(self, session: str, task: RunTask) -> RunHandle[OutputT]:
        if task.earlier and await self._is_known(session):
            raise ConfigError(
                f"messages=…: session {session} has a conversation of its own already. Leave "
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
        mailbox = require_mailbox(self._journal)
        receipt = await mailbox.post_mail(session, message, by=task.caller, key=task.key)
        return self._make_handle(session, mail=receipt.number)

    async def _is_known(self, session: str) -> bool:
        """Return whether a session has a run, or is to have one."""
        if await self._journal.read(session):
            return True
        mailbox = require_mailbox(self._journal)
        return bool(await mailbox.read_mail(session, "prompts"))

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
            # A lease is freed a moment after the end, and nobody tells when.
            while await self._is_driven(session):  # noqa: ASYNC110
                await asyncio.sleep(FREE_POLL_S)

    async def _is_driven(self, session: str) -> bool:
        journal = self._journal
        return isinstance(journal, SessionLeases) and await journal.is_leased(session)

    def _make_handle(
        self, session: str, *, run: int = 0, mail: int = 0, launched: LaunchedRun | None = None
    ) -> RunHandle[OutputT]:
        return RunHandle(self._runs, session, self._finish, run=run, mail=mail, launched=launched)
