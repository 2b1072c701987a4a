"""Who may do what: every route, with every role, for own and foreign sessions.

The tests are made from the route table, so that a new route is tested without being named here.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service import DirectClient, RunningService, run_service
from windlass import Agent, tool
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.server.access import ROLES
from windlass.server.dispatch import Dispatcher
from windlass.server.messages import Reply, StreamReply
from windlass.server.openai.ids import make_id
from windlass.server.routing import Route, path_parameters
from windlass.server.service import Service
from windlass.testing import ScriptedModel, call

pytestmark = pytest.mark.slow

MARK = "secret-plan-of-ann"
PUBLIC = {"readHealth", "readReadiness", "readDocument", "logIn", "answerLinkedQuestion"}
"""Routes without a token. Health and the document tell nothing of a session; a login code and a
signed link, each for one use, stand for a token."""
OTHER_ROLES = tuple(role for role in ROLES if role != "admin")


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


UPLOADS: dict[str, str] = {}
"""By owner: the id of an upload, which is not a secret either."""


def list_routes() -> list[Route]:
    return list(Dispatcher(Service(Agent(ScriptedModel([]), name="helper"))).table.routes)


ROUTES = list_routes()


@asynccontextmanager
async def service_with_waiting_run(journal: MemoryJournal) -> AsyncGenerator[RunningService]:
    """Yield a service in which a run of ann waits for an answer. Her words contain the mark."""
    # The replies after the first are for runs that bob may begin in sessions of his own.
    model = ScriptedModel([[call("send", {"text": MARK})], *["Fine."] * 9])
    agent = Agent(model, name="helper", tools=[send], gate=ask())
    async with run_service(agent, journal=journal) as running:
        ann = await running.make_client("ann")
        started = await ann.post("/runs", {"prompt": MARK, "session": "plan"})
        assert started.status == 202
        text = {"Content-Type": "text/plain"}
        kept = await ann.ask("POST", f"/uploads?name={MARK}", MARK.encode(), text)
        UPLOADS["ann"] = kept.data["id"]
        await asyncio.sleep(1)
        yield running


def fill_path(route: Route, session: str, other: str = "") -> str:
    """Return a path of the route. Parameters that are not a session are `other`, or the session."""
    path = route.path
    for name in path_parameters(path):
        value = session if name == "session" or not other else other
        if name == "response":
            # The id of a response is not a secret: whoever guesses one still gets nothing.
            value = make_id("resp", session, 1)
        if name == "upload":
            value = UPLOADS["ann"]
        path = path.replace(f"{{{name}}}", value)
    return path


async def read_reply(reply: Reply) -> bytes:
    """Return the bytes of a reply; of a stream, those of its first seconds."""
    if not isinstance(reply, StreamReply):
        return reply.encode_body() + repr(dict(reply.headers)).encode()
    data = b""

    async def read() -> None:
        nonlocal data
        async for chunk in reply.chunks:
            data += chunk

    reading = asyncio.create_task(read())
    await asyncio.sleep(3)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await reply.close()
    return data


async def request_route(client: DirectClient, route: Route, session: str, other: str = "") -> Reply:
    headers = {"Accept": "text/event-stream"} if route.streams else {}
    body: Any = None if route.method == "GET" else guess_body(route, session)
    return await client.send(route.method, fill_path(route, session, other), body, headers)


def guess_body(route: Route, session: str) -> dict[str, Any]:
    """Return a body that names a session wherever a protocol may name one."""
    return {
        "agent": "helper",
        "prompt": "Hi",
        "session": session,
        "call_id": "c1",
        "answer": {"verdict": "allow"},
        "at": 1,
        "model": "helper",
        "messages": [{"role": "user", "content": "Hi"}],
        "input": "Hi",
        "previous_response_id": make_id("resp", session, 1),
        "threadId": session,
        "runId": "r1",
        "contextId": session,
        "taskId": session,
        "name": "x",
    }


@pytest.mark.contract("A4")
def test_only_known_routes_need_no_token() -> None:
    without = {route.name for route in ROUTES if route.role is None}
    pages = {route.name for route in ROUTES if route.role is None and route.method == "GET"}
    assert without >= PUBLIC
    # Files of the page, a protocol's public card: they are read, and hold nothing of a session.
    assert without - PUBLIC <= pages


@pytest.mark.contract("A4")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_a_route_needs_a_token_and_its_role(route: Route) -> None:
    if route.role is None:
        return
    journal = MemoryJournal()
    async with service_with_waiting_run(journal) as running:
        nobody = DirectClient(running.dispatcher)
        forged = DirectClient(running.dispatcher, "wl_0123456789ab_" + "A" * 43)
        before = await journal.read("ann.plan")
        for client in (nobody, forged):
            reply = await request_route(client, route, "ann.plan")
            assert reply.status == 401
            assert MARK.encode() not in await read_reply(reply)
        weak = [role for role in OTHER_ROLES if role != route.role]
        client = await running.make_client("ann", weak)
        reply = await request_route(client, route, "ann.plan")
        assert reply.status == 403
        assert await journal.read("ann.plan") == before


@pytest.mark.contract("A4")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_nothing_of_another_caller_is_seen_or_changed(route: Route) -> None:
    journal = MemoryJournal()
    async with service_with_waiting_run(journal) as running:
        before = await journal.read("ann.plan")
        bob = await running.make_client("bob", OTHER_ROLES)
        for session in ("ann.plan", "plan"):
            reply = await request_route(bob, route, session)
            if route.scope == "session":
                assert reply.status == (403 if route.role == "admin" else 404)
            seen = await read_reply(reply)
            # What bob sent himself may come back, so only ann's words count.
            assert MARK.encode() not in seen
        await asyncio.sleep(3)
        assert await journal.read("ann.plan") == before
        ann = await running.make_client("ann")
        assert (await ann.get(f"/uploads/{UPLOADS['ann']}")).data["name"] == MARK


@pytest.mark.contract("A4")
@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.method == "GET"], ids=lambda route: route.name
)
async def test_nothing_is_changed_by_a_get(route: Route) -> None:
    journal = MemoryJournal()
    async with service_with_waiting_run(journal) as running:
        before = await journal.read("ann.plan")
        admin = await running.make_client("boss", ROLES)
        records = [await journal.list_records(kind) for kind in ("token", "schedule", "reply")]
        await read_reply(await request_route(admin, route, "ann.plan"))
        await asyncio.sleep(3)
        assert await journal.read("ann.plan") == before
        after = [await journal.list_records(kind) for kind in ("token", "schedule", "reply")]
        assert after == records


@pytest.mark.contract("A4")
async def test_an_owner_sees_and_answers_its_own() -> None:
    journal = MemoryJournal()
    async with service_with_waiting_run(journal) as running:
        ann = await running.make_client("ann", OTHER_ROLES)
        for route in ROUTES:
            if route.scope == "session" and route.method == "GET":
                reply = await request_route(ann, route, "plan", "1")
                # A route may need a query that nobody can guess here.
                assert reply.status in (200, 422), route.name
                await read_reply(reply)
