"""Whoever looks on, from any record, here or from another process, sees each record once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from drivers import WAIT_S, drive_session, make_agent
from proof.crash.trial import fork_context
from windlass import Agent
from windlass.core.events import Event, Fact, RunEnded
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel

pytestmark = pytest.mark.slow

PAUSE_S = 0.03


async def seen_by(agent: Agent[str], after: int) -> list[Event]:
    async with asyncio.timeout(WAIT_S):
        return [event async for event in agent.watch("s", after=after)]


def facts_in(events: Sequence[Event]) -> list[Event]:
    """Without what was shown between records; places are in order, and none comes twice."""
    places = [(event.seq, event.nth) for event in events]
    assert places == sorted(set(places))
    return [event for event in events if not event.nth]


async def begun(journal: SqliteJournal, facts: int = 1) -> None:
    """Wait until another process has written so much."""
    async with asyncio.timeout(WAIT_S):
        while len(await journal.read("s")) < facts:
            await journal.wait_for_append("s", facts - 1)


@pytest.mark.realtime
async def test_watching_from_every_record_in_the_same_process(tmp_path: Path) -> None:
    """E5: watchers that come one after the other while the run goes on."""
    with SqliteJournal(tmp_path / "s.db") as journal:
        agent, watching = make_agent(journal, PAUSE_S), list[asyncio.Task[list[Event]]]()
        running = asyncio.create_task(agent.run("Go.", session="s"))
        after = 0
        while not running.done():
            await asyncio.sleep(PAUSE_S / 5)
            watching.append(asyncio.create_task(seen_by(agent, after)))
            after = (after + 3) % 25
        facts = list(await journal.read("s"))
        starts = [(at * 3) % 25 for at in range(len(watching))]
        for start, task in zip(starts, watching, strict=False):
            assert facts_in(await task) == _past(facts, start)
    assert len(watching) > 10


def _past(facts: Sequence[Fact], after: int) -> list[Fact]:
    return [fact for fact in facts if fact.seq > after]


@pytest.mark.realtime
@pytest.mark.slow
async def test_watching_from_every_record_in_another_process(tmp_path: Path) -> None:
    """E5: the watchers come while the run goes on, and end when it does."""
    process = fork_context().Process(
        target=drive_session, args=(tmp_path, "s", PAUSE_S, False), daemon=True
    )
    with SqliteJournal(tmp_path / "s.db") as journal:
        process.start()
        await begun(journal)
        agent = Agent(ScriptedModel([]), journal=journal)
        watching = [asyncio.create_task(seen_by(agent, after)) for after in range(0, 40, 3)]
        seen = [await task for task in watching]
        facts = list(await journal.read("s"))
    process.join()
    assert isinstance(facts[-1], RunEnded)
    for after, events in zip(range(0, 40, 3), seen, strict=True):
        assert facts_in(events) == _past(facts, after)


@pytest.mark.realtime
async def test_watching_ends_when_the_run_waits_for_a_person(tmp_path: Path) -> None:
    """E5, G6: nobody drives any more, and nothing was missed."""
    process = fork_context().Process(
        target=drive_session, args=(tmp_path, "s", PAUSE_S, True), daemon=True
    )
    with SqliteJournal(tmp_path / "s.db") as journal:
        process.start()
        await begun(journal)
        events = await seen_by(Agent(ScriptedModel([]), journal=journal), 1)
        assert facts_in(events) == list(await journal.read("s", 1))
    process.join()
    assert process.exitcode == 0
    assert type(facts_in(events)[-1]).__name__ == "CallJudged"


@pytest.mark.realtime
@pytest.mark.parametrize("after", [0, 4])
async def test_watching_ends_when_the_driver_is_killed(tmp_path: Path, after: int) -> None:
    """E5: a dead driver lets go; whoever looked on has seen all that it wrote."""
    process = fork_context().Process(
        target=drive_session, args=(tmp_path, "s", WAIT_S, False), daemon=True
    )
    with SqliteJournal(tmp_path / "s.db") as journal:
        process.start()
        await begun(journal, 2)
        watching = asyncio.create_task(seen_by(Agent(ScriptedModel([]), journal=journal), after))
        await asyncio.sleep(PAUSE_S)
        assert not watching.done()
        process.kill()
        process.join()
        assert facts_in(await watching) == list(await journal.read("s", after))
