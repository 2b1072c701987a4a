"""The files that no command and no tool of a model may see: sessions and notes.

Invariant: a process that opens such a file names it here first. A person's answer is a record in a
journal, so what can write into the file could answer in that person's place. A file stays private
when it is closed, because it is opened again later and believed.

Files that other processes of this user opened are listed in a registry, a folder with one small
file for each. Without a registry, as for the processes of other users, they are recognized by their
header, or by the locks of drivers next to them: by name, in a bounded search.
"""

import hashlib
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SIDE_FILE_SUFFIXES = ("", "-wal", "-shm", "-journal", "-drivers")
"""The files next to a SQLite file of ours: its logs, and the locks of the drivers."""
APPLICATION_ID = 0x57_4E_44_4C
"""`WNDL`, in the header of the file: distinguishes our files from those of other programs."""
DATABASE_SUFFIXES = (".db", ".db3", ".sqlite", ".sqlite3", ".journal")
"""How the name of a file ends that is looked at. With a log or locks next to it, any name does."""
SEARCH_DEPTH_MAX = 4
SEARCH_ENTRIES_MAX = 20_000
SKIPPED_FOLDERS = frozenset((".git", ".tox", ".venv", "__pycache__", "node_modules"))

_SQLITE_HEADER = b"SQLite format 3\0"
_APPLICATION_ID_OFFSET = 68
_DRIVERS_SUFFIX = "-drivers"
_TELLING_SUFFIXES = (_DRIVERS_SUFFIX, "-wal")
"""The files next to a database whose name does not say that it is one."""
_RESERVED_SUFFIX = "-journal"

_paths: set[str] = set()
_folders: set[str] = set()
_workspaces: set[str] = set()
_mutex = threading.Lock()


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner only.

    `Path.mkdir` gives the mode to the last one alone. Raises OSError.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    if not missing:
        folder.mkdir(exist_ok=True)  # Raises if it is a file.


def mark_private(path: str | os.PathLike[str]) -> None:
    """Hide a SQLite file and the files next to it from the commands and tools of a model."""
    with _mutex:
        # SQLite puts the side files beside the file that a link leads to.
        _paths.add(os.path.realpath(path))


