"""The one stream that a page lives on: the list of sessions, questions, and patches.

Invariant: a slow page slows nothing down and gets no more than it must know. Events are folded as
they come; what changed is sent when the page can take it, several changes as one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

import msgspec

from windlass.agent.options import parts_of
from windlass.core.projection.project import apply_event
from windlass.core.session_summary import SessionQuery, SessionSummary
from windlass.server.access import Caller, TeamGrant
from windlass.server.errors import ApiError
from windlass.server.feed import FeedSubscription
from windlass.server.frames import encode_frame
from windlass.server.owned_reading import is_driven, list_children
from windlass.server.page.patches import ChildSession, ViewPatcher
from windlass.server.page.questions import PageQuestion, QuestionReader
from windlass.server.page.sessions import PageSession, SessionLister
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession
from windlass.server.sse import RETRY_MS

PATCH_EVERY_S = 0.03
"""Between two patches: a screen shows no more."""
WATCHED_MAX = 24
"""Sessions that one page looks at, with those of sub-agents."""
CHILDREN_MAX = 200
LATEST = 50
"""Sessions that a page gets first."""


class PageCaller(msgspec.Struct, frozen=True):
    """Who looks at the page."""

    name: str
    roles: list[str]
    person: str
    grants: tuple[TeamGrant, ...]


class AgentChoice(msgspec.Struct, frozen=True):
    """An agent that a run can be started with."""

    name: str
    model: str
    description: str


class PageHello(msgspec.Struct, frozen=True):
    """What a page must know before anything else."""

    caller: PageCaller
    now: float
    agents: list[AgentChoice]


class SeenSession(msgspec.Struct, frozen=True):
    """A session that a page looks at, and how much of it the page has."""

    session: str
    seq: int
    epoch: int


class MissingSession(msgspec.Struct, frozen=True):
    """A session that the page asked for, and that is not there."""

    session: str


class ChangedSessions(msgspec.Struct, frozen=True):
    """Sessions whose row in a list changed."""

    sessions: list[PageSession]


class FirstSessions(msgspec.Struct, frozen=True):
    """The latest sessions, so that a page needs no second request to show its list."""

    sessions: list[PageSession]
    cursor: str | None


class OpenQuestions(msgspec.Struct, frozen=True):
    """All questions that wait for the caller now."""

    questions: list[PageQuestion]


def make_hello(service: Service, caller: Caller, now: float) -> PageHello:
    """Return what a page receives first."""
    shows = "instructions" in service.parts_for(caller)
    agents: list[AgentChoice] = []
    for name, agent in service.agents.items():
        setup = parts_of(agent).setup
        about = _first_line(setup.instructions) if shows else ""
        agents.append(AgentChoice(name, setup.model.name, about))
    who = PageCaller(caller.name, sorted(caller.roles), caller.person, caller.grants)
    return PageHello(who, now, agents)


def _first_line(text: str) -> str:
    return (text.strip() or "").partition("\n")[0][:200]


class WatchedSession:
    """A session that a page looks at: its projection, kept up to date."""

    def __init__(self, service: Service, session: OwnedSession, seen: SeenSession) -> None:
        self._service = service
        self._session = session
        self._view = session.view
        epoch = round(session.summary.created * 1000)
        is_known = seen.epoch == epoch and seen.seq <= session.view.seq
        place = (seen.seq, 0) if is_known else (0, 0)
        self._patcher = ViewPatcher(place, epoch, session.parent)
        self._children: dict[str, ChildSession] = {}

    async def find_children(self) -> None:
        """Find the sessions of sub-agents that work for this one."""
        name = self._session.name
        for child in await list_children(self._service.journal, self._session, CHILDREN_MAX):
            # A sub-agent's session is named after its caller's, and the call.
            call_id = child.session.removeprefix(f"{name}/").partition(".")[0]
            self._children[call_id] = ChildSession(child.agent, child.session)

    @property
    def asked(self) -> frozenset[str]:
        """The calls that wait for an answer now."""
        return frozenset(question.call_id for question in self._view.questions)

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Fold events for as long as the page looks."""
        async with aclosing(self._service.watch(self._session, self._view.seq)) as watched:
            async for event in watched:
                self._view = apply_event(self._view, event)
                on_change()

    async def make_frame(self) -> bytes:
        """Return the patch for all that changed since the last one."""
        view = self._view
        driven = True
        if view.status.waits_for == "runtime":
            driven = await is_driven(self._service.journal, self._session)
        return encode_frame("view", self._patcher.make_patch(view, self._children, driven=driven))


