"""Who may do what: every route, with every role, for own and foreign sessions.

The tests are made from the route table, so that a new route is tested without being named here.
"""

import ast
import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path

import pytest

import windlass.server
from service import DirectClient, RunningService, run_service
from session_attempts import Attempt, PatientClient, Target, make_attempts
from windlass import Agent, tool
from windlass.core.events import CallFinished, Fact
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.journals.codec import encode_fact
from windlass.ports import SharedRecord
from windlass.server.access import ROLES, Caller
from windlass.server.dispatch import Dispatcher
from windlass.server.limits import ServiceLimits
from windlass.server.routing import Route
from windlass.server.service import Service
from windlass.testing import ScriptedModel, call

pytestmark = pytest.mark.slow

MARK = "secret-plan-of-ann"
PUBLIC = {"readHealth", "readReadiness", "readDocument", "logIn", "answerLinkedQuestion"}
"""Routes without a token. Health and the document tell nothing of a session; a login code and a
signed link, each for one use, stand for a token."""
OTHER_ROLES = tuple(role for role in ROLES if role != "admin")
SHORT_NAMES = ("plan", "old")
INNER_READS = ("readArtifact", "readPrompt", "withdrawPrompt")
"""Routes to a part of a session, which another session does not have."""
RECORDS = ("token", "schedule", "webhook", "upload", "quota")
FAST = ServiceLimits(requests_per_s=40.0, requests_at_once=8)
"""So that attempts come too fast, and have to be sent again."""


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@tool(effect="read")
def read_log() -> str:
    """Read a log that is too long for a model."""
    return "\n".join([MARK] * 10_000)


def list_routes() -> list[Route]:
    return list(Dispatcher(Service(Agent(ScriptedModel([]), name="helper"))).table.routes)


ROUTES = list_routes()
PROTOCOLS = ("/a2a", "/ag-ui", "/mcp", "/v1/responses")
SESSION_ROUTES = [
    route
    for route in ROUTES
    if route.role not in (None, "admin")
    and (route.scope == "session" or (route.scope == "caller" and route.path.startswith(PROTOCOLS)))
    and route.name not in ("endMcpSession", "releaseRun")
]
"""Routes by which a caller reaches a session that exists."""


@dataclass(slots=True)
class World:
    """A service in which ann has a run that waits and one that has ended; both hold the mark."""

    running: RunningService
    journal: MemoryJournal
    plan: Target
    old: Target

    async def make_client(self, caller: str, roles: tuple[str, ...] = OTHER_ROLES) -> PatientClient:
        return PatientClient(await self.running.make_client(caller, roles))

    async def read_everything(self) -> tuple[list[Sequence[Fact]], list[list[SharedRecord]]]:
        """Return all that is kept of ann: her sessions, and what is beside them."""
        facts = [await self.journal.read(target.session) for target in (self.plan, self.old)]
        kept = [await self.journal.list_records(kind) for kind in RECORDS]
        hers = [[one for one in records if b'"ann"' in one.data] for records in kept]
        return facts, hers

    async def read_sessions_of(self, caller: str) -> bytes:
        """Return all facts of a caller's sessions, encoded."""
        page = await self.journal.sessions(caller=caller, limit=1_000)
        return b"".join(
            [
                encode_fact(fact).body
                for summary in page
                for fact in await self.journal.read(summary.session)
            ]
        )

    async def shadow(self, caller: str) -> None:
        """Give a caller sessions of their own under every name of ann's, long and short."""
        client = await self.make_client(caller)
        for target in (self.plan, self.old):
            for name in (target.session, target.session.removeprefix("ann.")):
                body = {"prompt": "Hi", "session": name}
                status, _ = await client.read(Attempt("POST", "/runs", body))
                assert status == 202
        await asyncio.sleep(1)


