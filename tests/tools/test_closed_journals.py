"""A journal in the workspace that is closed while a command runs: what hid it must stay."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shells import require_tier
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T13")]
# It waits until the files are there for the taking, or until it is told that all is over.
ATTACK = """
touch began
until [ -e over ]; do
    for name in agent.db agent.db-wal agent.db-shm agent.db-journal agent.db-drivers; do
        (echo forged > $name) 2>/dev/null && [ -s $name ] && echo wrote $name
        echo forged > other; mv -f other $name 2>/dev/null && echo replaced $name
        rm -f $name 2>/dev/null && echo removed $name
        ln -sf /etc/passwd $name 2>/dev/null && echo linked $name
    done
    sleep 0.02
done
echo done
"""
OTHER_PROCESS = """
import asyncio, sys
from windlass import Agent
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel
with SqliteJournal(sys.argv[1]) as journal:
    asyncio.run(Agent(ScriptedModel(["Hello."]), journal=journal).run("Hi.", session="t"))
    print("open", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_tier("bubblewrap")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def append_notes(journal: SqliteJournal) -> None:
    await append_facts(journal, "s", note_facts(1, 3))


async def start_attack(root: Path) -> "asyncio.Task[str]":
    """Start the command, and return once it is at work."""
    shell = open_shell(root, sandbox=Sandbox(require="bubblewrap"))

    async def attack() -> str:
        try:
            return (await shell.tools[0](RunContext(deps=None), ATTACK)).text
        finally:
            shell.close()

    task = asyncio.create_task(attack())
    while not (root / "began").exists():  # noqa: ASYNC110 - a file of another process
        await asyncio.sleep(0.01)
    return task


async def end_attack(root: Path, task: "asyncio.Task[str]") -> str:
    """Let the command try for a while longer, then return what it got done."""
    await asyncio.sleep(0.3)
    (root / "over").touch()
    return await task


async def test_a_command_that_outlives_the_journal_cannot_write_its_files(root: Path) -> None:
    path = root / "agent.db"
    journal = SqliteJournal(path)
    await append_facts(journal, "s", note_facts(1, 3))
    attack = await start_attack(root)
    await append_facts(journal, "s", note_facts(4, 5))
    journal.close()
    assert (await end_attack(root, attack)).startswith("done")
    with SqliteJournal(path) as journal:
        assert len(await journal.read("s")) == 5
        assert await journal.verify("s") == []
        assert await journal.check() == []


async def test_nor_if_it_is_opened_and_closed_again_meanwhile(root: Path) -> None:
    path = root / "agent.db"
    SqliteJournal(path).close()
    attack = await start_attack(root)
    for first in (1, 4, 7):
        with SqliteJournal(path) as journal:
            await append_facts(journal, "s", note_facts(first, first + 2))
    assert (await end_attack(root, attack)).startswith("done")
    with SqliteJournal(path) as journal:
        assert len(await journal.read("s")) == 9
        assert await journal.check() == []


async def test_nor_if_another_process_closes_it_last(root: Path) -> None:
    path = root / "agent.db"
    command = [sys.executable, "-c", OTHER_PROCESS, str(path)]
    pipe = subprocess.PIPE
    other = await asyncio.to_thread(subprocess.Popen, command, stdin=pipe, stdout=pipe, text=True)
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "open\n"
    attack = await start_attack(root)
    other.stdin.close()
    await asyncio.to_thread(other.wait)
    other.stdout.close()
    assert (await end_attack(root, attack)).startswith("done")
    with SqliteJournal(path) as journal:
        assert len(await journal.read("t")) > 3
        assert await journal.check() == []


def test_a_journal_that_no_sandbox_saw_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Its log is part of the file once it is closed, so that it can be copied alone."""
    with SqliteJournal(tmp_path / "journal.db") as journal:
        asyncio.run(append_notes(journal))
    assert not list(tmp_path.glob("journal.db-[ws]*"))


async def test_a_closed_journal_is_whole_without_its_side_files(root: Path) -> None:
    """Also if they stay: a copy of the file alone has all records."""
    path = root / "agent.db"
    journal = SqliteJournal(path)
    await append_facts(journal, "s", note_facts(1, 3))
    attack = await start_attack(root)
    await append_facts(journal, "s", note_facts(4, 5))
    journal.close()
    await end_attack(root, attack)
    copy = root.parent / "copy.db"
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as file:
        assert file.execute("SELECT count(*) FROM records").fetchone() == (5,)
