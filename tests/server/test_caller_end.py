"""A caller is ended: nothing that it made starts a run or answers a question any more."""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from service import Answer, DirectClient, RunningService, run_service
from windlass import Agent, tool
from windlass.cli import main
from windlass.core.errors import ConfigError
from windlass.gates import ask
from windlass.journals import MemoryJournal, SqliteJournal
from windlass.server.access import ROLES, Caller
from windlass.server.background import OutsideSettings
from windlass.server.caller_end import CallerEnd, end_caller
from windlass.server.schedules.schedule import ScheduleStore
from windlass.server.tokens import TokenStore
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


@pytest.mark.slow
@pytest.mark.realtime
async def test_what_another_service_lets_in_meanwhile_is_ended_too(tmp_path: Any) -> None:
    """A service does not look a token up each time, and takes it for some seconds more."""
    place = str(tmp_path / "sessions.db")
    async with run_service(asking_agent(), journal=place, outside=OUTSIDE) as running:
        ann = await running.make_client("ann")
        assert (await ann.get("/me")).status == 200
        with SqliteJournal(place) as journal:
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
            for store in (ScheduleStore(journal, time.time), WebhookStore(journal, time.time)):
                assert await store.list_page("ann") == ([], None)


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
