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
from windlass.core.suggestions import suggest_names
from windlass.tools.files.paths import (
    OPEN_FOLDER_FLAGS,
    ResolvedPath,
    WorkspaceRoot,
    check_new_name,
    quote_path,
)

SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".tox", ".venv", "__pycache__", "node_modules"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that `walk` does not go into: much in them, and seldom what is sought."""

FileStamp: TypeAlias = tuple[int, int, int]
"""Tells whether a file is still the one that was read."""

# Not waiting: to open a pipe that nobody writes to would take for ever.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_Entries: TypeAlias = list[tuple[str, str]]
_Listing: TypeAlias = tuple[str, _Entries]


@dataclass(frozen=True, slots=True)
class FileContent:
    """What was read of a file."""

    path: str
    data: bytes
    size: int
    stamp: FileStamp


@final
class Workspace:
    """The one folder that tools may read and change. Paths are relative to it.

    Absolute paths are taken as well if they lead into it; so are links. What is wrong with a path
    is told to the model, in a line (`ModelRetry`).
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = WorkspaceRoot(root)
        if not self.root.is_dir():
            raise ConfigError(f"the workspace {os.fspath(root)!r} is not a folder")

    @property
    def root(self) -> Path:
        return self._root.path

    def resource_key(self, path: str) -> str:
        """One name for a file, however a call spells it: what two calls may not change at once."""
        real = os.path.realpath(self.root.joinpath(*self._root.split_path(path)))
        return os.path.relpath(real, self.root)

    def read_file(self, path: str, bytes_max: int) -> FileContent:
        """The beginning of a plain file."""
        with self._root.resolve_path(path) as place:
            found = _require_regular(place.file_stat, place.path)
            if found is None:
                raise ModelRetry(f"There is no file {quote_path(path)}.{_suggest_name(place)}")
            with os.fdopen(os.open(place.name, _READ_FLAGS, dir_fd=place.folder_fd), "rb") as file:
                now = os.fstat(file.fileno())
                _require_regular(now, place.path)
                return FileContent(place.path, file.read(bytes_max), now.st_size, _file_stamp(now))

    def list_entries(self, path: str = ".") -> list[tuple[str, str]]:
        """What a folder holds: each name, and `file`, `folder`, `link` or `other`, sorted."""
        return self._list_folder(path)[1]

    def is_folder(self, path: str) -> bool:
        with self._root.resolve_path(path) as place:
            return place.file_stat is not None and stat.S_ISDIR(place.file_stat.st_mode)

    def locate_path(self, path: str) -> str:
        """The path from the root to which a path leads, with no link in it."""
        with self._root.resolve_path(path) as place:
            if place.file_stat is None:
                raise ModelRetry(f"There is no {quote_path(path)}.{_suggest_name(place)}")
            return place.path

    def walk_files(self, path: str = ".", skip: Collection[str] = SKIPPED_FOLDERS) -> Iterator[str]:
        """The plain files below a folder, each by its path from the root. Links are left alone.

        They come sorted, name by name of their paths.
        """
        folder, entries = self._list_folder(path)
        todo = _walk_order(folder, entries, skip)
        while todo:
            name, kind = todo.pop()
            if kind == "file":
                yield name
            else:
                todo += _walk_order(*self._list_folder_or_nothing(name), skip)

    def write_file(self, path: str, data: bytes, expected: FileStamp | None = None) -> bool:
        """Put a whole file in place, for good once this returns. True if there was none before.

        With `expected`, only if the file is still the one that was read. Folders are made.
        """
        with self._root.resolve_path(path, make=True) as place:
            old = _require_regular(place.file_stat, place.path)
            if old is None:
                check_new_name(place.name)
            elif not old.st_mode & 0o222:
                raise ModelRetry(f"{quote_path(path)} is read-only: it is not to be changed.")
            if expected is not None and (old is None or _file_stamp(old) != expected):
                raise ModelRetry(
                    f"{quote_path(path)} changed meanwhile: read it again, then change it."
                )
            _replace_file(place, data, old)
            return old is None

    def _list_folder(self, path: str) -> _Listing:
        with self._root.resolve_path(path) as place:
            if place.file_stat is None:
                raise ModelRetry(f"There is no folder {quote_path(path)}.{_suggest_name(place)}")
            if not stat.S_ISDIR(place.file_stat.st_mode):
                raise ModelRetry(f"{quote_path(path)} is a file, and not a folder.")
            folder = os.open(place.name, OPEN_FOLDER_FLAGS, dir_fd=place.folder_fd)
            try:
                with os.scandir(folder) as entries:
                    return place.path, sorted((one.name, _entry_kind(one)) for one in entries)
            finally:
                os.close(folder)

    def _list_folder_or_nothing(self, path: str) -> _Listing:
        """As `_entries`; nothing, if the folder went away or may not be read."""
        try:
            return self._list_folder(path)
        except (ModelRetry, OSError):
            return path, []


def _join_path(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _walk_order(folder: str, entries: _Entries, skip: Collection[str]) -> _Entries:
    """What is to be walked of a folder, the first of it last."""
    return [
        (_join_path(folder, name), kind)
        for name, kind in reversed(entries)
        if kind == "file" or (kind == "folder" and name not in skip)
    ]


def _file_stamp(found: os.stat_result) -> FileStamp:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _require_regular(found: os.stat_result | None, path: str) -> os.stat_result | None:
    if found is None or stat.S_ISREG(found.st_mode):
        return found
    if stat.S_ISDIR(found.st_mode):
        raise ModelRetry(f"{quote_path(path)} is a folder: name a file in it.")
    raise ModelRetry(
        f"{quote_path(path)} is a pipe, a socket or a device, and not a file: leave it."
    )


def _entry_kind(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _suggest_name(place: ResolvedPath) -> str:
    names = [quote_path(name)[1:-1] for name in os.listdir(place.folder_fd)]  # noqa: PTH208 - an open folder
    return suggest_names(place.name, sorted(names))


def _replace_file(place: ResolvedPath, data: bytes, old: os.stat_result | None) -> None:
    fresh = f".windlass-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(fresh, _CREATE_FLAGS, 0o666, dir_fd=place.folder_fd)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                with suppress(PermissionError):  # Only root may give a file away.
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
            file.flush()
            os.fsync(descriptor)
        os.rename(fresh, place.name, src_dir_fd=place.folder_fd, dst_dir_fd=place.folder_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=place.folder_fd)
        raise
    with suppress(OSError):  # Some file systems cannot make a name durable, and none loses data.
        os.fsync(place.folder_fd)