class PageStream:
    """Merges what one page shows into frames."""

    def __init__(
        self, service: Service, caller: Caller, watched: Sequence[SeenSession], now: float
    ) -> None:
        self._service = service
        self._caller = caller
        self._watched = watched[:WATCHED_MAX]
        self._now = now
        self._lister = SessionLister(service)
        self._questions = QuestionReader(service)
        self._changed = asyncio.Event()
        self._dirty: dict[str, WatchedSession] = {}
        self._summaries: dict[str, SessionSummary] = {}
        self._asks_again = True
        self._asked: dict[str, frozenset[str]] = {}
        self._failure: BaseException | None = None
        self._waiting: set[str] = set()
        """Sessions that had questions when they were last sent."""

    async def frames(self) -> AsyncGenerator[bytes]:
        """Yield the frames, until the page goes away."""
        hello = make_hello(self._service, self._caller, self._now)
        yield b"retry: %d\n\n" % RETRY_MS + encode_frame("hello", hello)
        feed = await self._service.feed.subscribe(self._caller)
        tasks: list[asyncio.Task[None]] = []
        try:
            yield await self._make_latest()
            tasks.append(asyncio.create_task(self._follow_list(feed)))
            for seen in self._watched:
                try:
                    session = await self._service.find_session(self._caller, seen.session, "watch")
                except ApiError:
                    yield encode_frame("missing", MissingSession(seen.session))
                    continue
                watched = WatchedSession(self._service, session, seen)
                await watched.find_children()
                yield await watched.make_frame()
                mark_dirty = partial(self._mark_dirty, seen.session, watched)
                tasks.append(asyncio.create_task(watched.follow(mark_dirty)))
            for task in tasks:
                task.add_done_callback(self._note_end)
            self._changed.set()
            while self._failure is None:
                await self._changed.wait()
                self._changed.clear()
                async for frame in self._make_frames():
                    yield frame
                await asyncio.sleep(PATCH_EVERY_S)
        finally:
            feed.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _make_latest(self) -> bytes:
        """Return the frame of the latest sessions, which a page gets first."""
        latest = await self._service.list_sessions(self._caller, SessionQuery(parent=""), LATEST)
        rows = await self._lister.describe(latest)
        return encode_frame("latest", FirstSessions(rows, latest.cursor))

    async def _make_frames(self) -> AsyncGenerator[bytes]:
        dirty = list(self._dirty.values())
        self._dirty.clear()
        for watched in dirty:
            yield await watched.make_frame()
        summaries = list(self._summaries.values())
        self._summaries.clear()
        if summaries:
            rows = await self._lister.describe(summaries)
            yield encode_frame("session", ChangedSessions(rows))
        if self._asks_again:
            self._asks_again = False
            questions = await self._questions.read(self._caller)
            self._waiting.update(question.root for question in questions)
            yield encode_frame("questions", OpenQuestions(questions))

    def _mark_dirty(self, session: str, watched: WatchedSession) -> None:
        self._dirty[session] = watched
        if self._asked.get(session) != watched.asked:
            self._asked[session] = watched.asked
            self._asks_again = True
        self._changed.set()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """End the stream if a part of it failed: the page connects again and misses nothing."""
        if not task.cancelled():
            self._failure = task.exception()
            self._changed.set()

    async def _follow_list(self, feed: FeedSubscription) -> None:
        while True:
            for summary in await feed.take():
                # A reviewer gets the questions of a session, and nothing else of it.
                if await self._service.may_use_listed(self._caller, summary, "watch"):
                    self._summaries[summary.session] = summary
                is_waiting = summary.state == "waiting"
                # Any fact of a session that waits may be an answer to one of its questions.
                if is_waiting or summary.session in self._waiting:
                    self._asks_again = True
                if is_waiting:
                    self._waiting.add(summary.session)
                else:
                    self._waiting.discard(summary.session)
            self._changed.set()
