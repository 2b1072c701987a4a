"""Workers of a fleet that are processes: they are killed, and the engine is too."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("temporalio", reason="needs the extra `temporal`")

from postgres import dsn_of
from temporal_server import WAIT_S, Fleet, run_servers, start_temporal
from windlass.core.audit.replay import replay
from windlass.fleet import connect_engine
from windlass.journals.postgres.journal import PostgresJournal
from worker_app import CALLS, agents

__all__ = ["run_servers"]
pytestmark = [pytest.mark.realtime, pytest.mark.slow, pytest.mark.timeout(180)]
SUPPORT = Path(__file__).parent.parent / "support"
RUNS = 8


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    return dsn_of(tmp_path)


@contextmanager
def run_worker(dsn: str, address: str, effects: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "windlass.cli", "worker", "worker_app:agents"]
    process = subprocess.Popen(
        [*command, "--journal", dsn, "--engine", address, "--runs", "8", "--sweep", "0.2"],
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


async def wait_for_lines(path: Path, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while not path.exists() or len(path.read_text("utf-8").split()) < count:  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.05)


@pytest.mark.contract("F1")
@pytest.mark.contract("F3")
async def test_runs_outlive_killed_workers_and_a_killed_engine(tmp_path: Path, dsn: str) -> None:
    """F1, F3: every run ends, no effect is lost or done twice, each session can be replayed."""
    effects = tmp_path / "effects"
    server = start_temporal()
    address = server.address("killed")
    journal = PostgresJournal(dsn)
    fleet = Fleet(await connect_engine(address), address, journal)
    with ExitStack() as stack:
        workers = [stack.enter_context(run_worker(dsn, address, effects)) for _ in range(2)]
        handles = [await fleet.start(agents[0], session=f"run-{at}") for at in range(RUNS)]
        await wait_for_lines(effects, CALLS)
        workers[0].send_signal(signal.SIGKILL)
        await wait_for_lines(effects, 4 * CALLS)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(2 * WAIT_S):
            results = [await handle.result() for handle in handles]
            states = [await fleet.result(handle.session) for handle in handles]
        workers[1].send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(workers[1].wait, WAIT_S) == 0
    assert [result.text for result in results] == ["Done."] * RUNS
    assert states == ["completed"] * RUNS
    counts = Counter(effects.read_text("utf-8").split())
    assert len(counts) == CALLS * RUNS
    assert set(counts.values()) == {1}
    for handle in handles:
        assert replay(handle.session, await journal.read(handle.session)).is_same
        assert list(await journal.verify(handle.session)) == []
    await journal.aclose()
