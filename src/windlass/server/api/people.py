"""People, groups, who stands in for whom, and the sign-ins of browsers."""

import time
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass.core.audit.trail import encode_entries
from windlass.server.access import CALLER_CHARS_MAX, TeamGrant
from windlass.server.audit_trail import read_trail
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.people import Group, GroupStore, PeopleStore, PersonRecord
from windlass.server.resources import Resource, fill_reply
from windlass.server.routing import Routes
from windlass.server.service import Service

Name = Annotated[str, Meta(min_length=1, max_length=CALLER_CHARS_MAX)]


class PersonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person, and the groups that they belong to."""

    person: Name
    groups: Annotated[tuple[Name, ...], Meta(max_length=50)] = ()


class PersonReply(msgspec.Struct, frozen=True, kw_only=True):
    """A person."""

    person: str
    name: str
    """Of the record, for the paths of this service."""
    groups: tuple[str, ...]
    stand_in: str
    away_until: float | None


class AwayBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who answers in your place, and for how long. Without a stand-in, you are back."""

    stand_in: Annotated[str, Meta(max_length=CALLER_CHARS_MAX)] = ""
    for_s: Annotated[float, Meta(gt=0, le=400 * 86_400)] | None = None
    """Seconds; None: until you say otherwise."""


class GroupBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group, and what its people may do with the runs that others started."""

    name: Annotated[str, Meta(min_length=1, max_length=80)]
    grants: Annotated[tuple[TeamGrant, ...], Meta(max_length=20)] = ()


class GroupReply(msgspec.Struct, frozen=True, kw_only=True):
    """A group."""

    name: str
    grants: tuple[TeamGrant, ...]


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which period, in which form."""

    since: float = 0.0
    """Seconds since the epoch."""
    until: float | None = None
    """By default now."""
    format: Literal["jsonl", "csv"] = "jsonl"


def describe_person(record: PersonRecord) -> PersonReply:
    return fill_reply(PersonReply, record)


def describe_group(group: Group) -> GroupReply:
    return fill_reply(GroupReply, group)


def open_people(service: Service) -> PeopleStore:
    service.people.forget()
    return PeopleStore(service.journal)


def open_groups(service: Service) -> GroupStore:
    service.people.forget()
    return GroupStore(service.journal)


PEOPLE = Resource("person", PersonReply, describe_person, open_people, role="admin", reader="admin")
GROUPS = Resource("group", GroupReply, describe_group, open_groups, role="admin", reader="admin")
ROUTES = Routes()


@PEOPLE.create(body=PersonBody)
async def put_person(service: Service, request: HttpRequest) -> Reply:
    """Say which groups a person belongs to."""
    body = await request.decode(PersonBody)
    record = await open_people(service).put(body.person, body.groups)
    service.people.forget()
    return HttpReply(201, describe_person(record))


PEOPLE.add_list("List people with their groups.")
PEOPLE.add_delete("Take a person out of all groups.")


@GROUPS.create(body=GroupBody)
async def put_group(service: Service, request: HttpRequest) -> Reply:
    """Make a group, or change what its people may do."""
    body = await request.decode(GroupBody)
    group = await open_groups(service).put(Group(name=body.name, grants=body.grants))
    service.people.forget()
    return HttpReply(201, describe_group(group))


GROUPS.add_list("List groups.")
GROUPS.add_delete("Delete a group.")


@ROUTES.add(
    "GET",
    "/audit",
    name="exportAudit",
    role="admin",
    query=AuditQuery,
    content_types=("application/x-ndjson", "text/csv"),
)
async def export_audit(service: Service, request: HttpRequest) -> Reply:
    """Export who started, asked, answered and changed what, in a period."""
    query = request.decode_query(AuditQuery)
    until = time.time() if query.until is None else query.until
    entries = await read_trail(service.journal, query.since, until)
    kind = "text/csv; charset=utf-8" if query.format == "csv" else "application/x-ndjson"

    async def write_text() -> AsyncGenerator[bytes]:
        yield encode_entries(entries, query.format).encode()

    return StreamReply(write_text(), content_type=kind, keep_alive=b"")


# Who stands in answers, so a token that may only read cannot choose them.
@ROUTES.add("POST", "/me/away", role="answer", scope="caller", body=AwayBody, reply=PersonReply)
async def set_away(service: Service, request: HttpRequest) -> Reply:
    """Let somebody answer in your place while you are away."""
    person = request.caller.person
    if not person:
        raise ApiError(409, "no_person", "This token belongs to no person.", "Sign in as yourself.")
    body = await request.decode(AwayBody)
    until = None if body.for_s is None else time.time() + body.for_s
    record = await open_people(service).send_away(person, body.stand_in, until)
    service.people.forget()
    return HttpReply(200, describe_person(record))
