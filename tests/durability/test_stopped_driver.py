"""A driver that is stopped inside a tool, cut off, replaced and woken: the effect happens once."""

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from windlass import Agent, RunResult
from windlass.core.errors import SessionBusy
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel

pytestmark = [pytest.mark.slow, pytest.mark.contract("F3"), pytest.mark.realtime]
postgres = pytest.importorskip("postgres")
CHILD = Path(__file__).parents[1] / "support" / "stopped_child.py"
END_OTHER_BACKENDS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database()
"""


def wait_for(path: Path) -> None:
    ends_at = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < ends_at, "the child did not get there"
        time.sleep(0.01)


async def take_over(dsn: str, folder: Path, guard: str) -> RunResult[str]:
    from stopped_child import make_pay_tool  # noqa: PLC0415 - it needs the extra of Postgres

    async with PostgresJournal(dsn) as journal:
        tools = [make_pay_tool(folder, guard, lambda: False)]
        agent = Agent(ScriptedModel(["Paid."]), tools=tools, journal=journal)
        async with asyncio.timeout(60):
            while True:
                # Soon after the start of a server, a missing lock tells nothing.
                with suppress(SessionBusy):
                    return await agent.resume("s")
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("guard", ["ask", "ask in a thread", "token"])
def test_a_driver_that_wakes_inside_a_tool_does_nothing(tmp_path: Path, guard: str) -> None:
    """J2: the tool asks who drives, or the service refuses its token."""
    dsn = postgres.dsn_of(tmp_path)
    command = [sys.executable, str(CHILD), dsn, str(tmp_path), guard]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(tmp_path / "inside")
        child.send_signal(signal.SIGSTOP)
        # The server gives up on a client that does not answer, and frees its lease.
        postgres.run_sql(dsn, END_OTHER_BACKENDS)
        result = asyncio.run(take_over(dsn, tmp_path, guard))
        assert (result.outcome, result.text) == ("completed", "Paid.")
        (tmp_path / "go").touch()
        child.send_signal(signal.SIGCONT)
        output, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    # It finds out by an append that is refused, or by its lease, whichever comes first.
    assert output.strip() in ("FailedByJournal", "released")
    tokens = (tmp_path / "payments").read_text().split()
    assert len(tokens) == 1, "paid once"
    assert int(tokens[0]) > 1, "by the second driver, whose token is higher"
