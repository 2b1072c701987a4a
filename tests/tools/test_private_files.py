"""Journals in the workspace that this process did not open: hidden from commands and tools."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shells import require_tier
from windlass import private_files
from windlass.core.errors import ModelRetry
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.private_files import SEARCH_DEPTH_MAX, is_private_file, list_private_files
from windlass.tools.files.workspace import Workspace
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import open_shell

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


async def test_a_journal_that_is_in_no_registry_is_found_by_its_name(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: as one of another user, or of a process with another state folder."""
    with monkeypatch.context() as other_user:
        other_user.setenv("XDG_STATE_HOME", str(root.parent / "state"))
        with other_process(root / "a" / "s.db", is_open=False):
            pass
    assert "SQLite" not in await run(root, "head -c 100 a/s.db; true")


async def test_the_search_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that is in no registry, and deeper than this, is not found: the docs say so."""
    deep = root.joinpath(*("a" * (SEARCH_DEPTH_MAX + 1)), "s.db")
    with monkeypatch.context() as other_user:
        other_user.setenv("XDG_STATE_HOME", str(root.parent / "state"))
        with other_process(deep, is_open=False):
            pass
    await run(root, "true")
    assert deep.resolve() not in list_private_files()


async def test_a_crowd_of_files_does_not_uncover_the_journal_of_another_process(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: what a process of this user has opened is known, however much there is to search."""
    monkeypatch.setattr(private_files, "SEARCH_ENTRIES_MAX", 50)
    path = root / "notes" / "sessions.db"
    path.parent.mkdir()
    with other_process(path, is_open=True):
        made = await run(root, "mkdir crowd a && touch a/{1..60} crowd/{1..60} && ls crowd | wc -l")
        assert made.strip() == "60"
        assert "SQLite" not in await run(root, f"head -c 100 notes/{path.name} || true")
        assert "RunStarted" not in await run(root, f"strings -a notes/{path.name}* || cat notes/*")
        moved = f"rm -f {path}; echo x > notes/x && mv notes/x {path} || echo denied"
        assert "denied" in await run(root, moved)
    assert path.stat().st_size > 0


@pytest.mark.parametrize("folder", [".git", ".venv", "node_modules", "a/b/c/d/e/f"])
async def test_a_journal_is_hidden_wherever_another_process_opened_it(
    root: Path, folder: str
) -> None:
    """T13: also in folders that no search goes through."""
    path = root / folder / "odd.name"
    path.parent.mkdir(parents=True)
    with other_process(path, is_open=False):
        assert "SQLite" not in await run(root, f"head -c 100 {folder}/odd.name; true")


@pytest.mark.skipif(not os.access("/opt", os.W_OK), reason="needs a folder that is visible")
async def test_a_journal_outside_of_the_workspace_is_not_readable_either(root: Path) -> None:
    """T13: a read-only path shows the records just as well."""
    with tempfile.TemporaryDirectory(dir="/opt") as place:
        path = Path(place) / "sessions.db"
        with other_process(path, is_open=True):
            assert "SQLite" not in await run(root, f"head -c 100 {path}; true")


def test_a_registered_file_that_was_deleted_is_forgotten(tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    kept, gone = tmp_path / "kept.db", tmp_path / "gone.db"
    for path in (kept, gone):
        path.touch()
        private_files.register_private(path, registry)
    assert registry.stat().st_mode & 0o777 == 0o700
    gone.unlink()
    private_files.mark_registered(registry)
    assert [entry.read_text() for entry in registry.iterdir()] == [str(kept)]
