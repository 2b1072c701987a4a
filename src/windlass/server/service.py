"""Service: agents and a journal behind HTTP. It knows no HTTP itself.

Invariant: a run is a task of the service, never of a request. Whatever a request does is done on
behalf of its caller, and a session of another owner does not exist for it.

    async with Service([agent], journal="postgresql://…") as service:
        handle = await service.start_run(caller, StartRequest(prompt="Tidy up."))
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any, Self

from typing_extensions import override

from windlass.agent.agent import Agent
from windlass.agent.call_previews import AskedQuestion, add_previews
from windlass.agent.folder_store import FolderStore
from windlass.agent.handles import RunHandle
from windlass.agent.openings import unpriced_models
from windlass.agent.options import RunOptions, name_session, parts_of
from windlass.agent.working import SessionWorker, WorkLimits
from windlass.core.disclosure import EVERYTHING, AgentPart, check_parts, show_event
from windlass.core.events import Delta, Event, Fact
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.core.reply_hold import visible_facts
from windlass.core.retention import RetentionRules
from windlass.core.session_summary import (
    PAGE_SESSIONS,
    UNFINISHED_STATES,
    PagePlace,
    SessionPage,
    SessionQuery,
    SessionSummary,
    make_page,
    sort_sessions,
)
from windlass.core.setup import WorkFolder
from windlass.ports import GivenJournal, Journal
from windlass.server import owned_reading
from windlass.server.access import Caller, Role, full_session_name, owner_prefix
from windlass.server.background import (
    BackgroundWork,
    OutsideSettings,
    begin_duties,
    begin_retention,
)
from windlass.server.erasure import CallerEraser
from windlass.server.errors import draining_error
from windlass.server.feed import SessionFeed
from windlass.server.frames import FrameEncoder
from windlass.server.limits import ServiceLimits, WorkspaceMode
from windlass.server.metrics import MetricsRegistry
from windlass.server.quotas.admission import refuse_unpriced
from windlass.server.quotas.costs import CostBook
from windlass.server.request_log import STARTED_SESSION
from windlass.server.run_controls import (
    SERVICE_KEY,
    RunControls,
    RunEngine,
    StartRequest,
    is_served_run,
)
from windlass.server.served_agents import choose_journal, find_agent, name_agents, share_journal
from windlass.server.session_directory import (
    OwnedSession,
    SessionCache,
    SessionDirectory,
    check_session_name,
)
from windlass.server.stored_replies import StoredReplies
from windlass.server.tokens import TokenStore
from windlass.server.uploads import UploadStore
from windlass.server.webhooks.sender import HookSender

OLD_REPLIES_S = 3_600.0
"""How often replies that are kept for repeated requests are looked through."""
ERASURES_S = 60.0
"""How often erasures that could not be finished are continued."""
IDLE_LOOK_S = 30.0
"""How often a session without a driver is looked at, besides notifications of what is written."""
QUESTION_SESSIONS_MAX = 200
"""Waiting sessions whose questions one list shows."""


class Service(RunControls):
    """Agents that anyone with a token can start, watch, answer and stop, from one journal."""

    has_begun = False
    """Whether the service does what it does by itself, such as to resume runs."""
    _is_draining = False
    is_ready = False
    """Whether new work should be sent here."""

    def __init__(  # noqa: PLR0913 - one parameter per setting
        self,
        agents: Agent[Any] | Iterable[Agent[Any]] | Mapping[str, Agent[Any]],
        *,
        journal: GivenJournal | str | PurePath | None = None,
        limits: ServiceLimits | None = None,
        contexts: Mapping[str, Mapping[str, Any]] | None = None,
        outside: OutsideSettings | None = None,
        drives: bool = True,
        engine: RunEngine | None = None,
        workspace: WorkspaceMode = "per-caller",
        retention: RetentionRules | None = None,
        shows: Collection[str] = (),
    ) -> None:
        """Serve agents by their names.

        `journal`: where all sessions are kept, also as a path or URL; by default the one that the
        agents have in common, else memory. `contexts`: what the runs of each agent begin with, by
        its name, besides the context of the token. `outside`: how people reach the service, and
        whom it may send webhooks to. `drives`: whether this process drives runs; if not, workers on
        the same journal do. `engine`: notifies those workers of runs, instead of driving them here.
        `workspace`: `shared` lets all callers work in the folder of the agent. `retention`: how
        long sessions are kept. `shows`: the parts of agents that callers see. Raises ConfigError.
        """
        named = name_agents(agents)
        self._owns_journal = isinstance(journal, str | PurePath)
        self.journal: Journal = choose_journal(named, journal)
        self.agents: Mapping[str, Agent[Any]] = share_journal(named, self.journal)
        self._contexts = contexts or {}
        self._drives = drives and engine is None
        self._engine = engine
        self._shares_workspace = workspace == "shared"
        self._retention = retention or RetentionRules()
        self.limits = limits or ServiceLimits()
        self.outside = outside or OutsideSettings()
        self.tokens = TokenStore(self.journal)
        self.feed = SessionFeed(self.journal)
        self.background = BackgroundWork()
        self._sessions = SessionCache(self.journal, self._mask_facts, check_parts(shows))
        self._directory = SessionDirectory(self._sessions)

    @cached_property
    def _recorded_agents(self) -> Mapping[str, Agent[Any]]:
        """The agents by the name that is recorded with their runs, which may be empty."""
        return {parts_of(agent).world.agent: agent for agent in self.agents.values()}

    @cached_property
    def frames(self) -> FrameEncoder:
        """What writes events for streams, each once for all watchers."""
        return FrameEncoder()

    @cached_property
    def metrics(self) -> MetricsRegistry:
        """What the service counts."""
        return MetricsRegistry()

    @cached_property
    def stored_replies(self) -> StoredReplies:
        """Replies to changes that a client may send again."""
        return StoredReplies(self.journal)

    @cached_property
    def uploads(self) -> UploadStore:
        """Images and files that prompts may name."""
        return UploadStore(self.journal, self.limits)

    @cached_property
    def hook_sender(self) -> HookSender:
        """What sends the messages of webhooks. Raises ConfigError if a host cannot be used."""
        return self.outside.make_sender()

    @cached_property
    def folders(self) -> FolderStore | None:
        """Where callers have their folders, on this machine or on a mount."""
        folders = parts_of(next(iter(self.agents.values()))).world.folders
        return folders if isinstance(folders, FolderStore) else None

    @cached_property
    def eraser(self) -> CallerEraser:
        """What erases callers."""
        return CallerEraser(self.journal, self.tokens, self.folders, self.drive_soon)

    @cached_property
    def costs(self) -> CostBook:
        """What runs have cost."""
        return CostBook(self)

    def begin(self) -> None:
        """Begin what the service does by itself: resume runs, fire schedules, send webhooks.

        Needs the event loop to run. Every server calls this; what has begun is not begun again.
        Raises ConfigError if a receiver of webhooks cannot be used.
        """
        if self.has_begun:
            return
        sender = self.hook_sender
        self.has_begun = True
        if self._drives:
            limits = WorkLimits(
                runs=self.limits.runs_driven,
                sweep_s=self.limits.sweep_s,
                workspace_wait_s=self.limits.workspace_wait_s,
                drain_s=self.limits.drain_s,
            )
            # A run that was begun in a terminal on the same journal is not resumed here.
            worker = SessionWorker(self.agents.values(), limits, accepts=is_served_run)
            self.background.start("worker", worker.run)
        self.background.repeat("old replies", self.stored_replies.remove_old, OLD_REPLIES_S)
        self.background.repeat("old uploads", self.uploads.remove_old, OLD_REPLIES_S)
        begin_retention(self.background, self.journal, self._retention)
        self.background.repeat("erasures", self.eraser.resume, ERASURES_S)
        begin_duties(self, sender)
        self.is_ready = True

    async def __aenter__(self) -> Self:
        self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release all runs, so that another process can resume them."""
        await self.drain()
        await asyncio.gather(*(agent.aclose() for agent in self.agents.values()))
        if self._owns_journal:
            await self.journal.aclose()

    def stop_accepting(self) -> None:
        """Say that no new work should be sent here. Work that is under way continues."""
        self.is_ready = False

    async def drain(self) -> None:
        """Release all runs, and return when none is driven here. Sessions can still be read.

        No step begins any more. The replies and calls that are under way get `drain_s` seconds, so
        that no reply is paid for twice. `release_runs` ends them sooner.
        """
        self.stop_accepting()
        self._is_draining = True
        self.release_runs(self.limits.drain_s)
        await self.background.stop()
        if self.journal.is_kept:
            await asyncio.gather(*(agent.wait_until_idle() for agent in self.agents.values()))

    def release_runs(self, drain_s: float = 0.0) -> None:
        """Release all runs that are driven here. What is under way gets this many seconds."""
        if not self.journal.is_kept:
            # There is no other process that could resume the runs of a journal in memory.
            return
        for agent in self.agents.values():
            for session in agent.driven_sessions():
                agent.release(session, "the service was stopped", drain_s, reply_s=drain_s)

    # Runs.

    async def start_run(self, caller: Caller, request: StartRequest) -> RunHandle[Any]:
        """Start a run and return once it is durable. The run belongs to the service.

        Raises ApiError, and WindlassError as `Agent.start` does.
        """
        if self._is_draining:
            raise draining_error()
        session = self._name_session(caller, request)
        owned = await self._directory.find_startable(caller, session)
        # An admin who continues another owner's session works on that owner's behalf.
        owner = caller.name if owned is None else owned.owner
        agent = self._choose_agent(request.agent, owned)
        prompt = await self.uploads.resolve(caller, request.prompt)
        is_open = owned is not None and owned.summary.outcome is None
        is_steering = request.on_busy == "steer" and is_open
        recorded = parts_of(agent).world.agent
        if is_steering:
            # It may end before it is steered: then another run begins, for the same money.
            budgets = await self.quotas.find_budgets(owner, recorded)
        else:
            budgets = await self.quotas.admit(owner, recorded, session)
        refuse_unpriced(budgets, unpriced_models(parts_of(agent).setup))
        options: RunOptions = {
            **request.to_options(),
            "caller": owner,
            "context": {**self._context_of(agent), **caller.run_context, SERVICE_KEY: True},
            "drive": self._drives,
            "budgets": budgets,
            # The person whose machine this is works in the folder of the agent itself.
            "own_folder": bool(owner) and not self._shares_workspace,
        }
        handle = await agent.start(prompt, session=session, **options)
        STARTED_SESSION.set(handle.session)
        self.metrics.note_start(recorded)
        self._tell_engine(handle.session, recorded, owner, request.priority)
        self.feed.nudge()
        return handle

    async def watch(self, session: OwnedSession, after: int = 0) -> AsyncGenerator[Event]:
        """Yield the events of a session after a fact: recorded ones, then live ones, for ever.

        Each fact comes once. The first pieces of a reply that is being written are its text so far,
        as a whole. Stays with the session over pauses, drivers and runs.
        """
        agent = self._find_recorded(session.summary.agent)
        parts = self.parts_for(session.caller)
        seen = after
        while True:
            async with aclosing(agent.watch(session.name, after=seen)) as events:
                async for event in events:
                    if not event.nth:
                        seen = max(seen, event.seq)
                    yield show_event(event, parts)
            await self._wait_for_news(session, seen)

    async def _wait_for_news(self, session: OwnedSession, seen: int) -> None:
        """Return when a session has facts after a number, or a process drives it."""
        while True:
            await owned_reading.wait_for_records(self.journal, session, seen, IDLE_LOOK_S)
            if await owned_reading.is_driven(self.journal, session):
                return
            if await owned_reading.read_recorded_facts(self.journal, session, seen):
                return

    async def read_facts(self, session: OwnedSession, after: int = 0) -> Sequence[Fact]:
        """Return the facts of a session after a number, as a watcher may see them.

        Raises ApiError 404 if it was deleted.
        """
        session = await self.read_again(session)
        facts = await owned_reading.read_recorded_facts(self.journal, session, after)
        masked = list(self._mask_facts(session.summary.agent, facts))
        setup = session.view.setup
        withhold = setup is not None and setup.withhold_replies
        live = session.summary.outcome is None
        visible = visible_facts(masked, withhold=withhold, live=live)
        parts = self.parts_for(session.caller)
        return tuple(show_event(fact, parts) for fact in visible if not isinstance(fact, Delta))

    @property
    def shown_parts(self) -> frozenset[AgentPart]:
        """What callers see of an agent."""
        return self._sessions.parts

    def parts_for(self, caller: Caller) -> frozenset[AgentPart]:
        """Return what a caller sees of an agent."""
        return EVERYTHING if caller.sees_agents else self.shown_parts

    def _mask_facts(self, agent: str, facts: Sequence[Fact]) -> Iterable[Fact]:
        return parts_of(self._find_recorded(agent)).mask.mask_foreign(facts)

    # Lists.

    async def list_sessions(
        self,
        caller: Caller,
        query: SessionQuery | None = None,
        limit: int = PAGE_SESSIONS,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return a page of the sessions that the caller may read; those of all for an admin."""
        return await self._list_usable(caller, "watch", query or SessionQuery(), limit, cursor)

    async def _list_usable(
        self, caller: Caller, role: Role, query: SessionQuery, limit: int, cursor: str | None
    ) -> SessionPage:
        """Return a page of the sessions that the caller may use so, the latest first.

        Each agent that a grant covers is its own list. A cursor is a place in time, so it is
        the same for all of them.
        """
        sources = await self._directory.find_lists(caller, role, query)
        found: dict[str, SessionSummary] = {}
        has_more = False
        for source in sources:
            page = await self.journal.sessions(
                query.text or None,
                state=query.states or None,
                agent=source.agent,
                caller=source.caller,
                since=query.since,
                until=query.until,
                parent=source.parent,
                tags=query.tags,
                limit=limit,
                cursor=cursor,
            )
            if len(sources) == 1:
                return page
            has_more = has_more or page.cursor is not None
            found.update((summary.session, summary) for summary in page)
        merged = make_page(sort_sessions(found.values()), limit)
        cursor = merged.cursor
        if cursor is None and has_more:
            cursor = PagePlace.of(merged[-1]).to_cursor()
        usable = [one for one in merged if await self.may_use_listed(caller, one, role)]
        return SessionPage(usable, cursor)

    async def list_open(self, caller: Caller, limit: int) -> SessionPage:
        """Return the latest of the caller's sessions whose last run has not ended."""
        query = SessionQuery(states=UNFINISHED_STATES, parent="")
        return await self.list_sessions(caller, query, limit)

    async def list_questions(
        self, caller: Caller, limit: int = QUESTION_SESSIONS_MAX, cursor: str | None = None
    ) -> tuple[list[Question], str | None]:
        """Return the questions that the caller may answer, and the cursor of the rest."""
        query = SessionQuery(states=("waiting",), parent="")
        page = await self._list_usable(caller, "answer", query, limit, cursor)
        asked: list[AskedQuestion] = []
        for summary in page:
            known = await self._sessions.read_intact(summary.session)
            if known is not None:
                view = known.view_for(caller)
                asked += await self._find_questions(summary, view, known.folder)
        return await add_previews(asked), page.cursor

    async def read_questions(self, session: OwnedSession) -> list[Question]:
        """Return the questions that wait in a session, with what their calls would change."""
        found = await self._find_questions(session.summary, session.view, session.folder)
        return await add_previews(found)

    async def _find_questions(
        self, summary: SessionSummary, view: Projection, folder: WorkFolder | None
    ) -> list[AskedQuestion]:
        """Return the questions of a session, with its agent if it works here."""
        agent = self._recorded_agents.get(summary.agent)
        # Workers may be on other machines, which have other files.
        parts = parts_of(agent) if agent is not None and self._drives else None
        waiting = await owned_reading.drop_decided(self.journal, view.questions)
        return [(parts, question, folder) for question in waiting]

    @property
    def damaged_sessions(self) -> Mapping[str, str]:
        """The sessions that are left out of lists and sums because they are damaged, and why."""
        return self._sessions.damaged

    # Driving.

    def driven_sessions(self) -> list[str]:
        """Return the sessions whose runs this process drives now."""
        return [name for agent in self.agents.values() for name in agent.driven_sessions()]

    @override
    def drive_soon(self, session: str, agent: str = "", *, consent: bool = False) -> None:
        """Drive a session in the background if it needs it. Another driver may be faster."""
        chosen = self._recorded_agents.get(agent)
        if chosen is not None and self._drives:
            work = partial(chosen.drive, session, consent=consent)
            self.background.start(f"drive {session}", work, quiet=True)
        self._tell_engine(session, agent)

    def _tell_engine(self, session: str, agent: str, caller: str = "", priority: int = 0) -> None:
        """Have the engine find a driver, if there is one. What it must do is on record already."""
        if self._engine is not None:
            wake = partial(self._engine.wake, session, agent, caller, priority=priority)
            self.background.start(f"wake {session}", wake)

    # Names and owners.

    def _name_session(self, caller: Caller, request: StartRequest) -> str:
        if request.session:
            if caller.is_admin:
                return check_session_name(request.session)
            return check_session_name(full_session_name(caller.name, request.session))
        prefix = owner_prefix(caller.name)
        if request.key:
            agent = self._choose_agent(request.agent, None)
            return prefix + name_session(parts_of(agent).world.agent, caller.name, request.key)
        return prefix + os.urandom(8).hex()

    def _choose_agent(self, name: str, session: OwnedSession | None) -> Agent[Any]:
        """Return the agent that is named, or the one of the session, or the first one."""
        if name:
            return find_agent(self.agents, name)
        return self._find_recorded(session.summary.agent if session is not None else "")

    def _find_recorded(self, recorded: str) -> Agent[Any]:
        return self._recorded_agents.get(recorded) or next(iter(self.agents.values()))

    def _context_of(self, agent: Agent[Any]) -> Mapping[str, Any]:
        names = (name for name, each in self.agents.items() if each is agent)
        return self._contexts.get(next(names, ""), {})
