"""What anyone can send without a token, and how much an owner can keep."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service import DirectClient, RunningService, listen_service, run_service
from windlass import Agent
from windlass.server import OutsideSettings, ServiceLimits
from windlass.server.access import LOCAL_OWNER
from windlass.server.dispatch import Dispatcher
from windlass.server.routing import Route
from windlass.server.service import Service
from windlass.testing import ScriptedModel

HOME = {"Origin": "http://localhost"}
OPEN_ROUTES = [
    route
    for route in Dispatcher(Service(Agent(ScriptedModel([]), name="helper"))).table.routes
    if route.role is None
]
PROBES = {"readHealth", "readReadiness"}


def idle_agent() -> Agent[str]:
    return Agent(ScriptedModel([]), name="helper")


def path_of(route: Route) -> str:
    return route.path.replace("{code}", "x").replace("{file}", "index.html")


@asynccontextmanager
async def send_head(
    running: RunningService, route: Route, length: str
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Send the head of a request, and yield its connection."""
    host, _, port = running.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"{route.method} {path_of(route)} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\n{length}\r\n\r\n"
    )
    writer.write(head.encode())
    try:
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.one_process
@pytest.mark.contract("A4")
@pytest.mark.parametrize("route", OPEN_ROUTES, ids=lambda route: route.name)
async def test_a_long_body_without_a_token_is_not_waited_for(route: Route) -> None:
    """A4: else a client without a token fills the memory with bodies that it never finishes."""
    # A wrong link is refused by its address alone, and of the others no body is read at all.
    refused = {"logIn": b"413", "showQuestion": b"404", "answerLinkedQuestion": b"404"}
    expected = refused.get(route.name, b"200")
    async with listen_service(idle_agent()) as running:
        async with send_head(running, route, "Content-Length: 16000000") as (reader, _):
            status = (await asyncio.wait_for(reader.readline(), 20)).split()[1]
            assert status == expected
        async with send_head(running, route, "Transfer-Encoding: chunked") as (reader, writer):
            piece = b"x" * 10_000
            for _ in range(3):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            status = (await asyncio.wait_for(reader.readline(), 20)).split()[1]
            assert status == expected


@pytest.mark.contract("A4")
@pytest.mark.parametrize("route", OPEN_ROUTES, ids=lambda route: route.name)
async def test_one_address_sends_only_so_many_requests_without_a_token(route: Route) -> None:
    """A4: probes are left out, so that a flood does not make a healthy service look dead."""
    limits = ServiceLimits(open_requests_per_s=0.01, open_requests_at_once=3)
    async with run_service(idle_agent(), limits=limits) as running:
        anyone = DirectClient(running.dispatcher)
        body = {} if route.method == "POST" else None
        replies = [await anyone.ask(route.method, path_of(route), body, HOME) for _ in range(4)]
        is_refused = [reply.status == 429 for reply in replies]
        assert is_refused == [False] * 3 + [route.name not in PROBES]
        if is_refused[-1]:
            assert int(replies[-1].headers["Retry-After"]) >= 1
        ann = await running.make_client("ann")
        assert (await ann.get("/me")).status == 200


@pytest.mark.contract("A4")
async def test_guessing_codes_and_links_is_slowed_down_and_right_ones_pass() -> None:
    limits = ServiceLimits(failed_logins_per_min=5)
    async with run_service(idle_agent(), limits=limits) as running:
        anyone = DirectClient(running.dispatcher)
        statuses = [
            (await anyone.post("/login", {"code": f"wrong{number}"}, HOME)).status
            for number in range(4)
        ]
        assert statuses == [401] * 4
        assert (await anyone.get("/ask/wrong")).status == 404
        # Wrong tokens, codes and links of an address are counted together.
        assert (await anyone.get("/ask/wrong")).status == 429
        assert (await anyone.post("/login", {"code": "wrong"}, HOME)).status == 429
        guesser = DirectClient(running.dispatcher, "wl_0123456789ab_" + "A" * 43)
        assert (await guesser.get("/me")).status == 429
        code = await running.service.tokens.create_login(LOCAL_OWNER)
        assert (await anyone.post("/login", {"code": code}, HOME)).status == 200


@pytest.mark.contract("A4")
async def test_a_right_token_passes_however_many_wrong_ones_its_address_sends() -> None:
    """A4: many callers share the address of a proxy, and all programs that of loopback."""
    async with run_service(idle_agent(), limits=ServiceLimits(failed_logins_per_min=5)) as running:
        ann = await running.make_client("ann")
        guesser = DirectClient(running.dispatcher, "wl_0123456789ab_" + "A" * 43)
        statuses = {"ann": set[int](), "guesser": set[int]()}
        for _ in range(60):
            statuses["guesser"].add((await guesser.get("/runs")).status)
            statuses["ann"].add((await ann.get("/runs")).status)
        assert statuses == {"ann": {200}, "guesser": {401, 429}}


def schedule_body(name: str) -> dict[str, Any]:
    return {"name": name, "prompt": "Hi", "times": {"type": "cron", "expression": "0 0 1 1 *"}}


def webhook_body(name: str) -> dict[str, Any]:
    return {"name": name, "url": "http://127.0.0.1:9/hook"}


@pytest.mark.contract("A4")
@pytest.mark.parametrize(
    ("path", "make_body"), [("/schedules", schedule_body), ("/webhooks", webhook_body)]
)
async def test_an_owner_keeps_only_so_many(path: str, make_body: Any) -> None:
    """A4: also if all requests come at once."""
    limits = ServiceLimits(schedules_per_owner=3, webhooks_per_owner=3)
    outside = OutsideSettings(webhook_hosts=("127.0.0.1",))
    async with run_service(idle_agent(), limits=limits, outside=outside) as running:
        ann = await running.make_client("ann")
        bob = await running.make_client("bob")
        other = await running.make_client("ann.b")
        for client in (bob, other):
            assert (await client.post(path, make_body("a"))).status == 201
        made = await asyncio.gather(*(ann.post(path, make_body(f"n{n}")) for n in range(8)))
        kept = (await ann.get(path)).data[path.removeprefix("/")]
        assert len(kept) <= 3
        for number in range(3 - len(kept)):
            assert (await ann.post(path, make_body(f"late{number}"))).status == 201
        assert {reply.status for reply in made} <= {201, 409}
        full = await ann.post(path, make_body("more"))
        assert full.status == 409
        assert full.data["error"]["code"] == f"{path.removeprefix('/')}_full"
        assert "3" in full.data["error"]["message"]
        assert "Delete one" in full.data["error"]["hint"]
        name = (await ann.get(path)).data[path.removeprefix("/")][0]["name"]
        assert (await ann.ask("DELETE", f"{path}/{name}")).status == 204
        assert (await ann.post(path, make_body("more"))).status == 201
        assert (await bob.post(path, make_body("b"))).status == 201


@pytest.mark.contract("A4")
async def test_uploads_that_come_at_once_do_not_exceed_the_bound() -> None:
    async with run_service(idle_agent(), limits=ServiceLimits(uploads_per_owner=3)) as running:
        ann = await running.make_client("ann")
        text = {"Content-Type": "text/plain"}
        sent = [ann.ask("POST", f"/uploads?name=n{n}", b"note", text) for n in range(8)]
        statuses = {reply.status for reply in await asyncio.gather(*sent)}
        assert statuses <= {201, 429}
        assert len((await ann.get("/uploads")).data["uploads"]) <= 3
