"""Who drives a session: one at a time, for as long as they live.

In a file, a driver holds a lock on one byte, at a place that the name of the session says. The
kernel lets go of it the moment the process is gone, however it went: there is no heartbeat, and
nothing that could time out while its driver is alive.
"""

import errno
import fcntl
import os
import struct
import sys
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import ClassVar, final
from weakref import WeakSet

from typing_extensions import override

from windlass.core.errors import JournalFailed, SessionBusy

# Locks of an open file shut out everybody else's, in the same process too. Where the system has
# only those of a process, two journals in one process do not keep each other out.
_SET: int = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_GET: int = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
_IS_BSD = sys.platform != "linux"
_FLOCK_STRUCT = struct.Struct("qqihh" if _IS_BSD else "hhqqi4x")
"""The kernel's `struct flock`: kind, whence, start, length, process; start first on a BSD."""
_LOCK_TAKEN_ERRNOS = (errno.EAGAIN, errno.EACCES)


@final
class HeldLease:
    """A lease. Letting go twice is letting go once."""

    def __init__(self, leases: "LeaseTable", session: str) -> None:
        self.session = session
        self._leases = leases

    def release(self) -> None:
        self._leases.release_lease(self)


class LeaseTable:
    """The sessions that are driven through one journal."""

    def __init__(self) -> None:
        self._held: dict[str, HeldLease] = {}
        # Event loops in several threads may share a journal.
        self._mutex = Lock()

    def acquire(self, session: str) -> HeldLease:
        """Take a session; raises SessionBusy at once if somebody alive has it."""
        with self._mutex:
            if session in self._held or not self._try_lock(session):
                msg = f"session {session!r}: another driver holds it; wait for its end, or watch it"
                raise SessionBusy(msg)
            lease = self._held[session] = HeldLease(self, session)
            return lease

    def is_taken(self, session: str) -> bool:
        """Whether somebody alive has a session, through this journal or another."""
        with self._mutex:
            return session in self._held or self._is_locked(session)

    def release_lease(self, lease: HeldLease) -> None:
        with self._mutex:
            if self._held.get(lease.session) is lease:
                del self._held[lease.session]
                self._unlock_session(lease.session)

    def _try_lock(self, session: str) -> bool:
        """Shut out others; whether that went well."""
        del session  # Nobody else could have it.
        return True

    def _is_locked(self, session: str) -> bool:
        """Whether others shut us out."""
        del session
        return False

    def _unlock_session(self, session: str) -> None:
        """Let others in."""


@final
class FileLeaseTable(LeaseTable):
    """As locks on a file beside the journal, for all the processes of a machine."""

    _with_open_file: ClassVar[WeakSet["FileLeaseTable"]] = WeakSet()
    """What the child of a fork must not keep: its copy would hold the locks of a dead parent."""
    _has_fork_hook: ClassVar[bool] = False

    def __init__(self, journal: Path) -> None:
        super().__init__()
        # The same file has the same locks, by whatever link it was opened.
        self._path = f"{os.path.realpath(journal)}-drivers"
        self._file: int | None = None
        self._closed = False
        self._process = os.getpid()

    def close(self) -> None:
        """Let go of all sessions."""
        with self._one_at_a_time:
            self._closed = True
            self._held.clear()
            self._close_lock_file()

    @override
    def _try_lock(self, session: str) -> bool:
        try:
            fcntl.fcntl(self._open_lock_file(), _SET, _pack_flock(fcntl.F_WRLCK, session))
        except OSError as error:
            if error.errno in _LOCK_TAKEN_ERRNOS:
                return False
            raise self._lock_file_error(error) from error
        return True

    @override
    def _is_locked(self, session: str) -> bool:
        try:
            lock = fcntl.fcntl(self._open_lock_file(), _GET, _pack_flock(fcntl.F_WRLCK, session))
        except OSError as error:
            raise self._lock_file_error(error) from error
        return _FLOCK_STRUCT.unpack(lock)[3 if _IS_BSD else 0] != fcntl.F_UNLCK

    @override
    def _unlock_session(self, session: str) -> None:
        if self._file is not None:
            fcntl.fcntl(self._file, _SET, _pack_flock(fcntl.F_UNLCK, session))

    def _open_lock_file(self) -> int:
        if self._process != os.getpid():
            msg = f"{self._path}: it was opened before a fork; open the journal anew in the child"
            raise JournalFailed(msg)
        if self._closed:
            raise JournalFailed(f"{self._path}: the journal is closed")
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._with_open_file.add(self)
            self._register_fork_hook()
        return self._file

    def _lock_file_error(self, error: OSError) -> JournalFailed:
        return JournalFailed(f"{self._path}: no session can be held by it: {error.strerror}")

    def _close_lock_file(self) -> None:
        self._with_open_file.discard(self)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def drop_inherited_locks(self) -> None:
        """In the child of a fork: drop the copy of what the parent holds."""
        # A thread that is not here any more may have had the old one.
        self._one_at_a_time = Lock()
        self._held.clear()
        self._close_lock_file()

    @classmethod
    def _register_fork_hook(cls) -> None:
        if not cls._has_fork_hook:
            cls._has_fork_hook = True
            os.register_at_fork(after_in_child=_drop_inherited_locks)

    @classmethod
    def list_open(cls) -> list["FileLeaseTable"]:
        """All whose file is open in this process."""
        return list(cls._with_open_file)


def _drop_inherited_locks() -> None:
    for leases in FileLeaseTable.list_open():
        leases.drop_inherited_locks()


def _pack_flock(kind: int, session: str) -> bytes:
    offset = int.from_bytes(blake2b(session.encode(), digest_size=8).digest()) >> 2
    if _IS_BSD:
        return _FLOCK_STRUCT.pack(offset, 1, 0, kind, os.SEEK_SET)
    return _FLOCK_STRUCT.pack(kind, os.SEEK_SET, offset, 1, 0)
