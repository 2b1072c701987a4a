"""Access to the files below one folder, and to no others.

Invariant: every access goes through the walk in `paths`, so no `..`, link or race leads out of the
root. A write goes to a new file beside the old one, which is then renamed over it: after a crash
there is the old content or the new, never a mixture, and a link that is placed there at the last
moment is replaced and not followed. Only regular files are read or replaced.

Two things are trusted: the path to the root itself, and that no other process moves one of its
folders elsewhere or makes hard links into it, which look like ordinary files.
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
    MissingPath,
    ResolvedPath,
    WorkspaceRoot,
    check_new_name,
    quote_path,
)

SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".tox", ".venv", "__pycache__", "node_modules"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that `walk_files` skips: they hold many files, and seldom the one that is wanted."""

FileStamp: TypeAlias = tuple[int, int, int]
"""Inode, time of change (ns) and size: differs once a file is not the one that was read."""

# O_NONBLOCK, because opening a pipe that has no writer would otherwise block forever.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_Entries: TypeAlias = list[tuple[str, str]]
_Listing: TypeAlias = tuple[str, _Entries]


@dataclass(frozen=True, slots=True)
class FileContent:
    """The beginning of a file, as it was read."""

    path: str
    data: bytes
    size: int
    """Bytes of the whole file; more than `len(data)` if it was not read to the end."""
    stamp: FileStamp


@final
class Workspace:
    """The one folder that tools may read and change. Paths are relative to it.

    Absolute paths and links are accepted if they lead into it. A path that cannot be used raises
    `ModelRetry`, with one line that explains the reason to the model.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = WorkspaceRoot(root)
        if not self.root.is_dir():
            raise ConfigError(f"the workspace {os.fspath(root)!r} is not a folder")

    @property
    def root(self) -> Path:
        """The folder that the tools may use."""
        return self._root.path

    def resource_key(self, path: str) -> str:
        """Return the same key for every spelling of a path.

        Two calls with the same key must not change the file at the same time.
        """
        real = os.path.realpath(self.root.joinpath(*self._root.split_path(path)))
        return os.path.relpath(real, self.root)

    def read_file(self, path: str, bytes_max: int) -> FileContent:
        """Read up to `bytes_max` bytes from the beginning of a regular file.

        Raises MissingPath, a ModelRetry, if the file does not exist.
        """
        with self._root.resolve_path(path) as place:
            if _require_regular(place.file_stat, place.path) is None:
                raise MissingPath(f"There is no file {quote_path(path)}.{_suggest_name(place)}")
            with os.fdopen(os.open(place.name, _READ_FLAGS, dir_fd=place.folder_fd), "rb") as file:
                # Checked again on the open file: another process may have swapped it in the
                # meantime.
                opened = os.fstat(file.fileno())
                _require_regular(opened, place.path)
                data = file.read(bytes_max)
                return FileContent(place.path, data, opened.st_size, _file_stamp(opened))

    def list_entries(self, path: str = ".") -> list[tuple[str, str]]:
        """List a folder: each name with `file`, `folder`, `link` or `other`, sorted."""
        return self._list_folder(path)[1]

    def is_folder(self, path: str) -> bool:
        """Whether the path is a folder inside the workspace."""
        with self._root.resolve_path(path) as place:
            return place.file_stat is not None and stat.S_ISDIR(place.file_stat.st_mode)

    def locate_path(self, path: str) -> str:
        """Return the path from the root, with links resolved; raises ModelRetry if missing."""
        with self._root.resolve_path(path) as place:
            if place.file_stat is None:
                raise ModelRetry(f"There is no {quote_path(path)}.{_suggest_name(place)}")
            return place.path

    def walk_files(self, path: str = ".", skip: Collection[str] = SKIPPED_FOLDERS) -> Iterator[str]:
        """Yield the regular files below a folder as paths from the root, without following links.

        The order is by the names in the paths, so all files of a folder come together.
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
        """Write a whole file, and missing folders. It is durable once this returns.

        With `expected`, raises ModelRetry unless the file still has this stamp. Returns True if
        the file is new.
        """
        with self._root.resolve_path(path, make=True) as place:
            old = _require_regular(place.file_stat, place.path)
            if old is None:
                check_new_name(place.name)
            elif not old.st_mode & 0o222:
                raise ModelRetry(f"{quote_path(path)} is read-only and must not be changed.")
            if expected is not None and (old is None or _file_stamp(old) != expected):
                raise ModelRetry(
                    f"{quote_path(path)} changed meanwhile. Read it again, then change it."
                )
            _replace_file(place, data, old)
            return old is None

    def delete_file(self, path: str, expected: FileStamp) -> None:
        """Delete a file. Raises ModelRetry unless it still has this stamp."""
        with self._root.resolve_path(path) as place:
            found = _require_regular(place.file_stat, place.path)
            if found is None or _file_stamp(found) != expected:
                raise ModelRetry(f"{quote_path(path)} changed meanwhile. It was not deleted.")
            os.unlink(place.name, dir_fd=place.folder_fd)
            with suppress(OSError):  # As in `_replace_file`.
                os.fsync(place.folder_fd)

    def _list_folder(self, path: str) -> _Listing:
        with self._root.resolve_path(path) as place:
            if place.file_stat is None:
                raise ModelRetry(f"There is no folder {quote_path(path)}.{_suggest_name(place)}")
            if not stat.S_ISDIR(place.file_stat.st_mode):
                raise ModelRetry(f"{quote_path(path)} is a file, not a folder.")
            folder_fd = os.open(place.name, OPEN_FOLDER_FLAGS, dir_fd=place.folder_fd)
            try:
                with os.scandir(folder_fd) as entries:
                    return place.path, sorted((entry.name, _entry_kind(entry)) for entry in entries)
            finally:
                os.close(folder_fd)

    def _list_folder_or_nothing(self, path: str) -> _Listing:
        """Like `_list_folder`, but empty if the folder was removed or may not be read."""
        try:
            return self._list_folder(path)
        except (ModelRetry, OSError):
            return path, []


def _walk_order(folder: str, entries: _Entries, skip: Collection[str]) -> _Entries:
    """Return the entries to walk in reverse order, because they are taken from the end."""
    return [
        ((name if folder == "." else f"{folder}/{name}"), kind)
        for name, kind in reversed(entries)
        if kind == "file" or (kind == "folder" and name not in skip)
    ]


def _file_stamp(found: os.stat_result) -> FileStamp:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _require_regular(found: os.stat_result | None, path: str) -> os.stat_result | None:
    """Return what was found if it is a regular file or nothing; raises ModelRetry otherwise."""
    if found is None or stat.S_ISREG(found.st_mode):
        return found
    if stat.S_ISDIR(found.st_mode):
        raise ModelRetry(f"{quote_path(path)} is a folder. Name a file in it.")
    raise ModelRetry(
        f"{quote_path(path)} is a pipe, a socket or a device, not a file. It cannot be used."
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
    temporary = f".windlass-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, _CREATE_FLAGS, 0o666, dir_fd=place.folder_fd)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                with suppress(PermissionError):  # Only root may change the owner of a file.
                    os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, place.name, src_dir_fd=place.folder_fd, dst_dir_fd=place.folder_fd)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=place.folder_fd)
        raise
    # Makes the new name durable. Some file systems cannot do it, and lose no data either.
    with suppress(OSError):
        os.fsync(place.folder_fd)
