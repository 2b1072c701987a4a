"""One session that an editor has open: its turns, its updates, its questions.

Invariant: a turn watches a run and never owns it. It makes sure that the run has a driver, and
ends when the run has ended or stops. When the editor goes away, the run is released.
"""

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Protocol

import msgspec
from acp import RequestError

from windlass.agent.agent import Agent
from windlass.agent.call_previews import preview_call
from windlass.agent.control import cancel, wait_for_change, wait_for_work
from windlass.agent.options import build_mask, parts_of
from windlass.agent.runs import PAUSED_OUTCOMES, RELEASE_GRACE_S
from windlass.core.errors import ModelRetry, NothingToDo, Outcome, SessionBusy, WindlassError
from windlass.core.events import RunEnded
from windlass.core.projection.changes import forget_streamed_text
from windlass.core.projection.project import apply_event, project_events
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.core.verdicts import CallPreview, PersonAnswer
from windlass.logs import get_logger
from windlass.ports import Journal
from windlass.project.agent_session import AgentSession
from windlass.project.agents import ProjectAgent
from windlass.project.journals import ManagedJournal
from windlass.project.launches import launch_context
from windlass.project.settings import PermissionMode
from windlass.server.acp.acp_errors import TurnEnd, convert_error, end_turn
from windlass.server.acp.permissions import PermissionClient, PermissionRequests
from windlass.server.acp.prompts import EditorPrompt
from windlass.server.acp.updates import Update, UpdateEncoder, say_note
from windlass.tools.files.workspace import Workspace

_log = get_logger(__name__)
DIFF_BYTES_MAX = 1_000_000
"""A longer file is not shown beside what would replace it."""
CANCEL_REASON = "cancelled in the editor"
LEASE_POLL_S = 1.0
"""How often to look whether a run that is driven elsewhere still is."""
POSTPONE_GRACE_S = 0.5
"""How long to wait for a cancel after a question was dismissed: it often follows."""


async def wait_for_mail(question: Question) -> PersonAnswer | None:
    """Never answer: the answer comes through the journal, wherever it was given.

    An agent with an approver keeps its run while it waits, and takes the answer from its mailbox. A
    question of a running call is not in the journal, so it could not be answered there.
    """
    if question.is_live:
        return None
    return await asyncio.get_running_loop().create_future()


class AgentTask:
    """An agent that is open in its own task.

    The connections of its MCP servers must be closed by the task that opened them, while the
    editor's requests come in a task each.
    """

    def __init__(self, agent: ProjectAgent, journal: Journal) -> None:
        self._agent = agent
        self._journal = journal
        self._opened: asyncio.Future[AgentSession] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> AgentSession:
        """Return the agent, once it is ready. Raises what building it raises."""
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._hold(self._opened))
        return await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Release the agent's runs, and close all that it opened."""
        self._closing.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _hold(self, opened: "asyncio.Future[AgentSession]") -> None:
        try:
            async with self._agent.open_session(self._journal, wait_for_mail) as session:
                opened.set_result(session)
                await self._closing.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)


class EditorClient(PermissionClient, Protocol):
    """The editor at the other end."""

    async def session_update(self, session_id: str, update: Update) -> None: ...


