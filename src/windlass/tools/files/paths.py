"""Resolve a path below the workspace root, one name at a time.

Invariant: each folder is opened relative to the descriptor of the folder before it, without
following links. A link is read, and its target is walked in the same way. `..` goes back to the
folder that the walk came from, and never above the root. No path is checked under one name and used
under another, so a file that is swapped during the walk cannot lead out of the root.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from windlass.core.errors import ModelRetry
from windlass.private_files import is_private_file

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4_096
DEPTH_MAX = 100
"""Nested folders. Each one holds an open descriptor while a path is walked."""
LINKS_MAX = 40
"""Links to follow in one walk, plus names that changed while the walk looked at them."""
SHOWN_CHARS_MAX = 200

OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors which mean that another process replaced a name between two system calls.
_SWAPPED_ERRNOS = frozenset((errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENOENT, errno.EEXIST))


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path leads: a name in an open folder."""

    folder_fd: int
    name: str
    path: str
    """The path from the root, without links or `..`."""
    file_stat: os.stat_result | None
    """What has this name, which is never a link. None if nothing has it."""


class MissingPath(ModelRetry):
    """Nothing has this path."""


class WorkspaceRoot:
    """The folder in which every walk begins."""

    def __init__(self, given: str | os.PathLike[str]) -> None:
        written = os.path.abspath(given)  # noqa: PTH100 - as the user wrote it, with its links
        self.path = Path(os.path.realpath(written))
        self._spellings = {tuple(_split_names(written)), self.path.parts[1:]}

    def split_path(self, path: str) -> list[str]:
        """Split a path into names relative to the root. Links and `..` are still among them.

        Raises ModelRetry if no file can have this path, or if it is absolute and outside the root.
        """
        try:
            path_bytes = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise ModelRetry(
                f"The path {quote_path(path)} contains an unpaired surrogate, which no file name "
                "has. Check the path."
            ) from None
        if "\0" in path:
            raise ModelRetry(
                f"The path {quote_path(path)} contains a NUL character, which no file name has. "
                "Check the path."
            )
        names = _split_names(path)
        longest = max((len(os.fsencode(name)) for name in names), default=0)
        if path_bytes > PATH_BYTES_MAX or longest > NAME_BYTES_MAX:
            raise ModelRetry(
                f"The path {quote_path(path)} is too long: the limit is {PATH_BYTES_MAX} bytes, "
                f"and {NAME_BYTES_MAX} bytes for each name."
            )
        if names[:1] == ["~"]:
            raise ModelRetry("`~` is not supported. Give a path relative to the workspace.")
        if path.startswith("/"):
            return self.strip_root(names, path)
        return names

    def strip_root(self, names: list[str], path: str) -> list[str]:
        """Return the names of an absolute path below the root; raises ModelRetry if outside."""
        for root in self._spellings:
            if tuple(names[: len(root)]) == root:
                return names[len(root) :]
        raise outside_error(path)

    @contextmanager
    def resolve_path(self, path: str, *, make: bool = False) -> Generator[ResolvedPath]:
        """Walk to the last name of a path, and keep its folder open inside the `with` block.

        `make` creates the folders that are missing on the way. Raises ModelRetry, with a text for
        the model, if the path is invalid or cannot be reached.
        """
        names = self.split_path(path)
        with _translate_errors(path):
            walk = _PathWalk(self, path, make=make)
            try:
                place = walk.walk_to(names)
                if is_private_file(self.path / place.path):
                    raise ModelRetry(
                        f"{quote_path(path)} belongs to Windlass, which keeps sessions or notes in "
                        "it. No tool may use it."
                    )
                yield place
            finally:
                walk.close()


