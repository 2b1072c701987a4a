"""A session in a reply, and its record: in words, as it was written, checked, and as a file."""

from collections.abc import AsyncGenerator, Mapping
from decimal import Decimal
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta

from windlass.core.audit.explain import explain
from windlass.core.disclosure import show_event
from windlass.core.session_summary import SessionState, SessionSummary
from windlass.journals.archive import archive_lines
from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.owned_reading import (
    find_forgeries,
    find_problems,
    read_artifact_text,
    read_recorded_facts,
)
from windlass.server.routing import Routes
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession

NDJSON_TYPE = "application/x-ndjson"


class ExplainReply(msgspec.Struct, frozen=True):
    """Why a session did what it did, in lines for people."""

    session: str
    lines: list[str]


class ProblemReply(msgspec.Struct, frozen=True):
    """What is wrong with a record."""

    seq: int
    what: str


class VerifyReply(msgspec.Struct, frozen=True):
    """Whether the record of a session is as it was written."""

    session: str
    intact: bool
    seq: int
    """How many records it has."""
    problems: list[ProblemReply]
    forgeries: list[str]
    """What was done to it without the user's key, in words."""


class RecordReply(msgspec.Struct, frozen=True):
    """A record and its place in the chain of hashes."""

    seq: int
    record: msgspec.Raw
    """Without what the caller may not see, which it names in `hidden`."""
    hash: str
    """Of this record and all before it, as they were written."""
    problem: str = ""
    """What is wrong with it; empty if it is as it was written."""


class RecordPageReply(msgspec.Struct, frozen=True):
    """Some records of a session."""

    session: str
    records: list[RecordReply]
    next: int | None
    """Give it as `after` for the records that follow; null if these are the last."""


class RecordsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are read."""

    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


ROUTES = Routes()


@ROUTES.add("GET", "/runs/{session}/explain", role="watch", scope="session", reply=ExplainReply)
async def explain_session(service: Service, request: HttpRequest) -> Reply:
    """Explain in words why a session did what it did."""
    name = request.session.name
    facts = await service.read_facts(request.session)
    return HttpReply(200, ExplainReply(name, list(explain(name, facts))))


@ROUTES.add("GET", "/runs/{session}/verify", role="watch", scope="session", reply=VerifyReply)
async def verify_session(service: Service, request: HttpRequest) -> Reply:
    """Check that the record of a session was not changed."""
    problems = await find_problems(service.journal, request.session)
    forgeries = await find_forgeries(service.journal, request.session)
    session = await service.read_again(request.session)
    reply = VerifyReply(
        session.name,
        not problems and not forgeries,
        session.summary.facts,
        [ProblemReply(problem.seq, problem.what) for problem in problems],
        forgeries,
    )
    return HttpReply(200, reply)


@ROUTES.add(
    "GET",
    "/runs/{session}/records",
    role="watch",
    scope="session",
    query=RecordsQuery,
    reply=RecordPageReply,
    errors=("replies_withheld",),
)
async def read_records(service: Service, request: HttpRequest) -> Reply:
    """Read the records of a session as they were written, with their hashes."""
    query = request.decode_query(RecordsQuery)
    session = request.session
    _refuse_withheld(session)
    problems = {found.seq: found.what for found in await find_problems(service.journal, session)}
    last = chain_root(session.name).hash
    records: list[RecordReply] = []
    facts = await read_recorded_facts(service.journal, session)
    parts = service.parts_for(session.caller)
    for fact in facts:
        body = encode_fact(fact).body
        last = chain_hash(last, body)
        if query.after < fact.seq <= query.after + query.limit:
            problem = problems.get(fact.seq, "")
            shown = msgspec.Raw(encode_fact(show_event(fact, parts)).body)
            records.append(RecordReply(fact.seq, shown, last.hex(), problem))
    end = query.after + query.limit
    more = end if len(facts) > end else None
    return HttpReply(200, RecordPageReply(session.name, records, more))


@ROUTES.add(
    "GET",
    "/runs/{session}/export",
    role="watch",
    scope="session",
    content_types=(NDJSON_TYPE,),
    errors=("replies_withheld",),
)
async def export_session(service: Service, request: HttpRequest) -> Reply:
    """Download a session as a file that `windlass sessions import` reads."""
    session = request.session
    _refuse_withheld(session)

    async def write_lines() -> AsyncGenerator[bytes]:
        facts = await read_recorded_facts(service.journal, session)
        parts = service.parts_for(session.caller)
        shown = [show_event(fact, parts) for fact in facts]
        for _, line in archive_lines(session.name, shown):
            yield line + b"\n"

    headers = {"Content-Disposition": 'attachment; filename="session.ndjson"'}
    return StreamReply(write_lines(), content_type=NDJSON_TYPE, headers=headers, keep_alive=b"")


@ROUTES.add(
    "GET",
    "/runs/{session}/artifacts/{artifact}",
    role="watch",
    scope="session",
    content_types=("text/plain",),
    errors=("artifact_not_found",),
)
async def read_artifact(service: Service, request: HttpRequest) -> Reply:
    """Read the whole text of a tool result that was shortened for the model."""
    text = await read_artifact_text(service.journal, request.session, request.params["artifact"])
    if text is None:
        raise ApiError(
            404,
            "artifact_not_found",
            "This session has no such artifact.",
            "Use an id from the `artifacts` of one of its tool results.",
        )
    return HttpReply(200, text, content_type="text/plain; charset=utf-8")


def _refuse_withheld(session: OwnedSession) -> None:
    """Raise ApiError 403 if the records may hold replies that the gate has not allowed."""
    setup = session.view.setup
    if setup is not None and setup.withhold_replies and not session.caller.is_admin:
        raise ApiError(
            403,
            "replies_withheld",
            "A policy withholds replies in this session, and its records hold them.",
            "Read its events, or use a token with the role admin.",
        )


class SessionReply(msgspec.Struct, frozen=True):
    """A session in a list."""

    session: str
    title: str
    state: SessionState
    agent: str
    owner: str
    created: float
    updated: float
    seq: int
    runs: int
    steps: int
    tokens: int
    usd: Decimal | None
    parent: str = ""
    tags: Mapping[str, str] = {}
    """Of the last run."""


def session_reply(summary: SessionSummary, owner: str | None = None) -> SessionReply:
    """Return what a list shows of a session."""
    return SessionReply(
        session=summary.session,
        title=summary.title,
        state=summary.state,
        agent=summary.agent,
        owner=summary.caller if owner is None else owner,
        created=summary.created,
        updated=summary.updated,
        seq=summary.facts,
        runs=summary.runs,
        steps=summary.steps,
        tokens=summary.tokens,
        usd=summary.usd,
        parent=summary.parent,
        tags=summary.tags,
    )


def session_address(session: str) -> str:
    """Return the path of a session, whatever its name contains."""
    return f"/runs/{quote(session, safe='')}"


def session_links(request: HttpRequest, address: str) -> dict[str, str]:
    """Return the links of a session for the client of a request."""
    return {"self": f"{request.prefix}{address}", "events": f"{request.prefix}{address}/events"}
