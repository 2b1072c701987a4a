"""A workspace: nothing outside of its root is read or changed, whatever a path says."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError, ModelRetry
from windlass.tools.files.paths import DEPTH_MAX
from windlass.tools.files.workspace import FileContent, Workspace

SECRET = b"SECRET"
MUCH = 10_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a file beside it that must not be reached."""
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.txt").write_bytes(SECRET)
    inside = tmp_path / "root"
    (inside / "folder").mkdir(parents=True)
    (inside / "a.txt").write_bytes(b"a")
    (inside / "folder" / "b.txt").write_bytes(b"b")
    return inside


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace(root)


def refused(act: Callable[[], object]) -> str:
    """What a model is told: one line."""
    with pytest.raises(ModelRetry) as told:
        act()
    text = str(told.value)
    assert text.isprintable(), text
    assert len(text) < 600
    return text


def read(workspace: Workspace, path: str) -> bytes:
    return workspace.read_file(path, MUCH).data


# ── paths ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["a.txt", "./a.txt", "folder/../a.txt", "//a.txt"[1:], "a.txt/"])
def test_paths_inside(workspace: Workspace, root: Path, path: str) -> None:
    """T13: a path is taken as it is meant."""
    given_path = f"{root}{path}" if path.startswith("/") else path
    assert read(workspace, given_path) == b"a"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "folder/../../secret.txt",
        "/etc/passwd",
        "/",
        "..",
        "folder/../..",
        "../root/a.txt",
        "/proc/self/root/etc/passwd",
    ],
)
def test_paths_outside_are_refused(workspace: Workspace, path: str) -> None:
    """T13: paths cannot leave the workspace."""
    assert "outside of the workspace" in refused(lambda: workspace.read_file(path, MUCH))
    assert "outside of the workspace" in refused(lambda: workspace.write_file(path, b"x"))
    assert "outside of the workspace" in refused(lambda: workspace.list_entries(path))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a\0b", "NUL"),
        ("a\ud800", "unpaired surrogate"),
        ("x" * 256, "too long"),
        ("x/" * 3_000, "too long"),
        ("d/" * (DEPTH_MAX + 5) + "x", "deep"),
        ("~/x", "`~`"),
        ("new\nname", "unprintable"),
        ("new\x1b[2J/x", "unprintable"),
    ],
)
def test_odd_paths_are_refused_in_words(workspace: Workspace, path: str, why: str) -> None:
    """T13: odd names; T7: what is wrong is told in a line."""
    assert why in refused(lambda: workspace.write_file(path, b"x"))


def test_a_file_with_an_odd_name_can_be_read(workspace: Workspace, root: Path) -> None:
    """T13: what is there can be named, though none like it can be made."""
    (root / "two\nlines").write_bytes(b"odd")
    (root / "half\udc80").write_bytes(b"odd")
    assert read(workspace, "two\nlines") == read(workspace, "half\udc80") == b"odd"


def test_near_names_are_told(workspace: Workspace) -> None:
    """T7."""
    assert "Did you mean b.txt?" in refused(lambda: workspace.read_file("folder/c.txt", MUCH))
    assert "does not exist" in refused(lambda: workspace.read_file("nowhere/c.txt", MUCH))
    assert "is a folder" in refused(lambda: workspace.read_file("folder", MUCH))
    assert "not a folder" in refused(lambda: workspace.list_entries("a.txt"))
    assert "does not exist" in refused(lambda: workspace.read_file("a.txt/b", MUCH))


def test_a_root_must_be_a_folder(root: Path) -> None:
    with pytest.raises(ConfigError, match="not a folder"):
        Workspace(root / "a.txt")


def test_a_file_has_one_key(workspace: Workspace, root: Path) -> None:
    """T2: however a call spells it."""
    (root / "link").symlink_to("folder")
    spellings = ["folder/b.txt", "./folder//b.txt", "link/b.txt", f"{root}/link/../folder/b.txt"]
    assert {workspace.resource_key(path) for path in spellings} == {"folder/b.txt"}


# ── links ────────────────────────────────────────────────────────────────────


def test_links_inside_are_followed(workspace: Workspace, root: Path) -> None:
    """T13."""
    (root / "to_file").symlink_to("folder/b.txt")
    (root / "to_folder").symlink_to(root / "folder")
    (root / "folder" / "up").symlink_to("../a.txt")
    assert read(workspace, "to_file") == b"b"
    assert read(workspace, "to_folder/b.txt") == b"b"
    assert read(workspace, "to_folder/up") == b"a"
    assert read(workspace, "to_folder/../a.txt") == b"a"
    workspace.write_file("to_file", b"new")
    assert (root / "to_file").is_symlink()
    assert (root / "folder" / "b.txt").read_bytes() == b"new"


