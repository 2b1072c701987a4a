"""Files below one folder, and no others.

The law: nothing is reached but by the walk of `paths`, so that no `..`, link or race leads out of
the root. A write goes to a new file beside the old one and takes its place at once: a crash leaves
the old content or the new, never a mixture, and a link that is put there at the last moment is
replaced and not followed. Only plain files are read or replaced.

What is trusted: the way to the root itself, and that nobody moves a folder of it elsewhere or makes
hard links into it, which nobody can tell from files.
"""

import os
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.suggestions import did_you_mean
from windlass.tools.files.paths import FOLDER, Place, Root, check_new, told

SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".tox", ".venv", "__pycache__", "node_modules"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that `walk` does not go into: much in them, and seldom what is sought."""

Stamp: TypeAlias = tuple[int, int, int]
"""Tells whether a file is still the one that was read."""

# Not waiting: to open a pipe that nobody writes to would take for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_Entries: TypeAlias = list[tuple[str, str]]
_Listing: TypeAlias = tuple[str, _Entries]


@dataclass(frozen=True, slots=True)
class Content:
    """What was read of a file."""

    path: str
    data: bytes
    size: int
    stamp: Stamp


@final
class Workspace:
    """The one folder that tools may read and change. Paths are relative to it.

    Absolute paths are taken as well if they lead into it; so are links. What is wrong with a path
    is told to the model, in a line (`ModelRetry`).
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Root(root)
        if not self.root.is_dir():
            raise ConfigError(f"the workspace {os.fspath(root)!r} is not a folder")

    @property
    def root(self) -> Path:
        return self._root.path

    def key(self, path: str) -> str:
        """One name for a file, however a call spells it: what two calls may not change at once."""
        real = os.path.realpath(self.root.joinpath(*self._root.parts(path)))
        return os.path.relpath(real, self.root)

    def read(self, path: str, bytes_max: int) -> Content:
        """The beginning of a plain file."""
        with self._root.place(path) as place:
            found = _regular(place.found, place.path)
            if found is None:
                raise ModelRetry(f"There is no file {told(path)}.{_near(place)}")
            with os.fdopen(os.open(place.name, _FILE, dir_fd=place.folder), "rb") as file:
                now = os.fstat(file.fileno())
                _regular(now, place.path)
                return Content(place.path, file.read(bytes_max), now.st_size, _stamp(now))

    def entries(self, path: str = ".") -> list[tuple[str, str]]:
        """What a folder holds: each name, and `file`, `folder`, `link` or `other`, sorted."""
        return self._entries(path)[1]

    def is_folder(self, path: str) -> bool:
        with self._root.place(path) as place:
            return place.found is not None and stat.S_ISDIR(place.found.st_mode)

    def locate(self, path: str) -> str:
        """The path from the root to which a path leads, with no link in it."""
        with self._root.place(path) as place:
            if place.found is None:
                raise ModelRetry(f"There is no {told(path)}.{_near(place)}")
            return place.path

    def walk(self, path: str = ".", skip: Collection[str] = SKIPPED) -> Iterator[str]:
        """The plain files below a folder, each by its path from the root. Links are left alone.

        They come sorted, name by name of their paths.
        """
        folder, entries = self._entries(path)
        todo = _below(folder, entries, skip)
        while todo:
            name, kind = todo.pop()
            if kind == "file":
                yield name
            else:
                todo += _below(*self._entries_if_any(name), skip)

    def write(self, path: str, data: bytes, expected: Stamp | None = None) -> bool:
        """Put a whole file in place, for good once this returns. True if there was none before.

        With `expected`, only if the file is still the one that was read. Folders are made.
        """
        with self._root.place(path, make=True) as place:
            old = _regular(place.found, place.path)
            if old is None:
                check_new(place.name)
            elif not old.st_mode & 0o222:
                raise ModelRetry(f"{told(path)} is read-only: it is not to be changed.")
            if expected is not None and (old is None or _stamp(old) != expected):
                raise ModelRetry(f"{told(path)} changed meanwhile: read it again, then change it.")
            _replace(place, data, old)
            return old is None

    def _entries(self, path: str) -> _Listing:
        with self._root.place(path) as place:
            if place.found is None:
                raise ModelRetry(f"There is no folder {told(path)}.{_near(place)}")
            if not stat.S_ISDIR(place.found.st_mode):
                raise ModelRetry(f"{told(path)} is a file, and not a folder.")
            folder = os.open(place.name, FOLDER, dir_fd=place.folder)
            try:
                with os.scandir(folder) as entries:
                    return place.path, sorted((one.name, _kind(one)) for one in entries)
            finally:
                os.close(folder)

    def _entries_if_any(self, path: str) -> _Listing:
        """As `_entries`; nothing, if the folder went away or may not be read."""
        try:
            return self._entries(path)
        except (ModelRetry, OSError):
            return path, []


def _join(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _below(folder: str, entries: _Entries, skip: Collection[str]) -> _Entries:
    """What is to be walked of a folder, the first of it last."""
    return [
        (_join(folder, name), kind)
        for name, kind in reversed(entries)
        if kind == "file" or (kind == "folder" and name not in skip)
    ]


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _regular(found: os.stat_result | None, path: str) -> os.stat_result | None:
    if found is None or stat.S_ISREG(found.st_mode):
        return found
    if stat.S_ISDIR(found.st_mode):
        raise ModelRetry(f"{told(path)} is a folder: name a file in it.")
    raise ModelRetry(f"{told(path)} is a pipe, a socket or a device, and not a file: leave it.")


def _kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _near(place: Place) -> str:
    names = [told(name)[1:-1] for name in os.listdir(place.folder)]  # noqa: PTH208 - an open folder
    return did_you_mean(place.name, sorted(names))


def _replace(place: Place, data: bytes, old: os.stat_result | None) -> None:
    fresh = f".windlass-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(fresh, _NEW, 0o666, dir_fd=place.folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                with suppress(PermissionError):  # Only root may give a file away.
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
            file.flush()
            os.fsync(descriptor)
        os.rename(fresh, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=place.folder)
        raise
    with suppress(OSError):  # Some file systems cannot make a name durable, and none loses data.
        os.fsync(place.folder)
