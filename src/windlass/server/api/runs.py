"""Runs: start them, list them, read them, watch them."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from windlass.agent.options import OnBusy
from windlass.core.events import Fact
from windlass.core.limits import Limits, check_numbers
from windlass.core.messages import ContentPart, Label, Usage
from windlass.core.projection.entries import SteeringEntry
from windlass.core.projection.runs import RunStatus, RunView
from windlass.core.projection.view import Entry
from windlass.core.question import Question
from windlass.core.session_summary import SessionQuery, SessionState, read_tag_pairs
from windlass.server.api.session_records import (
    SessionReply,
    session_address,
    session_links,
    session_reply,
)
from windlass.server.messages import SSE_TYPE, HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.multiplex import SESSIONS_MAX, MultiplexedStream, read_places
from windlass.server.routing import Routes
from windlass.server.run_controls import StartRequest
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession
from windlass.server.sse import STREAM_HEADERS, has_ended, read_last_event_id, stream_session

ENTRIES_MAX = 500
"""Entries of a conversation in one reply, if the caller does not say how many."""
PageSize = Annotated[int, Meta(ge=1, le=1_000)]


class RunCaps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one run, stricter than those of its agent."""

    steps: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    usd: Decimal | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        check_numbers(self, *self.__struct_fields__)

    def to_limits(self) -> Limits:
        """Return them as the limits of a run."""
        return Limits(steps=self.steps, tokens=self.tokens, usd=self.usd, seconds=self.seconds)


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start."""

    prompt: str | tuple[ContentPart, ...]
    """Text, or parts: text, images and files; their data in base64."""
    agent: str = ""
    session: str = ""
    on_busy: OnBusy = "refuse"
    labels: tuple[Label, ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
    """A conversation from elsewhere that a new session continues, as chat messages."""
    limits: RunCaps | None = None
    pinned: bool = False
    tags: dict[str, str] = {}
    """Keys and values of your own, at most 16. Lists can be filtered by them."""
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    """A higher one begins first. Above 0, which passes others, it takes the role `admin`."""


class StartedReply(msgspec.Struct, frozen=True):
    """A run that was started, or a prompt that waits in the queue."""

    session: str
    run: int
    """The number of the run in its session; 0 while its prompt waits behind another run."""
    queued: int = 0
    """How many prompts are to begin before this run has begun, itself included."""
    prompt: int = 0
    """The number of its prompt in the queue of the session; 0 if it was begun at once."""
    links: dict[str, str] = {}


class SessionListReply(msgspec.Struct, frozen=True):
    """A page of sessions, the latest first."""

    sessions: list[SessionReply]
    cursor: str | None = None
    """Give it as `cursor` to get the next page; null if this is the last one."""


class ConversationReply(msgspec.Struct, frozen=True):
    """A session as people see it."""

    session: str
    summary: SessionReply
    seq: int
    """The last fact that is in it: watch the events after it."""
    entries: Sequence[Entry]
    entries_from: int
    """The index of the first entry that is here."""
    entries_total: int
    pending: tuple[SteeringEntry, ...]
    run: RunView | None
    runs: Sequence[RunView]
    status: RunStatus
    questions: tuple[Question, ...]
    usage: Usage | None
    cost: Decimal | None


class EventPageReply(msgspec.Struct, frozen=True):
    """Facts of a session, for clients that poll."""

    session: str
    events: Sequence[Fact]
    next: int
    """Give it as `after` to get the facts that follow."""
    ended: bool
    """Whether nothing comes after these for now."""


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are listed."""

    text: str = ""
    state: tuple[SessionState, ...] = ()
    agent: str | None = None
    owner: str | None = None
    """Only for an admin: others see their own sessions."""
    parent: str | None = ""
    """The session that a sub-agent's works for; empty for those of no sub-agent."""
    since: float | None = None
    until: float | None = None
    tag: tuple[str, ...] = ()
    """`KEY=VALUE`: only sessions whose last run has this tag. May be given several times."""
    limit: PageSize = 50
    cursor: str | None = None

    def to_session_query(self) -> SessionQuery:
        return SessionQuery(
            text=self.text,
            states=self.state,
            agent=self.agent,
            caller=self.owner,
            parent=self.parent,
            since=self.since,
            until=self.until,
            tags=read_tag_pairs(self.tag),
        )


class ConversationQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of a conversation are read."""

    entries_from: Annotated[int, Meta(ge=0)] | None = None
    """The index of the first entry; by default the last ones."""
    limit: PageSize = ENTRIES_MAX


class EraseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is deleted."""

    cancel: bool = False
    """End an open run first; without it, a session with an open run stays."""


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events of a session are read."""

    after: Annotated[int, Meta(ge=0)] = 0
    """The number of the last fact that the client has; `Last-Event-ID` counts more."""
    limit: PageSize = 500
    """For clients that poll."""
    follow: bool = False
    """For streams: stay when a run has ended, and continue with the next one."""


class WatchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream for several sessions shows."""

    session: Annotated[tuple[str, ...], Meta(max_length=SESSIONS_MAX)] = ()
    """Sessions whose events are sent; by default all open ones of the caller."""
    after: str = ""
    """The last id of an earlier stream; `Last-Event-ID` counts more."""
    list_only: bool = False
    """Send only changes of the list, and questions."""