class _PathWalk:
    """One walk from the root. Every folder on the way stays open until the end."""

    def __init__(self, root: WorkspaceRoot, path: str, *, make: bool) -> None:
        self._root = root
        self._path = path
        self._make = make
        self._names: list[str] = []
        self._folders = [os.open(root.path, OPEN_FOLDER_FLAGS)]
        self._turns_taken = 0

    def walk_to(self, names: list[str]) -> ResolvedPath:
        """Follow the names. All but the last must be folders, or are created."""
        todo = deque(names)
        while todo:
            name = todo.popleft()
            if name == "..":
                self._leave_folder()
                continue
            found = _stat_name(name, self._folders[-1])
            if found is not None and stat.S_ISLNK(found.st_mode):
                todo.extendleft(reversed(self._follow_link(name)))
            elif not todo:
                path = "/".join([*self._names, name])
                return ResolvedPath(self._folders[-1], name, path, found)
            elif not self._enter_folder(name, found):
                todo.appendleft(name)
        here = self._folders[-1]
        return ResolvedPath(here, ".", "/".join(self._names) or ".", os.fstat(here))

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def _leave_folder(self) -> None:
        if not self._names:
            raise outside_error(self._path)
        self._names.pop()
        os.close(self._folders.pop())

    def _follow_link(self, name: str) -> list[str]:
        """Return the names in a link's target; the name itself if it is no longer a link."""
        self._count_turn()
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in _SWAPPED_ERRNOS:
                return [name]
            raise
        if not target.startswith("/"):
            return _split_names(target)
        names = self._root.strip_root(_split_names(target), self._path)
        while self._names:
            self._leave_folder()
        return names

    def _enter_folder(self, name: str, found: os.stat_result | None) -> bool:
        """Open a folder. Returns False if it was swapped meanwhile and must be looked at again."""
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, name)
        if len(self._folders) > DEPTH_MAX:
            raise ModelRetry(f"{quote_path(self._path)} is more than {DEPTH_MAX} folders deep.")
        try:
            if found is None and self._make:
                check_new_name(name)
                os.mkdir(name, dir_fd=self._folders[-1])
            self._folders.append(os.open(name, OPEN_FOLDER_FLAGS, dir_fd=self._folders[-1]))
        except OSError as error:
            if error.errno not in _SWAPPED_ERRNOS or (found is None and not self._make):
                raise
            self._count_turn()
            return False
        self._names.append(name)
        return True

    def _count_turn(self) -> None:
        # Bounds link cycles, and a race with a process that keeps swapping names.
        self._turns_taken += 1
        if self._turns_taken > LINKS_MAX:
            raise ModelRetry(
                f"{quote_path(self._path)} goes through too many links. Name the file directly."
            )


def quote_path(path: str) -> str:
    """Quote a path for a message: on one line, and at most SHOWN_CHARS_MAX characters of it."""
    if len(path) > SHOWN_CHARS_MAX:
        path = f"{path[:SHOWN_CHARS_MAX]}…"
    return repr(path)


def _split_names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _stat_name(name: str, folder_fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def check_new_name(name: str) -> None:
    """Raise ModelRetry for a new name that is not printable.

    A line break in a name would look like two names wherever names are listed.
    """
    if not name.isprintable():
        raise ModelRetry(
            f"The name {quote_path(name)} contains unprintable characters. Choose another name."
        )


def outside_error(path: str) -> ModelRetry:
    return ModelRetry(
        f"{quote_path(path)} is outside of the workspace. Use a path inside the workspace."
    )


@contextmanager
def _translate_errors(path: str) -> Generator[None]:
    """Turn system errors about a path into texts for the model. Other errors pass unchanged."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        kind = MissingPath if isinstance(error, FileNotFoundError) else ModelRetry
        raise kind(
            f"There is no {quote_path(path)}: the file, or a folder on the way, does not exist."
        ) from None
    except PermissionError:
        raise ModelRetry(f"Permission denied for {quote_path(path)}.") from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR}:
            raise ModelRetry(
                f"{quote_path(path)} changed while it was being opened. Try again."
            ) from None
        if error.errno == errno.ENAMETOOLONG:
            raise ModelRetry(f"The path {quote_path(path)} is too long.") from None
        raise
