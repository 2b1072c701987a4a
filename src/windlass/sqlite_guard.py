"""Keeps the write-ahead log of an open SQLite file from being deleted under this process.

SQLite's own locks belong to the process. The kernel drops all of them as soon as the process closes
any handle of the file, and a second SQLite library in the process (the standard `sqlite3` module)
does not know about ours. When such a library opens and closes the file, it takes itself for the
only user and deletes the log; what we write after that goes to a file without a name.
See "How To Corrupt An SQLite Database File", section 2.2.

Invariant: while a file is held, handles of our own hold the two locks that say "in use", as locks
of the open file. Those conflict with every other holder, in this process too, and closing another
handle does not drop them. No handle of the file is closed while a connection of ours is open.
"""

import fcntl
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import ClassVar, NamedTuple, final

_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
"""None where the system lacks locks that belong to an open file (macOS): then nothing is held."""
_FLOCK_STRUCT = struct.Struct("hhqqi4x")
"""Linux's `struct flock`: type, whence, start, length, pid."""


class _ByteRange(NamedTuple):
    start: int
    length: int


# These are part of SQLite's file format: os_unix.c, SHARED_FIRST and UNIX_SHM_DMS.
_DATABASE_IN_USE = _ByteRange(0x4000_0002, 510)
"""Locked for reading by each connection; a connection that closes needs it alone to delete the log.
"""
_INDEX_IN_USE = _ByteRange(128, 1)
"""The same in the `-shm` file; a connection that finds it free truncates that file."""


@final
class FileGuard:
    """One use of a file by this process. `unlock` comes before its connections close, then `close`.

    All guards of a file share two handles, because closing one would drop SQLite's locks.
    """

    _shared: ClassVar[dict[tuple[int, int], "_SharedHandles"]] = {}
    # The garbage collector may close a forgotten guard in a thread that is opening another one.
    _mutex: ClassVar[RLock] = RLock()
    _has_fork_hook: ClassVar[bool] = False

    def __init__(self, path: Path) -> None:
        """Hold the file at `path`. A connection must be open and must have read something."""
        self._handles: _SharedHandles | None = None
        self._is_locking = False
        if _SET_LOCK is None or sys.platform != "linux":
            return
        with self._mutex:
            self._register_fork_hook()
            # A file that was replaced just now is noticed by the check of each append.
            with suppress(OSError):
                found = path.stat()
                key = (found.st_dev, found.st_ino)
                handles = self._shared.get(key)
                if handles is None:
                    handles = self._shared[key] = _SharedHandles(key)
                handles.lock(path)
                handles.users += 1
                handles.lockers += 1
                self._handles = handles
                self._is_locking = True

    def unlock(self) -> None:
        """Let the connection that closes last tidy up. Calling it again does nothing."""
        with self._mutex:
            if self._handles is None or not self._is_locking:
                return
            self._is_locking = False
            self._handles.lockers -= 1
            if self._handles.lockers == 0:
                self._handles.unlock()

    def close(self) -> None:
        """Close the handles after the last use. All connections of this use must be closed."""
        self.unlock()
        with self._mutex:
            handles = self._handles
            self._handles = None
            if handles is None:
                return
            handles.users -= 1
            if handles.users == 0:
                handles.close()
                # In a forked child there may be a new entry for the same file.
                if self._shared.get(handles.key) is handles:
                    del self._shared[handles.key]

    def __del__(self) -> None:
        self.close()

    @classmethod
    def _register_fork_hook(cls) -> None:
        if not cls._has_fork_hook:
            cls._has_fork_hook = True
            os.register_at_fork(after_in_child=cls._drop_inherited_handles)

    @classmethod
    def _drop_inherited_handles(cls) -> None:
        """In a forked child: its copies would hold the locks for as long as it lives."""
        # A thread of the parent may have held the old mutex, and that thread is not in the child.
        cls._mutex = RLock()
        for handles in cls._shared.values():
            handles.close()
        cls._shared = {}


@final
class _SharedHandles:
    """The handles of a file and of its shared-memory index, with their locks."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.users = 0
        self.lockers = 0
        self._locks: dict[tuple[int, int], tuple[int, _ByteRange]] = {}

    def lock(self, path: Path) -> None:
        """Lock both files. The index is a new one if the last connection closed in between."""
        self._open_file(str(path), _DATABASE_IN_USE)
        with suppress(FileNotFoundError):
            # SQLite names it after the file itself, not after a link to it.
            self._open_file(f"{path.resolve()}-shm", _INDEX_IN_USE)
        for handle, span in self._locks.values():
            _set_lock(handle, fcntl.F_RDLCK, span)

    def _open_file(self, path: str, span: _ByteRange) -> None:
        found = os.stat(path)  # noqa: PTH116 - a text, because of the suffix
        key = (found.st_dev, found.st_ino)
        if key not in self._locks:
            self._locks[key] = (os.open(path, os.O_RDWR | os.O_CLOEXEC), span)

    def unlock(self) -> None:
        for handle, span in self._locks.values():
            _set_lock(handle, fcntl.F_UNLCK, span)

    def close(self) -> None:
        while self._locks:
            _, (handle, _) = self._locks.popitem()
            os.close(handle)


def _set_lock(handle: int, lock_type: int, span: _ByteRange) -> None:
    request = _FLOCK_STRUCT.pack(lock_type, os.SEEK_SET, span.start, span.length, 0)
    # Some file systems lack such locks. Then only the check of each append is left.
    with suppress(OSError):
        fcntl.fcntl(handle, _SET_LOCK or 0, request)
