"""A service that stops lets go of its runs, and the next one goes on with them by itself."""

import asyncio
from pathlib import Path

import pytest

from service import RunningService, run_service
from windlass import Agent, tool
from windlass.core.events import RunReleased, RunStarted
from windlass.journals import open_journal
from windlass.server.limits import ServiceLimits
from windlass.testing import ScriptedModel, call, pause, say


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


async def wait_for_state(running: RunningService, session: str, state: str) -> None:
    """Ask the journal: a caller who asks this often would meet the limits of the service."""
    async with asyncio.timeout(600):
        while True:
            found = await running.service.journal.sessions()
            if {one.session: one.state for one in found}.get(session) == state:
                return
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


@pytest.mark.realtime
@pytest.mark.contract("A3")
async def test_a_deploy_cuts_no_reply_and_begins_no_step(tmp_path: Path) -> None:
    """A3: the reply under way is recorded here, and nothing of it is asked for again."""
    journal = open_journal(tmp_path / "sessions.db")
    first = ScriptedModel([[say("I send "), pause(1), say("it."), call("send", {"text": "hi"})]])
    agent = Agent(first, name="helper", tools=[send])
    async with run_service(agent, journal=journal) as running:
        ann = await running.make_client("ann")
        await ann.post("/runs", {"prompt": "Send it.", "session": "a"})
        while not first.requests:  # noqa: ASYNC110 - a model notifies no one
            await asyncio.sleep(0.1)
        draining = asyncio.create_task(running.service.drain())
        await asyncio.sleep(0)
        assert not running.service.is_ready
        # Sessions are still read, and no run begins.
        assert (await ann.get("/runs/a")).status == 200
        refused = await ann.post("/runs", {"prompt": "Another one."})
        assert (refused.status, refused.data["error"]["code"]) == (503, "draining")
        assert refused.headers["Retry-After"] == "1"
        await draining
    facts = [type(fact).__name__ for fact in await journal.read("ann.a")]
    assert facts[-2:] == ["StepProposed", "RunReleased"]
    with ScriptedModel(["Sent."]) as second:
        agent = Agent(second, name="helper", tools=[send])
        async with run_service(agent, journal=journal) as running:
            await wait_for_state(running, "ann.a", "completed")
    assert (first.requests, second.requests) == (1, 1)
    journal.close()


@pytest.mark.realtime
@pytest.mark.contract("A3")
async def test_a_reply_that_takes_too_long_is_cut_and_asked_for_again(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "sessions.db")
    first = ScriptedModel([[say("Wri"), pause(600)]])
    limits = ServiceLimits(drain_s=0.2)
    agent = Agent(first, name="helper")
    async with run_service(agent, journal=journal, limits=limits) as running:
        ann = await running.make_client("ann")
        await ann.post("/runs", {"prompt": "Write.", "session": "a"})
        while not first.requests:  # noqa: ASYNC110 - a model notifies no one
            await asyncio.sleep(0.1)
    with ScriptedModel(["Written."]) as second:
        async with run_service(Agent(second, name="helper"), journal=journal) as running:
            await wait_for_state(running, "ann.a", "completed")
    journal.close()


@pytest.mark.realtime
@pytest.mark.contract("A3")
async def test_releasing_again_waits_for_nothing(tmp_path: Path) -> None:
    """A3: the second signal of `serve` does this."""
    journal = open_journal(tmp_path / "sessions.db")
    first = ScriptedModel([[say("Wri"), pause(600)]])
    limits = ServiceLimits(drain_s=600)
    async with run_service(Agent(first, name="helper"), journal=journal, limits=limits) as running:
        ann = await running.make_client("ann")
        await ann.post("/runs", {"prompt": "Write.", "session": "a"})
        while not first.requests:  # noqa: ASYNC110 - a model notifies no one
            await asyncio.sleep(0.1)
        draining = asyncio.create_task(running.service.drain())
        await asyncio.sleep(0.3)
        assert not draining.done()
        running.service.release_runs()
        await asyncio.wait_for(draining, 60)
    assert any(isinstance(fact, RunReleased) for fact in await journal.read("ann.a"))
    journal.close()