@pytest.mark.parametrize(
    "target", ["../secret.txt", "../outside", "/etc", "folder/../../secret.txt", "chain"]
)
def test_links_that_lead_out_are_refused(workspace: Workspace, root: Path, target: str) -> None:
    """T13: also not by symlink, wherever it stands in the path."""
    (root / "chain").symlink_to("folder/out")
    (root / "folder" / "out").symlink_to("../../outside")
    (root / "link").symlink_to(target)
    for path in ("link", "link/a.txt", "link/new.txt"):
        refused(lambda path=path: workspace.read_file(path, MUCH))
        assert "outside" in refused(lambda path=path: workspace.write_file(path, b"x"))
    assert sorted(one.name for one in (root.parent / "outside").iterdir()) == ["a.txt"]
    assert (root.parent / "secret.txt").read_bytes() == SECRET


def test_a_circle_of_links_ends(workspace: Workspace, root: Path) -> None:
    """T13."""
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    assert "too many links" in refused(lambda: workspace.read_file("one", MUCH))


def test_a_walk_does_not_follow_links(workspace: Workspace, root: Path) -> None:
    """T13: nor go into what is skipped, unless it begins there."""
    (root / "out").symlink_to(root.parent / "outside")
    (root / "round").symlink_to(".")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "m.js").touch()
    (root / "folder-2").touch()
    assert list(workspace.walk_files()) == ["a.txt", "folder/b.txt", "folder-2"]
    assert list(workspace.walk_files("node_modules")) == ["node_modules/m.js"]


SWAP = """
import ctypes, os, sys
one, other = map(os.fsencode, sys.argv[1:])
swap = ctypes.CDLL(None, use_errno=True).renameat2
AT_FDCWD, RENAME_EXCHANGE = -100, 2
print(swap(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE), flush=True)
while not swap(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE):
    pass
"""


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Let another process exchange two things, without a gap, as fast as can be."""
    command = [sys.executable, "-c", SWAP, str(one), str(other)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            yield
            assert process.poll() is None, "the swapping ended early"
        finally:
            process.kill()


def attempts(seen: set[bytes], wanted: set[bytes]) -> Iterator[int]:
    """2,000 at least, and more until all that is wanted was seen."""
    for count in range(200_000):
        if count >= 2_000 and wanted <= seen:
            return
        yield count
    pytest.fail(f"only {seen} was seen")


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can exchange two names")


@on_linux
@pytest.mark.slow
def test_a_file_that_turns_into_a_link_is_not_followed(workspace: Workspace, root: Path) -> None:
    """T13: races. Never a byte from outside, in 2,000 reads and more."""
    (root / "racy").write_bytes(b"inside")
    (root / "link").symlink_to("../secret.txt")
    seen: set[bytes] = set()
    with swapping(root / "racy", root / "link"):
        for _ in attempts(seen, {b"inside", b"refused"}):
            try:
                seen.add(read(workspace, "racy"))
            except ModelRetry:
                seen.add(b"refused")
    assert seen == {b"inside", b"refused"}


@on_linux
@pytest.mark.slow
def test_a_folder_that_turns_into_a_link_is_not_followed(workspace: Workspace, root: Path) -> None:
    """T13: races, in the middle of a path; neither to read nor to write."""
    (root / "racy").mkdir()
    (root / "racy" / "a.txt").write_bytes(b"inside")
    (root / "link").symlink_to("../outside")
    seen: set[bytes] = set()
    with swapping(root / "racy", root / "link"):
        for _ in attempts(seen, {b"inside", b"refused", b"written"}):
            try:
                seen.add(read(workspace, "racy/a.txt"))
                workspace.write_file("racy/w.txt", b"w")
                seen.add(b"written")
            except ModelRetry:
                seen.add(b"refused")
    assert seen == {b"inside", b"refused", b"written"}
    assert [one.name for one in (root.parent / "outside").iterdir()] == ["a.txt"]
    assert (root.parent / "outside" / "a.txt").read_bytes() == SECRET


@on_linux
@pytest.mark.slow
def test_a_walk_through_a_folder_that_turns_into_a_link(workspace: Workspace, root: Path) -> None:
    """T13: races. What lies outside is not even named."""
    (root / "racy").mkdir()
    (root / "link").symlink_to("../outside")
    with swapping(root / "racy", root / "link"):
        for _ in range(1_000):
            assert set(workspace.walk_files()) == {"a.txt", "folder/b.txt"}


@pytest.mark.parametrize("path", ["racy", "racy/a.txt"], ids=["file", "folder"])
def test_a_link_that_comes_between_check_and_use_is_not_followed(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """T13: the race at its worst moment, always: after each look, before the open that follows."""
    open_really = os.open
    target, aside = root / "racy", root / "aside"
    swaps: list[str] = []

    def swap_and_open(name: str | Path, flags: int, mode: int = 0o777, **more: Any) -> int:
        if name == "racy" and not target.is_symlink():
            target.rename(aside)
            target.symlink_to("../secret.txt" if path == "racy" else "../outside")
            swaps.append(str(name))
        return open_really(name, flags, mode, **more)

    if path == "racy":
        target.write_bytes(b"inside")
    else:
        target.mkdir()
        (target / "a.txt").write_bytes(b"inside")
    monkeypatch.setattr(os, "open", swap_and_open)
    refused(lambda: workspace.read_file(path, MUCH))
    assert swaps == ["racy"]
    refused(lambda: workspace.write_file("racy/w.txt", b"x"))
    assert "w.txt" not in [one.name for one in (root.parent / "outside").iterdir()]


def test_a_link_that_comes_before_the_rename_is_replaced(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: a write never goes through it."""
    rename_really = os.rename

    def swap_and_rename(source: str, target: str, **folders: int) -> None:
        (root / "a.txt").unlink()
        (root / "a.txt").symlink_to("../secret.txt")
        rename_really(source, target, **folders)

    monkeypatch.setattr(os, "rename", swap_and_rename)
    workspace.write_file("a.txt", b"new")
    assert (root / "a.txt").read_bytes() == b"new"
    assert not (root / "a.txt").is_symlink()
    assert (root.parent / "secret.txt").read_bytes() == SECRET


