"""The way from a root to a file, a name at a time.

The law: each folder is opened in the one before it, by its descriptor and without following links;
a link is read, and what it says is walked in the same way; `..` goes back to where the walk came
from, and never above the root. Nothing is checked by one name and used by another, so that whatever
is swapped meanwhile, each step stands in the folder that it was opened in, and the first of them is
the root.
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

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4_096
DEPTH_MAX = 100
"""Folders in each other; each is an open descriptor while a path is walked."""
LINKS_MAX = 40
"""Links, and names that changed while they were looked at, in one walk."""
SHOWN_CHARS_MAX = 200

OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened."""
_SWAPPED_ERRNOS = frozenset((errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENOENT, errno.EEXIST))


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path leads: a name in an open folder, and what is there, which is never a link."""

    folder_fd: int
    name: str
    path: str
    file_stat: os.stat_result | None


class WorkspaceRoot:
    """Where all walks begin."""

    def __init__(self, given: str | os.PathLike[str]) -> None:
        written = os.path.abspath(given)  # noqa: PTH100 - as the user wrote it, links and all
        self.path = Path(os.path.realpath(written))
        self._spellings = {tuple(_split_names(written)), self.path.parts[1:]}

    def split_path(self, path: str) -> list[str]:
        """The names of a path from the root, links and `..` among them; refuses odd paths."""
        try:
            size = len(os.fsencode(path))
        except UnicodeEncodeError:
            raise ModelRetry(
                f"The path {quote_path(path)} holds half a character: no file has it."
            ) from None
        if "\0" in path:
            raise ModelRetry(f"The path {quote_path(path)} holds a NUL: no file has it.")
        parts = _split_names(path)
        if size > PATH_BYTES_MAX or any(len(os.fsencode(one)) > NAME_BYTES_MAX for one in parts):
            raise ModelRetry(
                f"The path {quote_path(path)} is too long: a name has 255 bytes at most."
            )
        if parts[:1] == ["~"]:
            raise ModelRetry("`~` is not known here: give a path from the workspace's own folder.")
        if path.startswith("/"):
            return self.strip_root(parts, path)
        return parts

    def strip_root(self, parts: list[str], path: str) -> list[str]:
        """The rest of an absolute path, if it leads below the root."""
        for root in self._spellings:
            if tuple(parts[: len(root)]) == root:
                return parts[len(root) :]
        raise outside_error(path)

    @contextmanager
    def resolve_path(self, path: str, *, make: bool = False) -> Generator[ResolvedPath]:
        """Walk to the last name of a path, and hold its folder open."""
        parts = self.split_path(path)
        with _translate_errors(path):
            walk = _PathWalk(self, path, make=make)
            try:
                yield walk.walk_to(parts)
            finally:
                walk.close()


class _PathWalk:
    """One walk from the root, with each folder on the way open."""

    def __init__(self, root: WorkspaceRoot, path: str, *, make: bool) -> None:
        self._root = root
        self._path = path
        self._make = make
        self._names: list[str] = []
        self._folders = [os.open(root.path, OPEN_FOLDER_FLAGS)]
        self._turns_taken = 0

    def walk_to(self, parts: list[str]) -> ResolvedPath:
        """Where the names lead; all but the last must be folders, or are made."""
        todo = deque(parts)
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
        """What a link says, as names; the name itself if it is no link any more."""
        self._count_turn()
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in _SWAPPED_ERRNOS:
                return [name]
            raise
        if not target.startswith("/"):
            return _split_names(target)
        parts = self._root.strip_root(_split_names(target), self._path)
        while self._names:
            self._leave_folder()
        return parts

    def _enter_folder(self, name: str, found: os.stat_result | None) -> bool:
        """Go into a folder. False if it was swapped for something else, to be looked at again."""
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
        self._turns_taken += 1
        if self._turns_taken > LINKS_MAX:
            raise ModelRetry(
                f"{quote_path(self._path)} goes through too many links: name the file itself."
            )


def quote_path(path: str) -> str:
    """A path as it stands in a message: in one line, and not too long."""
    return repr(path if len(path) <= SHOWN_CHARS_MAX else f"{path[:SHOWN_CHARS_MAX]}…")


def _split_names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in {"", "."}]


def _stat_name(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def check_new_name(name: str) -> None:
    """A name with a line break in it would lie wherever names are listed."""
    if not name.isprintable():
        raise ModelRetry(
            f"The name {quote_path(name)} holds characters that cannot be shown: choose another."
        )


def outside_error(path: str) -> ModelRetry:
    return ModelRetry(
        f"{quote_path(path)} is outside of the workspace: only paths below it can be used."
    )


@contextmanager
def _translate_errors(path: str) -> Generator[None]:
    """What the system says of a path, for the model; what says nothing of it stays an error."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise ModelRetry(
            f"There is no {quote_path(path)}: it, or a folder on the way to it, does not exist."
        ) from None
    except PermissionError:
        raise ModelRetry(
            f"{quote_path(path)} may not be read or changed: permission denied."
        ) from None
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR}:
            raise ModelRetry(
                f"{quote_path(path)} changed while it was opened: try again."
            ) from None
        if error.errno == errno.ENAMETOOLONG:
            raise ModelRetry(f"The path {quote_path(path)} is too long.") from None
        raise
