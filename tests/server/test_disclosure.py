"""What callers see of an agent (A11): every route, with canaries in all that an operator may hide.

The tests are made from the route table, so that a new route is tested without being named here.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from io import BytesIO

import msgspec
import pytest
from typing_extensions import override

from service import RunningService, run_service
from session_attempts import Attempt, PatientClient, Target, read_reply
from windlass import Agent, tool
from windlass.core.disclosure import AGENT_PARTS, EVERYTHING, SETUP_PARTS, check_parts, show_event
from windlass.core.errors import ConfigError, ModelError
from windlass.core.events import CallFinished, Fact, ReplyPiece, RunStarted
from windlass.core.fold.run import fold
from windlass.core.setup import Setup
from windlass.core.view import Prompt
from windlass.gates import Rule, RuleGate
from windlass.journals import MemoryJournal, import_session
from windlass.server.access import ROLES, Caller
from windlass.server.dispatch import Dispatcher
from windlass.server.routing import Route
from windlass.server.service import Service
from windlass.testing import ScriptedModel, call
from windlass.testing.samples import facts_of_every_kind

CANARIES = {
    "instructions": b"canary-of-instructions",
    "tools": b"canary_of_schema",
    "policy": b"canary-of-policy",
    "folder": b"canary-of-folder",
    "url": b"canary-of-url",
}
URL = "http://canary-of-url.internal:8000/v1"
CONTEXT = {"windlass": {"folder": "/srv/canary-of-folder", "flags": {"base_url": URL}}}


@tool
def send(text: str) -> str:
    """Send a text: canary_of_schema."""
    return f"sent {text}"


@tool
def rate(how: int, canary_of_schema: str = "") -> str:
    """Rate something."""
    return f"{how}{canary_of_schema}"


@tool(effect="read")
def read_log() -> str:
    """Read a log that is too long for a model."""
    return "\n".join(["fine"] * 20_000)


class LostModel(ScriptedModel):
    """A model whose server cannot be reached once its script was played."""

    @override
    async def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        if len(self.prompts) == SCRIPTED:
            message = f"vendor: {URL} is not there"
            raise ModelError("network", message, address=URL, retryable=False)
        async for piece in super().stream_batches(prompt):
            yield piece


SCRIPTED = 2


def list_routes() -> list[Route]:
    return list(Dispatcher(Service(Agent(ScriptedModel([]), name="helper"))).table.routes)


ROUTES = list_routes()


def make_agent() -> Agent[str]:
    """An agent one of whose runs waits, after calls that fit no schema or rule, and one fails."""
    calls = [
        call("read_log", {}),
        call("rate", {"how": "high", "canary": 1}),
        call("send", {"text": "canary-free secret"}),
    ]
    model = LostModel([calls, [call("send", {"text": "hello"})]])
    rules = [
        Rule("deny", "send(*secret*)", reason="canary-of-policy says no"),
        Rule("allow", "read_log"),
        Rule("allow", "rate"),
    ]
    gate = RuleGate(rules, default="ask", name="canary-of-policy")
    tools = [send, rate, read_log]
    return Agent(
        model, name="helper", instructions="Be canary-of-instructions.", tools=tools, gate=gate
    )


@asynccontextmanager
async def open_world(
    shows: Collection[str] = (),
) -> AsyncGenerator[tuple[RunningService, tuple[Target, Target]]]:
    journal = MemoryJournal()
    block = run_service(make_agent(), journal=journal, contexts={"helper": CONTEXT}, shows=shows)
    async with block as running:
        ann = await running.make_client("ann")
        for name in ("plan", "old"):
            started = await ann.post("/runs", {"prompt": "Work.", "session": name})
            assert started.status == 202
            await asyncio.sleep(2)
        (question,) = (await ann.get("/questions")).data["questions"]
        (log,) = [
            fact.result.artifacts[0]
            for fact in await journal.read("ann.plan")
            if isinstance(fact, CallFinished) and fact.result.artifacts
        ]
        hook = {"name": "mine", "url": "https://192.0.2.1/hook", "content": True}
        await ann.post("/webhooks", hook)
        plan = Target(
            "ann.plan",
            artifact=log,
            call_id=question["call_id"],
            digest=question["digest"],
            hook="mine",
        )
        yield running, (plan, Target("ann.old"))


async def read_all(client: PatientClient, route: Route, targets: Collection[Target]) -> bytes:
    """Return all bytes of all replies of a route that tell about the targets."""
    seen = b""
    for target in targets:
        for _, data in await client.try_route(route, target):
            seen += data
    return seen


@pytest.mark.slow
@pytest.mark.contract("A11")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_no_route_tells_a_caller_about_the_agent(route: Route) -> None:
    if route.role == "admin":
        return
    async with open_world() as (running, targets):
        ann = PatientClient(await running.make_client("ann"))
        seen = await read_all(ann, route, targets)
        assert [name for name, canary in CANARIES.items() if canary in seen] == []


@pytest.mark.contract("A11")
async def test_an_admin_sees_all_and_so_do_callers_where_the_operator_shows_it() -> None:
    """Else the test above would prove nothing: here the same routes do tell."""
    route = next(route for route in ROUTES if route.name == "readEvents")
    for shows, caller, roles in (
        ((), "boss", ROLES),
        (("all",), "ann", ("watch", "start")),
    ):
        async with open_world(shows) as (running, targets):
            client = PatientClient(await running.make_client(caller, roles))
            seen = await read_all(client, route, targets)
            assert [name for name in CANARIES if CANARIES[name] not in seen] == []
            about = (await client.read(Attempt("GET", "/agents/helper")))[1]
            assert CANARIES["tools"] in about
            assert CANARIES["policy"] in about
            owner = Caller("", frozenset({"watch"}))
            assert running.service.parts_for(owner) == EVERYTHING


@pytest.mark.contract("A11")
@pytest.mark.parametrize("part", AGENT_PARTS)
async def test_an_operator_shows_one_part_and_no_other(part: str) -> None:
    shown = {"host": {"folder", "url"}}.get(part, {part})
    async with open_world((part,)) as (running, targets):
        ann = PatientClient(await running.make_client("ann"))
        route = next(route for route in ROUTES if route.name == "readEvents")
        seen = await read_all(ann, route, targets)
        assert {name for name in CANARIES if CANARIES[name] in seen} == shown


@pytest.mark.contract("A11")
async def test_a_hidden_field_is_absent_and_named_and_the_facts_are_still_a_session() -> None:
    async with open_world() as (running, _):
        ann = await running.make_client("ann")
        events = (await ann.get("/runs/plan/events")).data["events"]
        [started] = [event for event in events if event["type"] == "RunStarted"]
        assert set(started["hidden"]) == {
            "setup.instructions",
            "setup.tools",
            "setup.gate",
            "context.windlass",
            "folder",
        }
        assert not {"instructions", "tools", "gate"} & started["setup"].keys()
        assert "folder" not in started
        judged = [event for event in events if event["type"] == "CallJudged"]
        assert {name for event in judged for name in event.get("hidden", ())} == {
            "verdict.message",
            "verdict.reason",
            "verdict.rule",
        }
        facts = msgspec.convert(events, type=list[Fact], strict=False)
        assert fold("ann.plan", facts).seq == len(facts)
        explained = (await ann.get("/runs/plan/explain")).data["lines"]
        assert any("denied" in line or "Not allowed" in line for line in explained)
        lines = await read_reply(await ann.send("GET", "/runs/plan/export"))
        other = MemoryJournal()
        assert await import_session(other, BytesIO(lines)) == "ann.plan"
        assert len(await other.read("ann.plan")) == len(facts) + 1


@pytest.mark.contract("A11")
async def test_a_caller_cannot_try_out_a_hidden_policy() -> None:
    async with open_world() as (running, _):
        ann = await running.make_client("ann")
        body = {"tool": "send", "arguments": {"text": "a secret"}}
        refused = await ann.post("/agents/helper/trial", body)
        assert (refused.status, refused.data["error"]["code"]) == (403, "policy_hidden")
        about = (await ann.get("/agents/helper")).data
        assert about["hidden"] == ["tools", "policy"]
        assert not {"tools", "policy"} & about.keys()


@pytest.mark.contract("A11")
async def test_what_was_explained_to_an_admin_is_not_kept_for_callers() -> None:
    async with open_world() as (running, targets):
        boss = await running.make_client("boss", ROLES)
        ann = await running.make_client("ann")
        for number in range(1, 12):
            path = f"/page/records/{targets[0].session}/{number}"
            assert (await boss.get(path)).status == 200
            seen = await read_reply(await ann.send("GET", path))
            assert [name for name, canary in CANARIES.items() if canary in seen] == []


@pytest.mark.contract("A9", "A11")
async def test_the_file_about_a_caller_tells_only_what_is_shown_of_agents() -> None:
    for shows, expected in (((), set[str]()), (("all",), set(CANARIES))):
        async with open_world(shows) as (running, _):
            boss = await running.make_client("boss", ROLES)
            seen = await read_reply(await boss.send("GET", "/callers/ann/export"))
            assert b"canary-free secret" in seen
            assert {name for name in CANARIES if CANARIES[name] in seen} == expected


@pytest.mark.contract("A11")
def test_a_new_field_of_a_setup_has_to_say_who_sees_it() -> None:
    assert SETUP_PARTS.keys() == set(Setup.__struct_fields__)


@pytest.mark.contract("A11")
def test_facts_without_anything_to_hide_are_not_copied() -> None:
    for fact in facts_of_every_kind():
        assert show_event(fact, EVERYTHING) is fact
        shown = show_event(fact, check_parts(()))
        assert bool(shown.hidden) == (shown is not fact)
        assert show_event(shown, check_parts(())) == shown
        if isinstance(shown, RunStarted) and shown.setup is not None:
            assert not shown.setup.instructions


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of instructions, tools, policy, host, all"):
        check_parts(["policies"])
