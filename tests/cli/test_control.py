"""`windlass steer`, `pause`, `raise` and `cancel`, with nothing but a journal."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner
from typing_extensions import override

import windlass.cli
from windlass import Agent, Limits
from windlass.agent.control import pause
from windlass.cli.control import post_and_describe
from windlass.core.fold.run import fold
from windlass.core.result import RunFailed
from windlass.journals.memory import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import PowerCutJournal, ScriptedModel

SESSION = "orders-7"


async def left_open(path: Path) -> None:
    """A run whose process has died before its first reply."""
    with SqliteJournal(path) as journal:
        cut = PowerCutJournal(journal, 2, "after")
        agent = Agent(ScriptedModel(["Done."]), journal=cut, limits=Limits(steps=3))
        with pytest.raises(RunFailed):
            await agent.run("Go.", session=SESSION)


def run_command(path: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(windlass.cli.main, [*words, "--journal", str(path)])
    return done.exit_code, done.output


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.leaves_tasks
@pytest.mark.contract("D3")
def test_a_run_that_nobody_drives_is_spoken_to_from_a_shell(tmp_path: Path) -> None:
    """D3: text waits for a driver, limits and a cancel take effect at once."""
    path = tmp_path / "s.db"
    asyncio.run(left_open(path))
    code, text = run_command(path, "steer", "orders", "in", "blue")
    assert (code, 'agent.resume("orders-7")' in text) == (0, True)
    code, text = run_command(path, "pause", "orders", "--reason", "lunch")
    assert (code, "nobody drives" in text) == (0, True)
    code, text = run_command(path, "raise", "orders", "--steps", "9")
    assert code == 0
    code, text = run_command(path, "cancel", "orders")
    assert (code, "has ended" in text) == (0, True)
    code, text = run_command(path, "cancel", "orders")
    assert (code, "no open run" in text) == (12, True)
    code, text = run_command(path, "raise", "orders")
    assert (code, "no limit is given" in text) == (2, True)

    async def outcome() -> str | None:
        with SqliteJournal(path) as journal:
            run = fold(SESSION, await journal.read(SESSION)).run
            return run.outcome if run else None

    assert asyncio.run(outcome()) == "cancelled"


class LateDeath(MemoryJournal):
    """A store that takes a moment to notice that the driver of a session has died."""

    looks = 0

    @override
    async def is_leased(self, session: str) -> bool:
        self.looks += 1
        return self.looks == 1


@pytest.mark.leaves_tasks
@pytest.mark.contract("D3")
async def test_a_driver_that_has_just_died_is_not_waited_for() -> None:
    """D3: whose death shows only while the message waits for it, drives nothing."""
    journal = LateDeath()
    cut = PowerCutJournal(journal, 2, "after")
    with pytest.raises(RunFailed):
        await Agent(ScriptedModel(["Done."]), journal=cut).run("Go.", session=SESSION)
    said = await post_and_describe(journal, SESSION, pause)
    assert "nobody drives session orders-7" in said
    assert journal.looks == 2
