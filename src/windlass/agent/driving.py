"""Drive whatever a session needs now: an open run, messages that wait, prompts in the queue.

Invariant: any caller may ask for driving, any number of times. The lease decides who drives, and
the facts say what is to be done, so that a second call finds nothing left to do.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from windlass.agent.child_sessions import plan_nested_undo
from windlass.agent.control import resume, wait_for_change
from windlass.agent.openings import RunOpenings, RunTask
from windlass.agent.runs import RELEASE_GRACE_S, LiveRuns
from windlass.core.decide.undoing import plan_undo
from windlass.core.driver_needs import find_expiry, needs_driver
from windlass.core.errors import ForOperator, NothingToDo, RunUnfinished, SessionBusy
from windlass.core.events import Event, Fact, RunPaused, RunReleased, RunSuspended
from windlass.core.fold.run import fold
from windlass.core.limits import Limits
from windlass.core.mail import Letter, PromptMail
from windlass.core.result import RunResult, build_result
from windlass.core.state import State
from windlass.logs import get_logger
from windlass.ports import Watcher
from windlass.runtime.driver import Opening
from windlass.runtime.mailbox import find_prompt_problem, read_queue, refuse_letter

_log = get_logger(__name__)
BUSY_POLL_S = 1.0
"""How often to look whether a busy session with prompts in its queue is free."""


class SessionDriver:
    """Drives sessions with the runs and the setup of one agent."""

    def __init__(self, runs: LiveRuns, openings: RunOpenings) -> None:
        self._runs = runs
        self._journal = runs.world.journal
        self._agent = runs.world.agent
        self._openings = openings
        self._is_closed = False
        runs.on_undo_due = self._undo_last

    def close(self) -> None:
        """Begin nothing more from the queues."""
        self._is_closed = True

    async def drive(
        self,
        session: str,
        *,
        consent: bool = False,
        watcher: Watcher | None = None,
        leaves_waiting: bool = False,
    ) -> RunResult[Any] | None:
        """Do what the session needs now, run after run. Returns the result of its last run.

        `leaves_waiting`: release a run that waits for a shared budget instead of waiting with it.

        Returns when nothing is left to do, and None if the session has no run. Raises SessionBusy
        if another process drives it, SetupDrifted without consent, NothingToDo if it is unknown.
        """
        if watcher is None:
            return await self._drive(session, None, consent, leaves_waiting)
        held = _SuspensionHold(watcher)
        try:
            return await self._drive(session, held.watch, consent, leaves_waiting)
        finally:
            held.release()

    async def _drive(
        self,
        session: str,
        watcher: Watcher | None,
        consent: bool,  # noqa: FBT001 - as `drive` says
        leaves_waiting: bool,  # noqa: FBT001 - as `drive` says
    ) -> RunResult[Any] | None:
        while True:
            state = await self._runs.read_state(session)
            control = await self.read_letters(state, "control")
            queue = await self.read_letters(state, "prompts")
            if not state.seq and not queue:
                raise await self._runs.unknown_session(session)
            prompts = self._own_prompts(queue)
            if self._is_closed or not self._needs_driver(state, control, prompts):
                return build_result(state, recorded=True) if state.run is not None else None
            is_undo_due = state.run is not None and state.run.undo_due
            if not state.is_active and not prompts and not is_undo_due:
                await self._refuse(session, control, lambda _state, _letter: "the run has ended")
                continue
            if is_undo_due:
                opening: Opening = await self.plan_undo(session)
            elif state.is_active and not state.is_queued:
                opening = partial(self._openings.open_resumed, consent=consent)
            elif await self._refuse_first(session, prompts):
                continue
            else:
                opening = partial(self._open_queued, letter=prompts[0])
            try:
                result = await self._drive_once(session, opening, watcher, leaves_waiting)
            except (NothingToDo, RunUnfinished):
                # Another driver came first and is gone again: look at what is left to do.
                if (await self._runs.read_state(session)).seq == state.seq:
                    raise
                continue
            await self._remove_taken(session)
            # A run whose end is not on record is open: it would fail in the same way again.
            if result.outcome == "released" or not result.recorded:
                return result

    async def plan_undo(
        self, session: str, run: int | None = None, caller: str = "", limits: Limits | None = None
    ) -> Opening:
        """Return what opens the run that undoes an earlier run, by default the last one.

        Raises NothingToDo if there is nothing to undo, or no such session.
        """
        facts = await self._journal.read(session)
        if not facts:
            raise await self._runs.unknown_session(session)
        state = fold(session, facts)
        tools = self._openings.setup.tools
        nested = await plan_nested_undo(self._journal, state, tools)
        plan = plan_undo(state, facts, tools, run, nested)
        return partial(
            self._openings.open_undo, plan=plan, seq=state.seq, caller=caller, limits=limits
        )

    async def is_undo_due(self, session: str) -> bool:
        """Return whether the last run of a session has to be undone."""
        run = (await self._runs.read_state(session)).run
        return run is not None and run.undo_due

    async def unpause_queued(self, session: str) -> bool:
        """Return whether a run waits for its first driver, and end its pause if it has one."""
        state = await self._runs.read_state(session)
        if state.is_queued and state.is_paused:
            await resume(self._journal, session)
        return state.is_queued

    async def _undo_last(self, session: str) -> None:
        """Undo what a run did that has just ended, unless the agent is closed."""
        try:
            await self.drive(session)
        except ForOperator as error:
            # It is on record that it is due: the next driver of the session does it.
            _log.warning("session %s: its last run is not undone yet: %s", session, error)

    async def has_work(self, state: State) -> bool:
        """Return whether a session needs a driver now."""
        control = await self.read_letters(state, "control")
        prompts = self._own_prompts(await self.read_letters(state, "prompts"))
        return self._needs_driver(state, control, prompts)

    async def is_named_next(self, state: State) -> bool:
        """Return whether the first prompt of the queue is for this agent by name."""
        for letter in await self.read_letters(state, "prompts"):
            message = letter.message
            return isinstance(message, PromptMail) and message.agent == self._agent
        return False

    def _own_prompts(self, queue: Sequence[Letter]) -> Sequence[Letter]:
        """Return the queue, or nothing while its first prompt is for another agent.

        Prompts begin in order, so the rest waits until that agent has begun it.
        """
        for letter in queue:
            message = letter.message
            is_own = not isinstance(message, PromptMail) or message.agent in ("", self._agent)
            return queue if is_own else ()
        return ()

    def _needs_driver(
        self, state: State, control: Sequence[Letter], prompts: Sequence[Letter]
    ) -> bool:
        """Return whether there is something to do; a question that has expired must be denied."""
        has_control_mail = bool(control)
        has_prompts = bool(prompts)
        now = self._runs.world.clock.now()
        if needs_driver(state, has_control_mail=has_control_mail, has_prompts=has_prompts, now=now):
            return True
        expiry = find_expiry(state) if state.is_waiting else None
        return expiry is not None and expiry < now

    async def has_queue(self, session: str) -> bool:
        """Return whether prompts wait in the queue of a session."""
        if not await self._journal.read_mail(session, "prompts"):
            return False
        # A prompt that has become a run stays in the mailbox for a moment.
        return bool(await self.read_letters(await self._runs.read_state(session), "prompts"))

    def continue_queue(self, session: str) -> None:
        """Begin the prompts of a session in the background, as soon as it is free."""
        if not self._is_closed:
            self._runs.start_task(self._continue_queue(session))

    async def _continue_queue(self, session: str) -> None:
        try:
            while not self._is_closed and await self.has_queue(session):
                try:
                    await self.drive(session)
                except SessionBusy:
                    # Its driver begins the next prompt, unless it dies or only has this one run.
                    state = await self._runs.read_state(session)
                    await wait_for_change(self._journal, session, state.seq, BUSY_POLL_S)
                else:
                    return
        except ForOperator as error:
            _log.warning("session %s: its queue waits: %s", session, error)

    async def _drive_once(
        self,
        session: str,
        opening: Opening,
        watcher: Watcher | None,
        leaves_waiting: bool,  # noqa: FBT001 - as `drive` says
    ) -> RunResult[Any]:
        driver = self._runs.make_driver(session, opening, watcher, leaves_waiting=leaves_waiting)
        launched = self._runs.launch(driver)
        try:
            return await launched.wait(is_tied=False)
        except asyncio.CancelledError:
            # The run is not cancelled: any process can resume it.
            launched.driver.release("its driver was cancelled", RELEASE_GRACE_S)
            await asyncio.wait({launched.task})
            raise

    async def read_letters(self, state: State, lane: str) -> Sequence[Letter]:
        """Return the messages of a lane that no fact carries yet."""
        journal = self._journal
        if state.is_queued and lane == "prompts":
            return await read_queue(journal, state)
        if lane == "prompts":
            return await journal.read_mail(state.session, "prompts", state.prompts_taken)
        return await journal.read_mail(state.session, "control", state.mail_taken)

    def require_folder(self, state: State) -> None:
        """Raise WorkspaceMissing if this process does not have the folder of a session."""
        self._openings.require_folder(state)

    async def begin_paused(self, session: str, reason: str, by: str) -> None:
        """Begin the run of the first prompt in the queue, if there is one, and pause it at once."""
        state = await self._runs.read_state(session)
        prompts = self._own_prompts(await self.read_letters(state, "prompts"))
        if not prompts or await self._refuse_first(session, prompts):
            return

        def begin(state: State) -> Sequence[Fact]:
            started = self._open_queued(state, prompts[0], needs_folder=False)
            return (*started, RunPaused(reason, by), RunReleased("parked"))

        await self._runs.write_facts(session, begin)
        await self._remove_taken(session)

    def _open_queued(
        self, state: State, letter: Letter, *, needs_folder: bool = True
    ) -> Sequence[Fact]:
        """Begin the run of a prompt from the queue."""
        message = letter.message
        if not isinstance(message, PromptMail) or _is_taken(state, letter):
            raise RunUnfinished(f"another driver of session {state.session} took the prompt first")
        task = RunTask(
            prompt=message.prompt,
            caller=message.caller,
            context=message.context,
            pinned=message.pinned,
            labels=message.labels,
            key=message.key,
            trace=message.trace,
            earlier=message.earlier,
            budgets=message.budgets,
            own_folder=message.own_folder,
            mail=letter.number,
            on_partial=message.on_partial,
        )
        return self._openings.open_new(state, task, needs_folder=needs_folder)

    async def _refuse_first(self, session: str, prompts: Sequence[Letter]) -> bool:
        """Refuse the first prompt of the queue if it must begin no run; return whether it was."""
        state = await self._runs.read_state(session)
        find_problem = partial(find_prompt_problem, self._journal)
        if find_problem(state, prompts[0]) is None:
            return False
        await self._refuse(session, prompts[:1], find_problem)
        return True

    async def refuse_queue(self, session: str, reason: str) -> None:
        """Refuse the prompts that wait in the queue of a session now.

        Raises SessionBusy if another process drives it.
        """
        letters = await self.read_letters(await self._runs.read_state(session), "prompts")
        if letters:
            await self._refuse(session, letters, lambda _state, _letter: reason)

    async def _refuse(
        self,
        session: str,
        letters: Sequence[Letter],
        find_problem: Callable[[State, Letter], str | None],
    ) -> None:
        """Refuse the messages that no driver has taken meanwhile and that have a problem."""

        def refuse(state: State) -> Sequence[Fact]:
            waiting = [letter for letter in letters if not _is_taken(state, letter)]
            problems = [(letter, find_problem(state, letter)) for letter in waiting]
            return tuple(refuse_letter(letter, why) for letter, why in problems if why is not None)

        await self._runs.write_facts(session, refuse)
        await self._remove_taken(session)

    async def _remove_taken(self, session: str) -> None:
        state = await self._runs.read_state(session)
        await self._journal.remove_mail(session, "prompts", state.prompts_taken)
        await self._journal.remove_mail(session, "control", state.mail_taken)


class _SuspensionHold:
    """Shows a watcher that a run waits only once it is known that no message continues it.

    If a message arrives while the driver releases a run, the run is driven again at once. No event
    may follow the one that announces the wait.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._held: RunSuspended | None = None

    def watch(self, event: Event) -> None:
        if isinstance(event, RunSuspended):
            self._held = event
            return
        self._held = None
        self._watcher(event)

    def release(self) -> None:
        if self._held is None:
            return
        try:
            self._watcher(self._held)
        except Exception:  # noqa: BLE001 - as in a run: a watcher changes no result
            _log.exception("a watcher failed")


def _is_taken(state: State, letter: Letter) -> bool:
    """Return whether a fact carries a message already."""
    taken = state.prompts_taken if letter.lane == "prompts" else state.mail_taken
    return letter.number <= taken