# ── what is no plain file ────────────────────────────────────────────────────


def test_pipes_sockets_and_devices_are_refused(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: and a pipe that nobody writes to does not hold anybody up."""
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in ("pipe", "socket"):
            assert "not a file" in refused(lambda path=path: workspace.read_file(path, MUCH))
            assert "not a file" in refused(lambda path=path: workspace.write_file(path, b"x"))
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


# ── writing ──────────────────────────────────────────────────────────────────


def test_a_write_keeps_the_mode_and_makes_folders(workspace: Workspace, root: Path) -> None:
    """T13."""
    (root / "a.txt").chmod(0o750)
    assert workspace.write_file("a.txt", b"new") is False
    assert (root / "a.txt").read_bytes() == b"new"
    assert stat.S_IMODE((root / "a.txt").stat().st_mode) == 0o750
    assert workspace.write_file("deep/er/c.txt", b"c") is True
    assert (root / "deep" / "er" / "c.txt").read_bytes() == b"c"


def test_a_read_only_file_stays_as_it_is(workspace: Workspace, root: Path) -> None:
    (root / "a.txt").chmod(0o444)
    assert "read-only" in refused(lambda: workspace.write_file("a.txt", b"x"))


def test_a_write_is_whole_or_not_at_all(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13: whatever fails before the end leaves the old content, and nothing beside it."""

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        workspace.write_file("a.txt", b"new")
    assert (root / "a.txt").read_bytes() == b"a"
    assert sorted(one.name for one in root.iterdir()) == ["a.txt", "folder"]


def test_readers_see_the_old_content_or_the_new(workspace: Workspace, root: Path) -> None:
    """T13: never a mixture."""
    contents = (b"x" * 50_000, b"y" * 70_000)
    workspace.write_file("a.txt", contents[0])
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for content in contents:
                workspace.write_file("a.txt", content)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert all((root / "a.txt").read_bytes() in contents for _ in range(300))
    finally:
        stop.set()
        thread.join()


def test_a_write_on_what_was_read_sees_that_it_changed(workspace: Workspace, root: Path) -> None:
    stamp = workspace.read_file("a.txt", MUCH).stamp
    (root / "a.txt").write_bytes(b"somebody else's")
    assert "changed meanwhile" in refused(lambda: workspace.write_file("a.txt", b"x", stamp))
    (root / "a.txt").unlink()
    assert "changed meanwhile" in refused(lambda: workspace.write_file("a.txt", b"x", stamp))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to count in")
def test_no_descriptor_is_left_open(workspace: Workspace) -> None:
    """T13: neither by what worked, nor by what was refused."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("a.txt", "folder/b.txt", "../x", "nowhere/x", "folder/../a.txt", "d/" * 200):
        with suppress(ModelRetry):
            workspace.read_file(path, MUCH)
        with suppress(ModelRetry):
            workspace.write_file(path, b"x")
    list(workspace.walk_files())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# ── any path ─────────────────────────────────────────────────────────────────

NAMES = st.one_of(
    st.sampled_from(
        ["..", ".", "", "~", "a", "link", "out", "folder", "b.txt", "secret.txt", "\0"]
    ),
    st.text(max_size=5),
)


@given(st.lists(NAMES, max_size=8), st.booleans())
def test_no_path_leads_out(names: list[str], absolute: bool) -> None:  # noqa: FBT001
    """T13: whatever is written stays inside, whatever is read was inside, the rest is refused."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        (root / "folder").mkdir(parents=True)
        (root / "folder" / "b.txt").write_bytes(b"b")
        (root / "link").symlink_to("folder")
        (root / "out").symlink_to("..")
        (root.parent / "secret.txt").write_bytes(SECRET)
        workspace = Workspace(root)
        path = ("/" if absolute else "") + "/".join(names)
        for act in (
            lambda: workspace.read_file(path, MUCH),
            lambda: workspace.write_file(path, b"w"),
        ):
            try:
                done = act()
            except ModelRetry as error:
                done = str(error)
            match done:
                case FileContent(data=data):
                    assert data in (b"b", b"w")
                case str(told):
                    assert "\n" not in told
                case _:
                    assert isinstance(done, bool)
        assert sorted(one.name for one in root.parent.iterdir()) == ["root", "secret.txt"]
        assert (root.parent / "secret.txt").read_bytes() == SECRET
