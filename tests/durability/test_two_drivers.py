"""Two processes go on with the same session at the same moment: one of them drives."""

from pathlib import Path

import pytest

from drivers import BUSY, WAIT_S, make_send_tool, resume_session
from proof.crash.trial import fork_context
from windlass import Agent
from windlass.core.fold.run import fold
from windlass.core.result import RunFailed
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import PowerCutJournal, ScriptedModel, call

CUT = 3
"""The append at which the process before died: the verdict on the call; nothing was sent yet."""


async def left_open(folder: Path, sessions: list[str]) -> None:
    with SqliteJournal(folder / "s.db") as journal:
        for session in sessions:
            cut = PowerCutJournal(journal, CUT, "after")
            agent = Agent(
                ScriptedModel([call("send")]), tools=[make_send_tool(folder)], journal=cut
            )
            with pytest.raises(RunFailed):
                await agent.run("Go.", session=session)
            assert cut.dead


async def both(folder: Path, sessions: list[str]) -> None:
    """Each session once, by two processes at the same moment."""
    await left_open(folder, sessions)
    forked = fork_context()
    for session in sessions:
        given = (folder, session, forked.Barrier(2), forked.Event())
        pair = [forked.Process(target=resume_session, args=given, daemon=True) for _ in range(2)]
        for process in pair:
            process.start()
        for process in pair:
            process.join(WAIT_S)
        assert sorted(process.exitcode or 0 for process in pair) == [0, BUSY]
    assert len((folder / "sent.txt").read_text("utf-8").split()) == len(sessions)
    with SqliteJournal(folder / "s.db") as journal:
        for session in sessions:
            run = fold(session, await journal.read(session)).run
            assert run is not None
            assert run.outcome == "completed"


@pytest.mark.realtime
@pytest.mark.leaves_tasks
@pytest.mark.slow
async def test_one_of_two_drivers_drives(tmp_path: Path) -> None:
    """L14: the other is refused before it does anything."""
    await both(tmp_path, [f"s{at}" for at in range(5)])


@pytest.mark.timeout(180)
@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.leaves_tasks
async def test_one_of_two_drivers_drives_a_hundred_times(tmp_path: Path) -> None:
    """L14."""
    await both(tmp_path, [f"s{at}" for at in range(100)])
