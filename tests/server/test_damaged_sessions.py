"""One damaged session takes nothing down: it is left out, counted and named (A10)."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from service import DirectClient, run_service
from windlass import Agent, Ask, tool
from windlass.agent import control
from windlass.journals import SqliteJournal
from windlass.server.run_controls import SERVICE_KEY
from windlass.testing import FixedGate, ScriptedModel, call, say, usage

pytestmark = pytest.mark.contract("A10")
SPENT = [usage(input=10, output=2), say("Done.")]


def damage(path: Path, session: str) -> None:
    """Change a record of a session behind the journal's back."""
    connection = apsw.Connection(str(path))
    connection.execute(
        "UPDATE records SET body = '{' WHERE seq = 2 AND number = "
        "(SELECT number FROM sessions WHERE session = ?)",
        (session,),
    )
    connection.close()


@tool(effect="write")
def send() -> str:
    """Send it."""
    return "sent"


async def start(client: DirectClient, session: str, state: str) -> None:
    await client.post("/runs", {"prompt": "Go.", "session": session})
    await wait_for(client, session, state)


async def wait_for(client: DirectClient, session: str, state: str) -> None:
    async with asyncio.timeout(60):
        while True:
            found = (await client.get(f"/runs/{session}")).data
            if found.get("summary", {}).get("state") == state:
                return
            await asyncio.sleep(0.2)


@pytest.mark.realtime
async def test_sums_and_metrics_leave_a_damaged_session_out(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel([SPENT, SPENT]), name="helper")
        async with run_service(agent, journal=journal) as running:
            ann = await running.make_client("ann")
            await start(ann, "good", "completed")
            await start(ann, "bad", "completed")
    damage(path, "ann.bad")
    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel([]), name="helper")
        async with run_service(agent, journal=journal) as running:
            ann = await running.make_client("ann")
            bob = await running.make_client("bob")
            costs = await ann.get("/costs")
            assert (costs.status, costs.data["damaged"]) == (200, ["ann.bad"])
            assert [row["runs"] for row in costs.data["rows"]] == [1]
            assert (await bob.get("/costs")).data["damaged"] == []
            metrics = (await ann.get("/metrics")).data
            assert b"windlass_sessions_damaged 1" in metrics
            # It is still listed, and says itself what is wrong with it.
            listed = (await ann.get("/runs")).data["sessions"]
            assert {one["session"] for one in listed} == {"ann.good", "ann.bad"}
            refused = await ann.get("/runs/bad")
            assert (refused.status, refused.data["error"]["code"]) == (500, "journal_corrupt")


@pytest.mark.realtime
async def test_questions_and_sweeps_leave_a_damaged_session_out(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    gate = FixedGate(lambda _: Ask("May I?"))
    with SqliteJournal(path) as journal:
        replies = [[call("send", {})], [call("send", {})]]
        agent = Agent(ScriptedModel(replies), name="helper", tools=[send], gate=gate)
        async with run_service(agent, journal=journal) as running:
            ann = await running.make_client("ann")
            await start(ann, "good", "waiting")
            await start(ann, "bad", "waiting")
        # The message of each waits for a worker, that of the damaged one first.
        await control.steer(journal, "ann.bad", "Be quick.")
        later = Agent(ScriptedModel([]), name="helper", tools=[send], gate=gate, journal=journal)
        options: dict[str, Any] = {"caller": "ann", "context": {SERVICE_KEY: True}}
        await later.start("Go.", session="ann.later", drive=False, **options)
    damage(path, "ann.bad")
    with SqliteJournal(path) as journal:
        agent = Agent(ScriptedModel(["Sent."]), name="helper", tools=[send], gate=gate)
        async with run_service(agent, journal=journal) as running:
            ann = await running.make_client("ann")
            questions = (await ann.get("/questions")).data["questions"]
            assert [one["session"] for one in questions] == ["ann.good"]
            await wait_for(ann, "later", "completed")
