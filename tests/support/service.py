"""A service with scripted agents: asked directly, or over a socket on loopback."""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any

import aiohttp
import msgspec

from round_robin import RoundRobinProxy
from windlass import Agent
from windlass.journals.postgres.journal import PostgresJournal
from windlass.ports import Journal
from windlass.server.aiohttp_server import listen
from windlass.server.background import OutsideSettings
from windlass.server.dispatch import Dispatcher
from windlass.server.guard import AccessRules
from windlass.server.limits import ServiceLimits, WorkspaceMode
from windlass.server.messages import CountBytes, HttpReply, HttpRequest, Reply
from windlass.server.service import Service
from windlass.server.tokens import DEFAULT_ROLES

REPLICAS = "WINDLASS_TEST_REPLICAS"
"""Set it, and services of tests that bring no journal are two replicas on one Postgres."""
_schemas = count(1)

ServedAgents = Agent[Any] | Iterable[Agent[Any]] | Mapping[str, Agent[Any]]


@dataclass(slots=True)
class Answer:
    """A whole reply, as a test looks at it."""

    status: int
    data: Any
    headers: Mapping[str, str]


class DirectClient:
    """Asks a dispatcher without a socket, so that a test runs on virtual time."""

    def __init__(self, dispatcher: Dispatcher, token: str = "") -> None:
        self.dispatcher = dispatcher
        self.token = token

    def make_request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpRequest:
        """Make a request with the token of this client. `body`: bytes, or anything for JSON."""
        place, _, query = path.partition("?")
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"host": "localhost", "content-type": "application/json"}
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        sent |= {name.lower(): value for name, value in (headers or {}).items()}

        async def read_body(_bytes_max: int, count: CountBytes) -> bytes:
            given = b"" if body is None else data
            count(len(given))
            return given

        parsed: dict[str, list[str]] = {}
        for pair in filter(None, query.split("&")):
            name, _, value = pair.partition("=")
            parsed.setdefault(name, []).append(value)
        return HttpRequest(
            method, place, query=parsed, headers=sent, read_body=read_body, remote="127.0.0.1"
        )

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Return the reply as the server would get it, also one that streams."""
        return await self.dispatcher.handle(self.make_request(method, path, body, headers))

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return a whole reply, with its JSON decoded."""
        reply = await self.send(method, path, body, headers)
        assert isinstance(reply, HttpReply), "the reply streams: use send"
        data = reply.encode_body()
        await reply.close()
        is_json = reply.content_type == "application/json" and bool(data)
        return Answer(reply.status, msgspec.json.decode(data) if is_json else data, reply.headers)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.ask("GET", path, None, headers)

    async def post(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await self.ask("POST", path, {} if body is None else body, headers)


@dataclass(slots=True)
class RunningService:
    """A service that is at work, with or without a socket."""

    service: Service
    dispatcher: Dispatcher
    address: str = ""

    async def make_token(self, caller: str = "ann", roles: Collection[str] = DEFAULT_ROLES) -> str:
        return (await self.service.tokens.create(caller, roles)).secret

    async def make_client(
        self, caller: str = "ann", roles: Collection[str] = DEFAULT_ROLES
    ) -> DirectClient:
        """Return a client without a socket, with a token of this caller."""
        return DirectClient(self.dispatcher, await self.make_token(caller, roles))

    @asynccontextmanager
    async def open_client(
        self, caller: str = "ann", roles: Collection[str] = DEFAULT_ROLES
    ) -> AsyncGenerator[aiohttp.ClientSession]:
        """Yield an HTTP client with a token of this caller; paths are relative to the service."""
        headers = {"Authorization": f"Bearer {await self.make_token(caller, roles)}"}
        async with aiohttp.ClientSession(self.address, headers=headers) as client:
            yield client


@asynccontextmanager
async def run_service(
    agents: ServedAgents,
    *,
    journal: Journal | str | None = None,
    limits: ServiceLimits | None = None,
    rules: AccessRules | None = None,
    outside: OutsideSettings | None = None,
    workspace: WorkspaceMode = "per-caller",
    contexts: Mapping[str, Mapping[str, Any]] | None = None,
    shows: Collection[str] = (),
) -> AsyncGenerator[RunningService]:
    """Run a service without a socket."""
    served = Service(
        agents,
        journal=journal,
        limits=limits,
        outside=outside,
        workspace=workspace,
        contexts=contexts,
        shows=shows,
    )
    async with served as service:
        yield RunningService(service, Dispatcher(service, rules=rules))


@asynccontextmanager
async def listen_service(
    agents: ServedAgents,
    *,
    journal: Journal | str | None = None,
    limits: ServiceLimits | None = None,
    rules: AccessRules | None = None,
    outside: OutsideSettings | None = None,
) -> AsyncGenerator[RunningService]:
    """Run a service on a free port of loopback; as two replicas, if the environment says so."""
    if journal is None and os.environ.get(REPLICAS):
        replicas = listen_replicas(agents, limits=limits, rules=rules, outside=outside)
        async with replicas as running:
            yield running
        return
    block = run_service(agents, journal=journal, limits=limits, rules=rules, outside=outside)
    async with block as running, listen(running.dispatcher) as address:
        running.address = address
        yield running


@asynccontextmanager
async def listen_replicas(
    agents: ServedAgents,
    *,
    limits: ServiceLimits | None = None,
    rules: AccessRules | None = None,
    outside: OutsideSettings | None = None,
) -> AsyncGenerator[RunningService]:
    """Run two services on one Postgres. Each request goes to the other one than the last."""
    server = await asyncio.to_thread(import_module("postgres").start_server)
    options: dict[str, Any] = {"limits": limits, "rules": rules, "outside": outside}
    schema = f"replicas_{next(_schemas)}"
    async with AsyncExitStack() as stack:
        running: list[RunningService] = []
        for _ in range(2):
            journal = PostgresJournal(server.get_uri(), schema=schema)
            stack.push_async_callback(journal.aclose)
            one = await stack.enter_async_context(run_service(agents, journal=journal, **options))
            one.address = await stack.enter_async_context(listen(one.dispatcher))
            running.append(one)
        proxy = RoundRobinProxy([one.address for one in running])
        await stack.enter_async_context(proxy.run())
        running[0].address = proxy.address
        yield running[0]
