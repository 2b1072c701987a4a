"""Journals in the workspace that this process did not open: hidden from commands and tools."""

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shells import require_tier
from windlass.core.errors import ModelRetry
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.private_files import SEARCH_DEPTH_MAX, is_private_file, list_private_files
from windlass.tools.files.workspace import Workspace
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.tools import open_shell

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T13")]

CHILD = """
import asyncio, sys
from windlass import Agent
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel
with SqliteJournal(sys.argv[1]) as journal:
    asyncio.run(Agent(ScriptedModel(["Hello."]), journal=journal).run("Hi.", session="s"))
    print("ready", flush=True)
    sys.stdin.readline()
"""
READ_APP = """
import sqlite3
sqlite3.connect("app.db", timeout=0).execute("SELECT * FROM t")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    require_tier("bubblewrap")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def run(root: Path, command: str) -> str:
    shell = open_shell(root, sandbox=Sandbox(require="bubblewrap"))
    try:
        result = await shell.tools[0](RunContext(deps=None), command)
    finally:
        shell.close()
    return result.text.rpartition("\n[")[0]


NEW_CHILD = """
import sys
from windlass.journals.sqlite.journal import SqliteJournal
with SqliteJournal(sys.argv[1]) as journal:
    print("ready", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def other_process(path: Path, *, is_open: bool, program: str = CHILD) -> Iterator[None]:
    """Another process makes a journal, and has it open or has closed it."""
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    if not is_open:
        child.communicate("")
    yield
    if is_open:
        child.communicate("")


@pytest.mark.parametrize("name", ["other.db", "deep/er/state.sqlite3", "odd name"])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
async def test_a_journal_that_another_process_opened_is_out_of_reach(
    root: Path, name: str, *, is_open: bool
) -> None:
    """This process has never heard of it, and a command could answer in it all the same."""
    path = root / name
    attack = "; ".join(
        f"(echo forged > '{name}{suffix}'; rm -f '{name}{suffix}' && echo removed) 2>/dev/null"
        for suffix in ("", "-wal", "-journal", "-drivers")
    )
    with other_process(path, is_open=is_open):
        with pytest.raises(ModelRetry, match="belongs to Windlass"):
            Workspace(root).read_file(name, 10)
        told = await run(root, f"cat '{name}' '{name}-wal' 2>/dev/null | wc -c; {attack}")
    assert told == "0"
    with SqliteJournal(path) as journal:
        assert await journal.check() == []
        assert len(await journal.read("s")) > 0


@pytest.mark.parametrize("name", ["other.db", "odd name"])
async def test_a_journal_that_was_made_a_moment_ago_is_out_of_reach(root: Path, name: str) -> None:
    """Nobody has driven a session of it yet, so there are no locks of drivers beside it."""
    path = root / name
    with other_process(path, is_open=True, program=NEW_CHILD):
        assert not path.with_name(f"{name}-drivers").exists()
        with pytest.raises(ModelRetry, match="belongs to Windlass"):
            Workspace(root).read_file(name, 10)
        read = f"cat '{name}' 2>/dev/null | wc -c"
        overwrite = f"(echo forged > '{name}' && echo overwritten) 2>/dev/null"
        attack = f"{read}; {overwrite}"
        assert await run(root, attack) == "0"
    with SqliteJournal(path) as journal:
        assert await journal.check() == []


def lock_is_held(root: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", READ_APP], cwd=root, capture_output=True, text=True, check=False
    )
    return "database is locked" in done.stderr


async def test_databases_of_other_programs_stay_usable(root: Path) -> None:
    """The search opens no file that this process holds: that would drop its locks."""
    with closing(sqlite3.connect(root / "app.db")) as own:
        own.execute("CREATE TABLE t (x)")
        own.commit()
        own.execute("BEGIN EXCLUSIVE")
        assert lock_is_held(root)
        assert await run(root, "head -c 13 app.db") == "SQLite format"
        assert not is_private_file(root / "app.db")
        assert lock_is_held(root)
    assert not any(path.is_relative_to(root) for path in list_private_files())


def modes_of(root: Path) -> set[int]:
    return {stat.S_IMODE(file.stat().st_mode) for file in root.glob("agent.db*")}


async def test_a_command_leaves_no_file_that_the_journal_cannot_use(root: Path) -> None:
    """A mount over a missing side file would leave one behind that only root could open."""
    SqliteJournal(root / "agent.db").close()
    await run(root, "true")
    assert modes_of(root) == {0o600}
    with SqliteJournal(root / "agent.db") as journal:
        assert await journal.check() == []


async def test_the_search_is_bounded(root: Path) -> None:
    """A journal of another process that is deeper than this is not found: the docs say so."""
    deep = root.joinpath(*("a" * (SEARCH_DEPTH_MAX + 1)), "s.db")
    with other_process(deep, is_open=False):
        await run(root, "true")
    assert deep.resolve() not in list_private_files()