ROUTES = Routes()


@ROUTES.add(
    "POST",
    "/runs",
    role="start",
    scope="caller",
    body=StartBody,
    reply=StartedReply,
    status=202,
    errors=("session_busy", "agent_not_found"),
)
async def start_run(service: Service, request: HttpRequest) -> Reply:
    """Start a run. It belongs to the service: a lost client does not stop it."""
    body = await request.decode(StartBody)
    if body.priority > 0:
        request.caller.require("admin")
    handle = await service.start_run(
        request.caller,
        StartRequest(
            prompt=body.prompt,
            agent=body.agent,
            session=body.session,
            key=request.header("idempotency-key"),
            on_busy=body.on_busy,
            labels=body.labels,
            earlier=body.messages,
            limits=body.limits.to_limits() if body.limits is not None else None,
            pinned=body.pinned,
            tags=body.tags,
            priority=body.priority,
            trace=request.trace,
        ),
    )
    address = session_address(handle.session)
    links = session_links(request, address)
    place = await handle.queue_place() if handle.is_queued else 0
    reply = StartedReply(handle.session, handle.run, place, handle.prompt_number, links)
    return HttpReply(202, reply, {"Location": address})


@ROUTES.add("GET", "/runs", role="watch", scope="caller", query=ListQuery, reply=SessionListReply)
async def list_runs(service: Service, request: HttpRequest) -> Reply:
    """List sessions, the latest first."""
    given = request.decode_query(ListQuery)
    page = await service.list_sessions(
        request.caller, given.to_session_query(), given.limit, given.cursor
    )
    return HttpReply(200, SessionListReply([session_reply(each) for each in page], page.cursor))


@ROUTES.add(
    "GET",
    "/runs/{session}",
    role="watch",
    scope="session",
    query=ConversationQuery,
    reply=ConversationReply,
)
async def read_run(service: Service, request: HttpRequest) -> Reply:
    """Read a session as people see it."""
    query = request.decode_query(ConversationQuery)
    session = request.session
    questions = await service.read_questions(session)
    return HttpReply(200, conversation_reply(session, query, questions))


@ROUTES.add(
    "DELETE",
    "/runs/{session}",
    name="eraseRun",
    role="start",
    scope="session",
    query=EraseQuery,
    status=204,
    errors=("not_owner", "session_busy", "works_for_another"),
)
async def erase_run(service: Service, request: HttpRequest) -> Reply:
    """Delete a session and the sessions that work for it, for good."""
    query = request.decode_query(EraseQuery)
    await service.erase(request.session, cancel=query.cancel)
    service.feed.nudge()
    return HttpReply(204)


@ROUTES.add(
    "GET",
    "/runs/{session}/events",
    role="watch",
    scope="session",
    query=EventsQuery,
    reply=EventPageReply,
    streams=True,
)
async def read_events(service: Service, request: HttpRequest) -> Reply:
    """Watch the events of a session (SSE), or read its facts in pages (JSON)."""
    query = request.decode_query(EventsQuery)
    session = request.session
    after = read_last_event_id(request.header("last-event-id")) or query.after
    if not request.accepts(SSE_TYPE):
        return await _page_of_events(service, session, after, query.limit)
    if after and not query.follow and await has_ended(service, session, after):
        # A browser that gets this does not connect again.
        return HttpReply(204)
    chunks = stream_session(service, session, after, follow=query.follow)
    return StreamReply(chunks, headers=STREAM_HEADERS)


async def _page_of_events(service: Service, session: OwnedSession, after: int, limit: int) -> Reply:
    facts = list(await service.read_facts(session, after))[:limit]
    last = facts[-1].seq if facts else after
    ended = await has_ended(service, session, last)
    return HttpReply(200, EventPageReply(session.name, facts, last, ended))


@ROUTES.add("GET", "/events", role="watch", scope="caller", query=WatchQuery, streams=True)
async def watch_sessions(service: Service, request: HttpRequest) -> Reply:
    """Watch several sessions, changes of the list, and questions, in one stream (SSE)."""
    query = request.decode_query(WatchQuery)
    places = read_places(request.header("last-event-id") or query.after)
    sessions = [await service.find_session(request.caller, name, "watch") for name in query.session]
    follow_all = not sessions and not query.list_only
    stream = MultiplexedStream(service, request.caller, sessions, places, follow_all=follow_all)
    return StreamReply(stream.frames(), headers=STREAM_HEADERS)


def conversation_reply(
    session: OwnedSession, query: ConversationQuery, questions: Sequence[Question]
) -> ConversationReply:
    """Return the JSON form of a session."""
    view = session.view
    entries = view.entries
    start = query.entries_from
    if start is None:
        start = max(0, len(entries) - query.limit)
    stop = min(len(entries), start + query.limit)
    return ConversationReply(
        session=view.session,
        summary=session_reply(session.summary, session.owner),
        seq=view.seq,
        entries=[entries[at] for at in range(start, stop)],
        entries_from=start,
        entries_total=len(entries),
        pending=view.pending,
        run=view.run,
        runs=list(view.runs),
        status=view.status,
        questions=tuple(questions),
        usage=view.usage,
        cost=view.cost,
    )