@asynccontextmanager
async def open_world(limits: ServiceLimits | None = None) -> AsyncGenerator[World]:
    journal = MemoryJournal()
    asked = [call("read_log", {})], [call("send", {"text": MARK})]
    # The replies after the third are for runs that others may begin in sessions of their own.
    model = ScriptedModel([*asked, f"It is {MARK}.", *["Fine."] * 60])
    agent = Agent(model, name="helper", tools=[send, read_log], gate=ask())
    async with run_service(agent, journal=journal, limits=limits) as running:
        ann = await running.make_client("ann")
        for name in SHORT_NAMES:
            started = await ann.post("/runs", {"prompt": MARK, "session": name})
            assert started.status == 202
            await asyncio.sleep(1)
        behind = {"prompt": MARK, "session": "plan", "on_busy": "queue"}
        queued = await ann.post("/runs", behind)
        text = {"Content-Type": "text/plain"}
        kept = await ann.ask("POST", f"/uploads?name={MARK}", MARK.encode(), text)
        times = {"type": "interval", "every_s": 86_400, "start": 4_000_000_000}
        planned = {"name": "daily", "prompt": MARK, "times": times}
        schedule = await ann.post("/schedules", planned)
        (question,) = (await ann.get("/questions")).data["questions"]
        (log,) = [
            fact.result.artifacts[0]
            for fact in await journal.read("ann.plan")
            if isinstance(fact, CallFinished)
        ]
        plan = Target(
            "ann.plan",
            artifact=log,
            call_id=question["call_id"],
            digest=question["digest"],
            upload=kept.data["id"],
            schedule=schedule.data["name"],
            token=(await running.service.tokens.list_tokens())[0].id,
            prompt=str(queued.data["prompt"]),
        )
        yield World(running, journal, plan, Target("ann.old", upload=kept.data["id"]))


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
    async with open_world() as world:
        dispatcher = world.running.dispatcher
        nobody = DirectClient(dispatcher)
        forged = DirectClient(dispatcher, "wl_0123456789ab_" + "A" * 43)
        before = await world.read_everything()
        attempt = next(make_attempts(route, world.plan), Attempt(route.method, route.path))
        for client in (nobody, forged):
            status, seen = await PatientClient(client).read(attempt)
            assert status == 401
            assert MARK.encode() not in seen
        weak = tuple(role for role in OTHER_ROLES if role != route.role)
        status, _ = await (await world.make_client("ann", weak)).read(attempt)
        assert status == 403
        assert (await world.read_everything())[0] == before[0]


@pytest.mark.contract("A4", "A13")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
@pytest.mark.parametrize("shadowed", [False, True], ids=["plain", "shadowed"])
async def test_nothing_of_another_caller_is_seen_or_changed(
    route: Route, *, shadowed: bool
) -> None:
    """Also if bob has a session of his own whose short name is the full name of ann's (A13)."""
    async with open_world(FAST) as world:
        if shadowed:
            await world.shadow("bob")
        before = await world.read_everything()
        bob = await world.make_client("bob")
        for target in (world.plan, world.old):
            for status, seen in await bob.try_route(route, target):
                # What bob sent himself may come back, so only ann's words count.
                assert MARK.encode() not in seen
                if route.scope == "session":
                    # A session of bob's own is found, but has no such artifact or prompt.
                    is_found = shadowed and route.role != "admin" and route.name not in INNER_READS
                    assert (status in (403, 404)) != is_found, status
        await asyncio.sleep(3)
        assert await world.read_everything() == before
        assert MARK.encode() not in await world.read_sessions_of("bob")


@pytest.mark.contract("A13")
async def test_a_short_name_is_not_the_full_name_of_what_a_program_ran_for_the_caller() -> None:
    """Else that session would stand before the one which the caller gave this name."""
    model = ScriptedModel(["By a program.", "By a request."])
    agent = Agent(model, name="helper", journal=MemoryJournal())
    async with run_service(agent) as running:
        await agent.run("Hi", session="plan", caller="ann")
        ann = await running.make_client("ann")
        assert (await ann.get("/runs/plan")).status == 404
        assert (await ann.post("/runs", {"prompt": "Hi", "session": "plan"})).status == 202
        assert (await ann.get("/runs/plan")).data["summary"]["session"] == "ann.plan"