def register_private(path: str | os.PathLike[str], registry: Path) -> None:
    """Hide a SQLite file that exists, here and from the commands of this user's other processes."""
    real = os.path.realpath(path)
    mark_private(real)
    mark_private_folder(registry)
    data = os.fsencode(real)
    entry = registry / hashlib.sha256(data).hexdigest()[:32]
    # Where it cannot be written, the search still finds what has the usual name and place.
    with suppress(OSError):
        if entry.exists():
            return
        make_private_folder(registry)
        # By another name first: an entry is read whole, or not at all.
        draft = entry.with_name(f"{entry.name}.{os.getpid()}.{threading.get_ident()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.rename(entry)


def mark_registered(registry: Path) -> None:
    """Mark the files that any process of this user has registered, and forget those that are gone.

    A file is registered once it exists, so one that does not exist was deleted.
    """
    try:
        entries = [entry for entry in registry.iterdir() if "." not in entry.name]
    except OSError:
        return
    for entry in entries:
        with suppress(OSError, ValueError):
            path = os.fsdecode(entry.read_bytes())
            if os.path.lexists(path):
                mark_private(path)
            else:
                entry.unlink()


def mark_private_folder(folder: str | os.PathLike[str]) -> None:
    """Hide all that is in a folder from the tools of a model. The sandbox covers it by itself."""
    with _mutex:
        _folders.add(os.path.realpath(folder))


def hide_workspaces(folder: str | os.PathLike[str]) -> None:
    """Hide the folders of callers from commands. A command sees its own, if it works in one."""
    with _mutex:
        _workspaces.add(os.path.realpath(folder))


def list_workspaces() -> list[Path]:
    """Return the folders that hold the folders of callers."""
    with _mutex:
        return [Path(path) for path in sorted(_workspaces)]


def list_private_files() -> list[Path]:
    """Return the private files with their side files, whether they exist or not."""
    with _mutex:
        paths = sorted(_paths)
    return [Path(f"{path}{suffix}") for path in paths for suffix in SIDE_FILE_SUFFIXES]


def is_private_file(path: Path) -> bool:
    """Whether a path, with its links resolved, is one of the private files."""
    bases = [
        str(path).removesuffix(suffix)
        for suffix in SIDE_FILE_SUFFIXES
        if str(path).endswith(suffix)
    ]
    with _mutex:
        if any(base in _paths for base in bases):
            return True
        if any(path.is_relative_to(folder) for folder in _folders):
            return True
    return any(_is_own_database(base) for base in bases)


def mark_private_in(folder: Path) -> None:
    """Find the SQLite files of Windlass in a folder, and mark them as private.

    At most SEARCH_ENTRIES_MAX entries are looked at, and SEARCH_DEPTH_MAX folders below this one.
    Files in the registry need no search.
    """
    for path in _find_candidates(folder):
        if _is_own_database(path):
            mark_private(path)


def reserve_side_file(path: Path) -> None:
    """Create a private file that is missing, empty and for its owner only.

    A mount needs a file to cover, and one that the sandbox made could not be written by SQLite,
    which takes an empty side file for none. Where this user cannot make a file, a command of
    theirs cannot either.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def has_reserved_files(path: Path) -> bool:
    """Whether a sandbox of any process may hide the side files of a database.

    A journal never makes the file that only SQLite's older kind of log has, so `reserve_side_file`
    made it. A rollback that SQLite itself has begun is not empty.
    """
    with suppress(OSError):
        return os.stat(f"{os.path.realpath(path)}{_RESERVED_SUFFIX}").st_size == 0  # noqa: PTH116
    return False


def _find_candidates(folder: Path) -> Iterator[str]:
    """Yield the files whose name is that of a database, the outer folders first."""
    places = [(str(folder), 0)]
    entries_left = SEARCH_ENTRIES_MAX
    for place, depth in places:
        names: set[str] = set()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    entries_left -= 1
                    if entries_left < 0:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        if depth < SEARCH_DEPTH_MAX and entry.name not in SKIPPED_FOLDERS:
                            places.append((entry.path, depth + 1))
                    else:
                        names.add(entry.name)
        except OSError:
            continue
        for name in sorted(names):
            beside = (f"{name}{suffix}" for suffix in _TELLING_SUFFIXES)
            if name.endswith(DATABASE_SUFFIXES) or not names.isdisjoint(beside):
                yield os.path.join(place, name)  # noqa: PTH118 - as scandir joins them
        if entries_left < 0:
            return


def _is_own_database(path: str) -> bool:
    """Whether a file is a SQLite database that Windlass made."""
    is_looked_at = path.endswith(DATABASE_SUFFIXES) or any(
        os.path.lexists(f"{path}{suffix}") for suffix in _TELLING_SUFFIXES
    )
    if not is_looked_at:
        return False
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode) or _is_open_here(found):
            return False
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            header = file.read(_APPLICATION_ID_OFFSET + 4)
    except OSError:
        return False
    # One that an older version has just made has its id in the log until the first checkpoint.
    is_ours = header[_APPLICATION_ID_OFFSET:] == APPLICATION_ID.to_bytes(4, "big")
    has_drivers = os.path.lexists(f"{path}{_DRIVERS_SUFFIX}")
    return header.startswith(_SQLITE_HEADER) and (is_ours or has_drivers)


def _is_open_here(wanted: os.stat_result) -> bool:
    """Whether this process has a file open.

    It must not be opened a second time: closing it would drop the locks that SQLite holds on it.
    """
    try:
        numbers = os.listdir("/proc/self/fd")  # noqa: PTH208 - only the names
    except OSError:
        return False
    for number in numbers:
        with suppress(OSError, ValueError):
            found = os.fstat(int(number))
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False
