"""A caller fills its own folder with traps, and is exported and erased all the same."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from windlass import FolderStore
from windlass.journals import MemoryJournal
from windlass.server.caller_export import DEPTH_MAX, export_caller
from windlass.server.erasure import CallerEraser
from windlass.server.tokens import TokenStore

pytestmark = pytest.mark.contract("A9")
DEPTH = 1_500
"""More folders inside of one another than Python calls functions."""


@pytest.fixture
def deep_path() -> Generator[Path]:
    """A folder for trees that pytest could not delete either, if a test fails."""
    path = Path(tempfile.mkdtemp())
    yield path
    subprocess.run(["rm", "-rf", path], check=True)


def make_folder(root: Path, caller: str = "mallory") -> tuple[FolderStore, Path]:
    store = FolderStore(root)
    return store, root / store.create(caller).name


def dig(top: Path, depth: int) -> None:
    """Make folders inside of one another, with a file at the bottom."""
    folder = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("bottom.txt", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)


async def read_export(store: FolderStore) -> dict[str, tarfile.TarInfo]:
    pieces = export_caller(MemoryJournal(), "mallory", store)
    data = b"".join([piece async for piece in pieces])
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        return {member.name: member for member in packed if member.name.startswith("folder/")}


async def test_a_folder_that_is_very_deep_is_exported_and_erased(deep_path: Path) -> None:
    store, folder = make_folder(deep_path)
    dig(folder, DEPTH)
    (folder / "top.txt").write_text("plans")
    assert list(await read_export(store)) == ["folder/top.txt"]
    journal = MemoryJournal()
    erased = await CallerEraser(journal, TokenStore(journal), store).erase("mallory")
    assert (erased.folders, erased.is_done, folder.exists()) == (1, True, False)


async def test_what_was_left_out_of_an_export_is_named(deep_path: Path) -> None:
    store, folder = make_folder(deep_path)
    dig(folder, DEPTH_MAX + 1)
    pieces = export_caller(MemoryJournal(), "mallory", store)
    data = b"".join([piece async for piece in pieces])
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        named = packed.extractfile("left_out.txt")
        assert named is not None
        assert named.read().decode().endswith("/".join("d" * DEPTH_MAX))


async def test_links_and_pipes_lead_an_export_nowhere(tmp_path: Path) -> None:
    store, folder = make_folder(tmp_path / "store")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("of another caller")
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "folder").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    (folder / "own.txt").write_text("mine")
    assert list(await read_export(store)) == ["folder/own.txt"]
    assert store.remove("mallory")
    assert (outside / "secret.txt").read_text() == "of another caller"


async def test_a_long_file_is_never_held_as_a_whole(tmp_path: Path) -> None:
    """A file of holes costs its caller nothing, and must not cost the service its memory."""
    store, folder = make_folder(tmp_path)
    with (folder / "holes").open("wb") as file:
        file.truncate(64 * 2**20)
    pieces = export_caller(MemoryJournal(), "mallory", store)
    sizes = [len(piece) async for piece in pieces]
    assert sum(sizes) > 64 * 2**20
    assert max(sizes) <= 2**20


LOCKED = """
import os, sys
from pathlib import Path
from windlass import FolderStore
from windlass.core.setup import name_folder
root = Path(sys.argv[1])
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
store = FolderStore(root)
folder = root / store.create("mallory").name
for name in ("locked", "locked/inner"):
    (folder / name).mkdir()
(folder / "locked/inner/file").write_text("x")
(folder / "locked/inner").chmod(0)
(folder / "locked").chmod(0)
print(store.remove("mallory"), folder.exists())
"""


@pytest.mark.slow
def test_modes_keep_no_folder_from_being_erased(tmp_path: Path) -> None:
    """As an ordinary user: root may enter any folder."""
    root = tmp_path / "store"
    root.mkdir()
    if os.getuid() == 0:
        os.chown(root, 65534, 65534)
        for above in (tmp_path, *tmp_path.parents):
            if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
                above.chmod(above.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", LOCKED, str(root)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True False\n", done.stderr


async def test_a_folder_that_cannot_be_deleted_keeps_no_other_erasure_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = make_folder(tmp_path)
    _, other = make_folder(tmp_path, "ann")
    rmdir = Path.rmdir

    def refuse(path: Path) -> None:
        if path == folder:
            raise PermissionError(13, "the disk is read-only")
        rmdir(path)

    journal = MemoryJournal()
    eraser = CallerEraser(journal, TokenStore(journal), store)
    with monkeypatch.context() as broken:
        broken.setattr(Path, "rmdir", refuse)
        first, second = await asyncio.gather(eraser.erase("mallory"), eraser.erase("ann"))
        assert (first.is_done, first.stores) == (False, (store.read_id(),))
        assert (second.is_done, other.exists()) == (True, False)
        assert [one.is_done for one in await eraser.resume()] == [False]
    assert [one.is_done for one in await eraser.resume()] == [True]
    assert not folder.exists()
