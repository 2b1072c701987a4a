"""A caller is ended: nothing that it made starts a run or answers a question any more."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from click.testing import CliRunner
from typing_extensions import override

from service import Answer, DirectClient, RunningService, run_service
from windlass import Agent, tool
from windlass.cli import main
from windlass.core.errors import ConfigError
from windlass.gates import ask
from windlass.journals import MemoryJournal, SqliteJournal
from windlass.ports import SharedRecord
from windlass.server.access import ROLES, Caller
from windlass.server.background import OutsideSettings
from windlass.server.caller_end import WRITE_S, CallerEnd, end_caller
from windlass.server.dispatch import Dispatcher
from windlass.server.messages import CountBytes, HttpRequest
from windlass.server.schedules.schedule import ScheduleStore
from windlass.server.service import Service
from windlass.server.tokens import CACHE_S, TokenStore
from windlass.server.webhooks.links import AnswerLink, make_link
from windlass.server.webhooks.store import WebhookStore
from windlass.testing import ScriptedModel, call

pytestmark = pytest.mark.contract("A4")
OUTSIDE = OutsideSettings(public_url="https://agents.example", webhook_hosts=("127.0.0.1",))
HOME = {"Origin": "http://localhost"}
HOOK = {"name": "links", "url": "http://127.0.0.1:9/hook"}
DAILY = {"name": "daily", "prompt": "Hi", "times": {"type": "cron", "expression": "0 0 1 1 *"}}
sent: list[str] = []


@tool
def send(text: str) -> str:
    """Send a text."""
    sent.append(text)
    return f"sent {text}"


def asking_agent() -> Agent[str]:
    sent.clear()
    asked = [call("send", {"text": "hi"})]
    return Agent(ScriptedModel([asked, asked, "Done."]), name="helper", tools=[send], gate=ask())


async def fill(running: RunningService, client: DirectClient) -> str:
    """Make one of everything for a caller, and return the path of a link to its question."""
    assert (await client.post("/runs", {"prompt": "Send it.", "session": "s"})).status == 202
    assert (await client.post("/schedules", DAILY)).status == 201
    assert (await client.post("/webhooks", HOOK)).status == 201
    await asyncio.sleep(1)
    (question,) = (await client.get("/questions")).data["questions"]
    store = WebhookStore(running.service.journal, time.time)
    owner = (await client.get("/me")).data["caller"]
    hook = await store.get("links", owner)
    place = question["session"], question["call_id"], question["digest"]
    link = AnswerLink(f"{owner}.links", *place, int(time.time()) + 3_600)
    return urlsplit(make_link(hook, "https://x", link)).path


async def answer_by_link(running: RunningService, path: str) -> int:
    anyone = DirectClient(running.dispatcher)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return (await anyone.ask("POST", path, b"answer=allow", form)).status


async def log_in(running: RunningService, code: str) -> Answer:
    return await DirectClient(running.dispatcher).post("/login", {"code": code}, HOME)


@pytest.mark.parametrize("runs", ["keep", "cancel"])
async def test_all_that_acts_for_a_caller_is_ended(runs: str) -> None:
    async with run_service(asking_agent(), outside=OUTSIDE) as running:
        tokens = running.service.tokens
        ann = await running.make_client("ann")
        bob = await running.make_client("bob")
        path = await fill(running, ann)
        others = await fill(running, bob)
        person = Caller("ann", frozenset({"answer"}))
        browser = await log_in(running, await tokens.create_login(person))
        unused = await tokens.create_login(person)
        admin = await running.make_client("boss", ["admin"])
        ended = await admin.post("/callers/ann/end", {"runs": runs})
        is_cancelled = runs == "cancel"
        assert ended.data == {
            "caller": "ann",
            "tokens": 2,
            "logins": 1,
            "webhooks": 1,
            "schedules": 1,
            "runs": int(is_cancelled),
            "open": int(not is_cancelled),
            "queued": 0,
        }
        assert (await ann.get("/me")).status == 401
        cookie = {"Cookie": browser.headers["Set-Cookie"].partition(";")[0]}
        assert (await DirectClient(running.dispatcher).get("/me", cookie)).status == 401
        assert (await log_in(running, unused)).status == 401
        assert await answer_by_link(running, path) == 404
        assert sent == []
        state = (await admin.get("/runs/ann.s")).data["summary"]["state"]
        assert state == ("cancelled" if is_cancelled else "waiting")
        # Nothing of others is touched.
        assert (await bob.get("/schedules")).data["schedules"][0]["name"] == "bob.daily"
        assert await answer_by_link(running, others) == 200
        assert (await bob.get("/me")).status == 200


async def test_a_person_who_is_ended_leaves_no_right_to_the_next_one_of_that_name() -> None:
    async with run_service(asking_agent()) as running:
        admin = await running.make_client("boss", ["admin"])
        for person in ("ann", "bea"):
            body = {"person": person, "groups": ["finance"]}
            assert (await admin.post("/persons", body)).status == 201
        made = await running.service.tokens.create("bea", person="bea")
        bea = DirectClient(running.dispatcher, made.secret)
        assert (await bea.post("/me/away", {"stand_in": "ann"})).status == 200
        # A token of another caller that ann uses.
        shared = await running.service.tokens.create("team", person="ann")
        program = await running.service.tokens.create("team")
        login = Caller("team", frozenset({"answer"}), person="ann")
        unused = await running.service.tokens.create_login(login)
        ended = (await admin.post("/callers/ann/end")).data
        assert (ended["tokens"], ended["logins"]) == (1, 1)
        assert (await DirectClient(running.dispatcher, shared.secret).get("/me")).status == 401
        assert (await DirectClient(running.dispatcher, program.secret).get("/me")).status == 200
        assert (await log_in(running, unused)).status == 401
        (left,) = (await admin.get("/persons")).data["persons"]
        assert (left["person"], left["groups"], left["stand_in"]) == ("bea", ["finance"], "")


async def test_only_an_admin_ends_a_caller() -> None:
    async with run_service(asking_agent()) as running:
        ann = await running.make_client("ann", [role for role in ROLES if role != "admin"])
        for name in ("ann", "bob"):
            assert (await ann.post(f"/callers/{name}/end")).status == 403
        assert (await ann.get("/me")).status == 200


async def test_the_owner_of_the_machine_is_no_caller_that_can_be_ended() -> None:
    journal = MemoryJournal()
    with pytest.raises(ConfigError, match="name of a caller"):
        await end_caller(journal, TokenStore(journal), "")


async def test_prompts_that_wait_are_cancelled_too() -> None:
    async with run_service(asking_agent()) as running:
        ann = await running.make_client("ann")
        for prompt in ("One", "Two"):
            body = {"prompt": prompt, "session": "s", "on_busy": "queue"}
            assert (await ann.post("/runs", body)).status == 202
            await asyncio.sleep(1)
        admin = await running.make_client("boss", ["admin"])
        ended = (await admin.post("/callers/ann/end", {"runs": "cancel"})).data
        assert (ended["runs"], ended["open"], ended["queued"]) == (2, 0, 0)
        assert (await admin.get("/runs/ann.s")).data["summary"]["state"] == "cancelled"


@asynccontextmanager
async def run_other_service(journal: MemoryJournal) -> AsyncGenerator[RunningService]:
    """Run a service whose tokens are known for some seconds of virtual time."""
    async with Service(asking_agent(), journal=journal, outside=OUTSIDE) as service:
        service.tokens = TokenStore(journal, asyncio.get_running_loop().time)
        yield RunningService(service, Dispatcher(service))


async def list_made(journal: MemoryJournal) -> list[str]:
    """Return the names of the schedules and webhooks of ann."""
    schedules = [one.name async for one in ScheduleStore(journal, time.time).walk("ann")]
    return schedules + [one.name async for one in WebhookStore(journal, time.time).walk("ann")]


async def test_what_another_service_lets_in_meanwhile_is_ended_too() -> None:
    """A service does not look a token up each time, and takes it for some seconds more."""
    journal = MemoryJournal()
    async with run_other_service(journal) as running:
        ann = await running.make_client("ann")
        assert (await ann.get("/me")).status == 200
        ending = asyncio.create_task(end_caller(journal, TokenStore(journal), "ann"))
        made = 0
        while not ending.done():
            for path, body in (("/schedules", DAILY), ("/webhooks", HOOK)):
                reply = await ann.post(path, {**body, "name": f"n{made}"})
                made += reply.status == 201
            await asyncio.sleep(0.2)
        ended: CallerEnd = await ending
        assert made
        assert ended.tokens == 1
        assert ended.schedules + ended.webhooks == made
        assert await list_made(journal) == []


class SlowJournal(MemoryJournal):
    """Takes its time to keep schedules and webhooks."""

    write_s = 0.0

    @override
    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        if kind in ("schedule", "webhook"):
            await asyncio.sleep(self.write_s)
        return await super().put_record(kind, name, data, version)


@pytest.mark.parametrize(("path", "body"), [("/schedules", DAILY), ("/webhooks", HOOK)])
async def test_what_is_let_in_at_the_last_moment_has_time_to_be_written(
    path: str, body: dict[str, Any]
) -> None:
    journal = SlowJournal()
    async with run_other_service(journal) as running:
        ann = await running.make_client("ann")
        assert (await ann.get("/me")).status == 200
        ending = asyncio.create_task(end_caller(journal, TokenStore(journal), "ann"))
        await asyncio.sleep(CACHE_S - 0.01)
        journal.write_s = WRITE_S - 0.1
        assert (await ann.post(path, body)).status == 201
        await ending
        assert await list_made(journal) == []


class SlowBody:
    """The body of a request, of which the rest is sent when the test says so."""

    def __init__(self, client: DirectClient, path: str, body: Any, **headers: str) -> None:
        self.is_awaited = asyncio.Event()
        self.is_sent = asyncio.Event()
        whole = client.make_request("POST", path, body, headers)
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)

        async def read_body(_bytes_max: int, count: CountBytes) -> bytes:
            self.is_awaited.set()
            await self.is_sent.wait()
            count(len(data))
            return data

        request = HttpRequest("POST", whole.path, headers=whole.headers, read_body=read_body)
        self.reply = asyncio.create_task(client.dispatcher.handle(request))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/schedules", DAILY),
        ("/webhooks", HOOK),
        ("/runs", {"prompt": "Send it.", "session": "s"}),
    ],
)
@pytest.mark.parametrize("key", ["", "k1"], ids=["plain", "keyed"])
async def test_a_body_that_arrives_after_the_end_makes_nothing(
    path: str, body: dict[str, Any], key: str
) -> None:
    """The token was valid when the request began, and its body took longer than the end."""
    journal = MemoryJournal()
    async with run_other_service(journal) as running:
        ann = await running.make_client("ann")
        keyed = {"Idempotency-Key": key} if key else {}
        slow = SlowBody(ann, path, body, **keyed)
        await slow.is_awaited.wait()
        await end_caller(journal, TokenStore(journal), "ann", runs="cancel")
        slow.is_sent.set()
        assert (await slow.reply).status == 401
        assert await list_made(journal) == []
        assert await journal.sessions(caller="ann") == []


async def test_an_answer_that_arrives_after_the_end_answers_nothing() -> None:
    """The link was valid when the request began, and its body took longer than the end."""
    journal = MemoryJournal()
    async with run_other_service(journal) as running:
        path = await fill(running, await running.make_client("ann"))
        anyone = DirectClient(running.dispatcher)
        slow = SlowBody(anyone, path, b"answer=allow")
        await slow.is_awaited.wait()
        await end_caller(journal, TokenStore(journal), "ann")
        slow.is_sent.set()
        assert (await slow.reply).status == 404
        assert sent == []


@pytest.mark.slow
def test_the_command_says_what_was_ended(tmp_path: Any) -> None:
    place = str(tmp_path / "sessions.db")

    async def make() -> None:
        with SqliteJournal(place) as journal:
            await TokenStore(journal).create("ann")
            await TokenStore(journal).create("bob")

    asyncio.run(make())
    done = CliRunner().invoke(main, ["caller", "end", "ann", "--journal", place])
    expected = "ann is ended. Deleted: 1 token, 0 login links, 0 webhooks, 0 schedules.\n"
    assert (done.exit_code, done.output) == (0, expected)

    async def read() -> list[str]:
        with SqliteJournal(place) as journal:
            return [record.caller for record in await TokenStore(journal).list_tokens()]

    assert asyncio.run(read()) == ["bob"]