@pytest.mark.contract("A13")
async def test_an_attempt_that_comes_too_fast_is_sent_again() -> None:
    """Else a rate limit would pass for a refusal, and the tests above would prove nothing."""
    async with open_world(FAST) as world:
        bob = await world.make_client("bob")
        statuses = {(await bob.read(Attempt("GET", "/me")))[0] for _ in range(20)}
        assert statuses == {200}
        assert bob.waits


@pytest.mark.contract("A13")
@pytest.mark.parametrize("route", SESSION_ROUTES, ids=lambda route: route.name)
async def test_the_owner_reaches_the_session_by_the_same_attempts(route: Route) -> None:
    """Else the attempts of the tests above would fail because nobody can make them (A13)."""
    async with open_world() as world:
        before = (await world.read_everything())[0]
        ann = await world.make_client("ann")
        replies = [
            reply
            for target in (world.plan, world.old)
            for reply in await ann.try_route(route, target)
        ]
        await asyncio.sleep(3)
        is_found = route.scope == "session" and any(status < 300 for status, _ in replies)
        is_seen = any(MARK.encode() in seen for _, seen in replies)
        is_changed = (await world.read_everything())[0] != before
        assert is_found or is_seen or is_changed


@pytest.mark.contract("A4")
@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.method == "GET"], ids=lambda route: route.name
)
async def test_nothing_is_changed_by_a_get(route: Route) -> None:
    async with open_world() as world:
        admin = await world.make_client("boss", ROLES)
        before = await world.read_everything()
        records = [await world.journal.list_records(kind) for kind in (*RECORDS, "reply")]
        await admin.try_route(route, world.plan)
        await asyncio.sleep(3)
        assert await world.read_everything() == before
        after = [await world.journal.list_records(kind) for kind in (*RECORDS, "reply")]
        assert after == records


@pytest.mark.contract("A4")
async def test_an_owner_sees_and_answers_its_own() -> None:
    async with open_world() as world:
        ann = await world.make_client("ann")
        for route in ROUTES:
            if route.scope == "session" and route.method == "GET":
                for attempt in make_attempts(route, world.plan):
                    assert (await ann.read(attempt))[0] == 200, route.name


SESSION_METHODS = {"append", "find_forgeries", "is_leased", "read", "read_mail", "verify"}
"""What a journal does to the session of any name."""
READERS = {
    "api/agents.py",
    "audit_trail.py",
    "caller_export.py",
    "erasure.py",
    "fleet_status.py",
    "owned_reading.py",
    "schedules/scheduler.py",
    "session_directory.py",
}
"""They find sessions, take handles, read names that they made or found themselves, or are for
admins alone."""


@pytest.mark.contract("A13")
def test_only_few_modules_read_the_journal_by_name() -> None:
    """A protocol that did could read the name that its client gave it."""
    found = {
        name_of_module
        for name_of_module, tree in server_modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in SESSION_METHODS
        if ast.unparse(node.value).rpartition(".")[2] in ("journal", "_journal")
    }
    assert found == READERS


def server_modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of the service. An editor drives sessions itself, for one person."""
    folder = Path(windlass.server.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if not name.startswith("acp/"):
            yield name, ast.parse(path.read_text("utf-8"))


@pytest.mark.contract("A13")
async def test_a_handle_cannot_be_turned_into_that_of_another_session() -> None:
    async with open_world() as world:
        service = world.running.service
        ann = await service.find_session(Caller("ann", frozenset()), "plan")
        await world.shadow("bob")
        bob = await service.find_session(Caller("bob", frozenset()), "ann.plan")
        assert (ann.name, bob.name) == ("ann.plan", "bob.ann.plan")
        with pytest.raises(ValueError, match="seal"):
            replace(bob, summary=ann.summary)
        with pytest.raises(FrozenInstanceError):
            bob.summary = ann.summary  # pyright: ignore[reportAttributeAccessIssue]
