"""A service that stops lets go of its runs, and the next one goes on with them by itself."""

import asyncio
from pathlib import Path

import pytest

from service import RunningService, run_service
from windlass import Agent, tool
from windlass.core.events import RunReleased, RunStarted
from windlass.journals import open_journal
from windlass.testing import ScriptedModel, call, pause, say


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


async def wait_for_state(running: RunningService, session: str, state: str) -> None:
    admin = await running.make_client("", ["admin"])
    async with asyncio.timeout(60):
        while (await admin.get(f"/runs/{session}")).data["summary"]["state"] != state:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


@pytest.mark.contract("A3")
async def test_the_next_service_goes_on_with_what_the_last_one_let_go(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "sessions.db")
    first = ScriptedModel([[call("send", {"text": "hi"})], [say("Wri"), pause(600)]])
    async with run_service(Agent(first, name="helper", tools=[send]), journal=journal) as running:
        ann = await running.make_client("ann")
        await ann.post("/runs", {"prompt": "Send it.", "session": "a"})
        while first.requests < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    assert any(isinstance(fact, RunReleased) for fact in await journal.read("ann.a"))
    with ScriptedModel(["Written."]) as second:
        agent = Agent(second, name="helper", tools=[send])
        async with run_service(agent, journal=journal) as running:
            await wait_for_state(running, "ann.a", "completed")
    starts = [fact for fact in await journal.read("ann.a") if isinstance(fact, RunStarted)]
    assert len(starts) == 1
    journal.close()


@pytest.mark.contract("A3")
async def test_a_run_of_a_terminal_is_left_to_it(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "sessions.db")
    killed = Agent(ScriptedModel([[pause(600)]]), name="helper", journal=journal)
    await killed.start("Think.", session="terminal", caller="ann")
    await asyncio.sleep(1)
    await killed.aclose()
    with ScriptedModel([]) as model:
        async with run_service(Agent(model, name="helper"), journal=journal) as running:
            await asyncio.sleep(30)
            await wait_for_state(running, "terminal", "open")
    journal.close()
