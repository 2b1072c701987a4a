"""Real disks that are full, limits that are reached, files that may not be written: named so."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobody import as_nobody
from windlass.core.errors import ConfigError, JournalFailed
from windlass.journals import MemoryJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts, error_of
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.contract("J1", "U1"), pytest.mark.realtime]

FILL = """
import asyncio, resource, sys
from windlass.core.errors import JournalFailed
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import start_append
from windlass.testing.samples import note_facts

path, limit = sys.argv[1], int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

async def fill():
    with SqliteJournal(path) as journal:
        for last in range(10, 10_000, 10):
            await start_append(journal, "s", note_facts(last - 9, last))

try:
    asyncio.run(fill())
except JournalFailed as error:
    sys.stderr.write(str(error))
"""


def fill_until_it_fails(path: Path, *, limit_bytes: int = 0, disk: str = "") -> str:
    """Write until an error comes, and return it; `disk` is the size of a small disk of its own."""
    command = [sys.executable, "-c", FILL, str(path), str(limit_bytes)]
    if disk:
        mount = f'mount -t tmpfs -o size={disk} none "$0" && exec "$@"'
        command = ["unshare", "-Urm", "sh", "-c", mount, str(path.parent), *command]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", folder]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("size", ["16k", "64k", "200k"])
def test_a_full_disk_is_told(tmp_path: Path, size: str) -> None:
    """However little room there is, and whichever file does not fit."""
    if not can_mount():
        pytest.skip("this user may not mount a disk")
    error = fill_until_it_fails(tmp_path / "journal.db", disk=size)
    assert "the disk is full; free some space" in error
    assert "the disk failed" not in error


@pytest.mark.parametrize("limit_bytes", [20_000, 40_000, 200_000])
def test_a_file_size_limit_is_told(tmp_path: Path, limit_bytes: int) -> None:
    """It is a limit of the process, and not a broken disk."""
    error = fill_until_it_fails(tmp_path / "journal.db", limit_bytes=limit_bytes)
    assert "file-size limit of this process" in error
    assert "the disk failed" not in error


@pytest.fixture
def locked_up() -> Iterator[Path]:
    """A journal beside a lock file that only its owner may change, and only after a chmod."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "journal.db"
        Path(f"{path}-drivers").touch(0o444)
        yield path


async def test_a_lock_file_that_may_not_be_written_is_told(locked_up: Path) -> None:
    """It does not mean that another driver has the session."""
    with SqliteJournal(locked_up) as journal:
        await append_facts(journal, "s", note_facts(1, 1))
        with as_nobody():
            errors = [
                await error_of(journal.lease("s")),
                await error_of(journal.is_leased("s")),
            ]
    for error in errors:
        assert isinstance(error, JournalFailed)
        assert f"{locked_up}-drivers: the lock file" in str(error)
        assert "Permission denied" in str(error)


def test_memory_as_a_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a file of that name; the error names the journal in memory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"{MemoryJournal.__name__}\(\)"):
        SqliteJournal(":memory:")
    assert not list(tmp_path.iterdir())