class EditorSession:
    """A session of the journal that is open in an editor."""

    def __init__(
        self,
        client: EditorClient,
        name: str,
        journal: ManagedJournal,
        agent: ProjectAgent,
        *,
        person: str,
    ) -> None:
        self.name = name
        self.agent = agent
        self._client = client
        self._journal = journal
        self._person = person
        self._task = AgentTask(agent, journal)
        self._workspace = Workspace(agent.folder)
        self._view = Projection(name)
        self._encoder = UpdateEncoder(agent.folder, self._read_text)
        self._turn: asyncio.Task[TurnEnd] | None = None
        self._postponed = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_cancelled = False
        self._has_new_mode = False
        self._background: set[asyncio.Task[Any]] = set()
        self._permissions = PermissionRequests(
            client,
            journal,
            name,
            agent.folder,
            by=person,
            read_text=self._read_text,
            preview=self._preview_question,
            on_postponed=self._postpone,
        )

    async def _preview_question(self, question: Question) -> CallPreview | None:
        parts = parts_of((await self._task.open()).agent)
        return await preview_call(parts, question.tool, question.arguments, question.chain)

    @property
    def is_busy(self) -> bool:
        """Whether a turn is under way."""
        return self._turn is not None and not self._turn.done()

    async def open(self) -> AgentSession:
        """Build the agent. Raises what building it raises."""
        return await self._task.open()

    async def close(self) -> None:
        """Release the run, and close the agent."""
        await self._task.close()
        tasks = {*self._background, *filter(None, [self._turn])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def change_mode(self, mode: PermissionMode) -> None:
        """Use another permission mode from the next run on."""
        settings = msgspec.structs.replace(self.agent.settings, permission_mode=mode)
        self.agent = replace(self.agent, loaded=replace(self.agent.loaded, settings=settings))
        self._has_new_mode = True

    # History.

    @property
    def has_open_run(self) -> bool:
        """Whether the last run has not ended, as far as is known here."""
        return self._view.run is not None and self._view.run.is_open

    async def read_history(self) -> None:
        """Learn what is in the journal. Raises NothingToDo if the session is not there."""
        facts = await self._journal.read(self.name)
        if not facts:
            raise NothingToDo(f"there is no session {self.name!r}")
        self._view = project_events(facts, self.name)

    async def replay(self) -> None:
        """Send the whole session to the editor."""
        await self._send_updates()

    def skip_history(self) -> None:
        """Take all that has happened so far for shown."""
        self._encoder.skip(self._view)

    # Turns.

    async def prompt(self, prompt: EditorPrompt) -> TurnEnd:
        """Run a prompt, or say it to the run that is open, and return when the run has ended.

        Raises RequestError if the run failed, and WindlassError if it cannot begin.
        """
        agent = await self._open_agent()
        self._encoder.expect_prompt(prompt.parts)
        await agent.start(
            prompt.parts,
            session=self.name,
            caller=self._person,
            context=launch_context(self.agent, prompt.typed),
            labels=prompt.labels,
            # A run may be open: it was interrupted, waits, or is driven elsewhere.
            on_busy="steer",
        )
        return await asyncio.shield(self._join_turn(agent))

    async def continue_run(self) -> None:
        """Resume the open run in the background, and show it."""
        turn = self._join_turn(await self._open_agent())
        turn.add_done_callback(self._tell_failure)

    async def cancel(self) -> None:
        """End the run, wherever it is driven."""
        self._is_cancelled = True
        agent = (await self._task.open()).agent
        if agent.cancel(self.name, CANCEL_REASON):
            return
        with suppress(NothingToDo):
            await cancel(self._journal, self.name, CANCEL_REASON, by=self._person)

    async def _open_agent(self) -> Agent[Any]:
        if self._has_new_mode and not self.is_busy:
            self._has_new_mode = False
            await self._task.close()
            self._task = AgentTask(self.agent, self._journal)
        return (await self._task.open()).agent

    def _join_turn(self, agent: Agent[Any]) -> "asyncio.Task[TurnEnd]":
        """Return the turn that is under way, or begin one."""
        if self._turn is None or self._turn.done():
            self._postponed.clear()
            self._ended.clear()
            self._is_cancelled = False
            self._turn = asyncio.create_task(self._run_turn(agent))
        return self._turn

    async def _run_turn(self, agent: Agent[Any]) -> TurnEnd:
        watching = asyncio.create_task(self._watch(agent))
        driving = asyncio.create_task(self._drive(agent))
        postponed = asyncio.create_task(self._postponed.wait())
        tasks = {watching, driving, postponed}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if driving.done() and not watching.done() and driving.result() not in PAUSED_OUTCOMES:
                # The end is on record, and its event on its way.
                await watching
            if watching.done():
                watching.result()
                return end_turn(self._view)
            return await self._finish_open(agent, driving)
        except WindlassError as error:
            raise convert_error(error) from error
        finally:
            await self._permissions.close()
            watching.cancel()
            postponed.cancel()
            await asyncio.wait({watching, postponed})
            self._let_go(driving)

    def _let_go(self, driving: "asyncio.Task[Outcome]") -> None:
        """Do not wait for a driver: a run that has ended may have others in its queue."""
        self._background.add(driving)
        driving.add_done_callback(self._background.discard)
        if self.has_open_run:
            driving.cancel()

    async def _watch(self, agent: Agent[Any]) -> None:
        """Show what happens, until the run has ended."""
        while True:
            # A new watch begins with the text so far, all of it.
            self._view = forget_streamed_text(self._view)
            # The questions of a run without a driver come with no event.
            self._permissions.follow(self._view.questions)
            async with aclosing(agent.watch(self.name, after=self._view.seq)) as events:
                async for event in events:
                    self._view = apply_event(self._view, event)
                    await self._send_updates()
                    self._permissions.follow(self._view.questions)
                    if isinstance(event, RunEnded):
                        self._ended.set()
                        return
            await wait_for_change(self._journal, self.name, self._view.seq)

    async def _drive(self, agent: Agent[Any]) -> Outcome:
        """Make sure that the run has a driver. Returns how it ended, or why it cannot continue.

        A question of the run does not make this return: the answer may come from anywhere.
        """
        while not self._ended.is_set():
            try:
                result = await agent.drive(self.name)
            except SessionBusy:
                # Driven by a run that this agent started, or elsewhere. Its driver may die.
                with suppress(TimeoutError):
                    async with asyncio.timeout(LEASE_POLL_S):
                        await self._ended.wait()
                continue
            if result is not None and result.outcome != "suspended":
                return result.outcome
            await wait_for_work(self._journal, self.name, self._view.seq)
        return "completed"

    async def _send_updates(self) -> None:
        for update in self._encoder.encode(self._view):
            await self._client.session_update(self.name, update)

    # Ends of turns.

    async def _finish_open(self, agent: Agent[Any], driving: "asyncio.Task[Outcome]") -> TurnEnd:
        """Say what a run waits for that stops for now."""
        if not driving.done():
            agent.release(self.name, "its question was left for later")
            await asyncio.wait({driving}, timeout=RELEASE_GRACE_S)
            text = (
                "The run waits for your answer. Write something to be asked again, or answer "
                f"elsewhere: windlass approve {self.name}"
            )
            await self._say(text)
            return TurnEnd("end_turn", "suspended")
        outcome = driving.result()
        pause = self._view.run.pause if self._view.run is not None else None
        reason = f": {pause.reason}" if pause is not None and pause.reason else ""
        await self._say(f"The run is {outcome}{reason}. To go on: windlass resume {self.name}")
        return TurnEnd("end_turn", outcome)

    def _postpone(self) -> None:
        """Leave the open questions for later, unless the person cancels the run."""
        loop = asyncio.get_running_loop()
        loop.call_later(POSTPONE_GRACE_S, self._postpone_now)

    def _postpone_now(self) -> None:
        if not self._is_cancelled:
            self._postponed.set()

    def _tell_failure(self, turn: "asyncio.Task[TurnEnd]") -> None:
        """Show why a run in the background came to nothing. No request waits for the error."""
        error = None if turn.cancelled() else turn.exception()
        if error is None:
            return
        _log.warning("session %s: %s", self.name, error)
        if isinstance(error, RequestError):
            telling = asyncio.create_task(self._say(str(error)))
            self._background.add(telling)
            telling.add_done_callback(self._background.discard)

    async def _say(self, text: str) -> None:
        with suppress(OSError):
            await self._client.session_update(self.name, say_note(text))

    def _read_text(self, path: str) -> str | None:
        """Read a file of the workspace as the agent's own tools would show it."""
        try:
            content = self._workspace.read_file(path, DIFF_BYTES_MAX)
            text = content.data.decode()
        except (ModelRetry, OSError, UnicodeDecodeError):
            return None
        if content.size > DIFF_BYTES_MAX:
            return None
        return build_mask(None).mask_text(text)
