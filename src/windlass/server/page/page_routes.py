"""The routes of the page: its files, its stream, and the questions that only it asks."""

import time
from typing import Annotated
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta

from windlass.server.api.runs import ListQuery
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.page.audit import (
    AuditCache,
    CompareReply,
    ExplainedRecord,
    ReplayReply,
    compare_sessions,
    read_record,
    replay_session,
)
from windlass.server.page.evaluations import (
    EvaluationList,
    EvaluationReply,
    list_for_page,
    read_for_page,
)
from windlass.server.page.files import (
    HighlightBody,
    HighlightReply,
    highlight_code,
    serve_page_file,
)
from windlass.server.page.questions import PatternVerdict, try_pattern
from windlass.server.page.sessions import (
    PageSessionList,
    ReservedReply,
    SessionLister,
    read_reserved,
)
from windlass.server.page.stream import PageHello, PageStream, SeenSession, make_hello
from windlass.server.routing import Routes
from windlass.server.service import Service
from windlass.server.sse import STREAM_HEADERS

_audits: WeakKeyDictionary[Service, AuditCache] = WeakKeyDictionary()
_listers: WeakKeyDictionary[Service, SessionLister] = WeakKeyDictionary()


class FeedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions the page looks at."""

    watch: tuple[str, ...] = ()
    """Each as `SEQ:EPOCH:SESSION`: what the page has of it; zeros if nothing."""


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replay begins to count."""

    start: Annotated[int, Meta(ge=1)] = 1


class CompareQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The other session."""

    other: str


class EvaluationQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which evaluation."""

    name: Annotated[str, Meta(max_length=200)]


class PatternBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern that could answer a question."""

    session: str
    call_id: str
    pattern: Annotated[str, Meta(max_length=1_000)]


ROUTES = Routes()


@ROUTES.add("GET", "/", role=None, content_types=("text/html",), other_statuses=(308,))
async def open_page(_service: Service, request: HttpRequest) -> Reply:
    """Open the page."""
    if not request.path:
        # The files of the page are found from its address, which therefore ends with a slash.
        return HttpReply(308, b"", {"Location": "/"}, "text/html; charset=utf-8")
    return serve_page_file(request, "index.html")


@ROUTES.add(
    "GET",
    "/page/{file}",
    role=None,
    content_types=("text/javascript", "text/css", "image/svg+xml", "text/html"),
    errors=("file_not_found",),
)
async def read_page_file(_service: Service, request: HttpRequest) -> Reply:
    """Read a file of the page."""
    return serve_page_file(request, request.params["file"])


@ROUTES.add("GET", "/page/hello", role="watch", scope="caller", reply=PageHello)
async def read_page_hello(service: Service, request: HttpRequest) -> Reply:
    """Say who looks at the page, and which agents there are."""
    return HttpReply(200, make_hello(service, request.caller, time.time()))


@ROUTES.add(
    "GET",
    "/page/feed",
    role="watch",
    scope="caller",
    query=FeedQuery,
    streams=True,
    content_types=("text/event-stream",),
)
async def watch_page(service: Service, request: HttpRequest) -> Reply:
    """Watch all that a page shows, in one stream (SSE)."""
    query = request.decode_query(FeedQuery)
    watched = [_read_seen(text) for text in query.watch]
    stream = PageStream(service, request.caller, watched, time.time())
    return StreamReply(stream.frames(), headers=STREAM_HEADERS)


def _read_seen(text: str) -> SeenSession:
    seq, _, rest = text.partition(":")
    epoch, _, session = rest.partition(":")
    is_sound = all(part.isascii() and part.isdigit() and len(part) <= 15 for part in (seq, epoch))  # noqa: PLR2004 - below 2**53
    if not is_sound or not session:
        raise ApiError(
            422,
            "invalid_parameter",
            f"{text[:50]!r} does not say what the page has of a session.",
            "Give SEQ:EPOCH:SESSION, with zeros for a session that is new to the page.",
        )
    return SeenSession(session, int(seq), int(epoch))


@ROUTES.add(
    "GET", "/page/sessions", role="watch", scope="caller", query=ListQuery, reply=PageSessionList
)
async def list_page_sessions(service: Service, request: HttpRequest) -> Reply:
    """List sessions with their last activity."""
    query = request.decode_query(ListQuery)
    page = await service.list_sessions(
        request.caller, query.to_session_query(), query.limit, query.cursor
    )
    lister = _listers.setdefault(service, SessionLister(service))
    return HttpReply(200, PageSessionList(await lister.describe(page), page.cursor))


@ROUTES.add(
    "GET",
    "/page/records/{session}/{seq}",
    role="watch",
    scope="session",
    reply=ExplainedRecord,
    errors=("record_not_found",),
)
async def read_page_record(service: Service, request: HttpRequest) -> Reply:
    """Read a record: in words, as it is, and its place in the chain."""
    number = request.params["seq"]
    if not number.isascii() or not number.isdigit() or len(number) > 12:  # noqa: PLR2004 - more than any session has
        raise ApiError(422, "invalid_parameter", "This is not the number of a record.", "Give one.")
    cache = _audits.setdefault(service, AuditCache())
    record = await read_record(service, cache, request.session, int(number))
    return HttpReply(200, record)


@ROUTES.add(
    "GET",
    "/page/replay/{session}",
    role="watch",
    scope="session",
    name="replaySession",
    query=RecordQuery,
    reply=ReplayReply,
)
async def replay_records(service: Service, request: HttpRequest) -> Reply:
    """Run a session again from its records, without models and tools."""
    query = request.decode_query(RecordQuery)
    return HttpReply(200, await replay_session(service, request.session, query.start))


@ROUTES.add(
    "GET",
    "/page/compare/{session}",
    role="watch",
    scope="session",
    name="compareSessions",
    query=CompareQuery,
    reply=CompareReply,
)
async def compare_records(service: Service, request: HttpRequest) -> Reply:
    """Find the first record in which two sessions differ."""
    query = request.decode_query(CompareQuery)
    other = await service.find_session(request.caller, query.other, "watch")
    return HttpReply(200, await compare_sessions(service, request.session, other))


@ROUTES.add("GET", "/page/reserved", role="watch", scope="caller", reply=ReservedReply)
async def list_reserved(service: Service, request: HttpRequest) -> Reply:
    """Say what requests that are under way may cost at most."""
    return HttpReply(200, ReservedReply(await read_reserved(service, request.caller)))


@ROUTES.add("GET", "/page/evaluations", role="watch", scope="caller", reply=EvaluationList)
async def list_evaluations(service: Service, request: HttpRequest) -> Reply:
    """List evaluations with their pass rates."""
    return HttpReply(200, await list_for_page(service, request.caller))


@ROUTES.add(
    "GET",
    "/page/evaluation",
    role="watch",
    scope="caller",
    query=EvaluationQuery,
    reply=EvaluationReply,
    errors=("evaluation_not_found",),
)
async def read_evaluation(service: Service, request: HttpRequest) -> Reply:
    """Read an evaluation: its cases, and the sessions of their trials."""
    query = request.decode_query(EvaluationQuery)
    return HttpReply(200, await read_for_page(service, request.caller, query.name))


@ROUTES.add(
    "POST",
    "/page/highlight",
    role="watch",
    name="highlightCode",
    body=HighlightBody,
    reply=HighlightReply,
)
async def highlight(_service: Service, request: HttpRequest) -> Reply:
    """Colour a piece of code."""
    body = await request.decode(HighlightBody)
    spans = await highlight_code(body.language, body.code, request.caller.name)
    return HttpReply(200, HighlightReply(spans))


@ROUTES.add(
    "POST",
    "/page/pattern",
    role="watch",
    scope="caller",
    name="tryPattern",
    body=PatternBody,
    reply=PatternVerdict,
    errors=("question_not_found",),
)
async def check_pattern(service: Service, request: HttpRequest) -> Reply:
    """Say what a pattern would allow, before it answers a question."""
    body = await request.decode(PatternBody)
    verdict = await try_pattern(service, request.caller, body.session, body.call_id, body.pattern)
    return HttpReply(200, verdict)
