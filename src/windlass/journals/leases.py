"""Who drives a session: one driver at a time, for as long as its process lives.

For a journal in a file, the driver locks one byte of a lock file next to it. The offset of the byte
is a hash of the session's name. The kernel releases the lock as soon as the process is gone, even
after SIGKILL, so it needs neither a heartbeat nor a time-out that could expire while the driver
lives.
"""

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import ClassVar, final
from weakref import WeakSet

from typing_extensions import override

from windlass.core.errors import JournalFailed
from windlass.journals.wording import closed_error, forked_error, session_busy_error

# Locks that belong to an open file also exclude other journals in the same process. Where the
# system has only locks that belong to a process (macOS), two journals in one process can both take
# a session.
_SET_LOCK: int = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_GET_LOCK: int = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
_IS_BSD = sys.platform != "linux"
_FLOCK_STRUCT = struct.Struct("qqihh" if _IS_BSD else "hhqqi4x")
"""The kernel's `struct flock`: type, whence, start, length, pid; on a BSD the type comes fourth."""
_LOCK_TAKEN_ERRNOS = (errno.EAGAIN, errno.EACCES)


@final
class HeldLease:
    """The lease of a session. Releasing it a second time does nothing."""

    epoch = 0
    """No fencing token of its own: the numbers of the facts serve as one."""

    def __init__(self, leases: "LeaseTable", session: str) -> None:
        self.session = session
        self._leases = leases

    def release(self) -> None:
        self._leases.release_lease(self)

    def is_certain(self) -> bool:
        """Whether it is held: until it is released, because it cannot be lost."""
        return self._leases.has_lease(self)

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Do nothing: it cannot be lost."""

    async def confirm(self) -> bool:
        """Whether it is held: until it is released, because it cannot be lost."""
        return self._leases.has_lease(self)


class OpenLease:
    """A lease that excludes no other driver."""

    epoch = 0
    """No fencing token of its own: the numbers of the facts serve as one."""

    def release(self) -> None:
        """Do nothing."""

    def is_certain(self) -> bool:
        """Return True: the next append shows whether another driver has the session."""
        return True

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Do nothing: no server reports a loss."""

    async def confirm(self) -> bool:
        """Return True: only a fact of another driver shows that it has the session."""
        return True


class LeaseTable:
    """The sessions that are driven through one journal object in memory."""

    def __init__(self) -> None:
        self._held: dict[str, HeldLease] = {}
        self._claimed: dict[str, HeldLease] = {}
        """Those that were claimed as work, until a driver asks for them."""
        # Event loops in several threads may share a journal.
        self._mutex = Lock()

    def acquire(self, session: str) -> HeldLease:
        """Take the lease of a session; raises SessionBusy at once if a live driver has it."""
        with self._mutex:
            if session in self._claimed:
                return self._claimed.pop(session)
            if session in self._held or not self._try_lock(session):
                raise session_busy_error(session)
            lease = self._held[session] = HeldLease(self, session)
            return lease

    def claim(self, session: str) -> bool:
        """Take the lease of a session for who asks next; returns whether it was free."""
        with self._mutex:
            if session in self._held or not self._try_lock(session):
                return False
            self._held[session] = self._claimed[session] = HeldLease(self, session)
            return True

    def release_claim(self, session: str) -> None:
        """Release the lease of a session that was claimed, unless a driver has asked for it."""
        with self._mutex:
            if self._claimed.pop(session, None) is not None:
                del self._held[session]
                self._unlock_session(session)

    def is_taken(self, session: str) -> bool:
        """Whether a live driver has the session, through this journal or another."""
        with self._mutex:
            return session in self._held or self._is_locked(session)

    def has_lease(self, lease: HeldLease) -> bool:
        """Whether a lease is held, and was not released."""
        with self._mutex:
            return self._held.get(lease.session) is lease

    def release_lease(self, lease: HeldLease) -> None:
        """Release a lease, unless the session has been leased again since."""
        with self._mutex:
            if self._held.get(lease.session) is lease:
                del self._held[lease.session]
                self._unlock_session(lease.session)

    def _try_lock(self, session: str) -> bool:
        """Lock the session against other journals; False if one of them has it."""
        del session  # No other journal can see the sessions of this one.
        return True

    def _is_locked(self, session: str) -> bool:
        """Whether another journal has locked the session."""
        del session
        return False

    def _unlock_session(self, session: str) -> None:
        """Undo `_try_lock`."""


@final
class FileLeaseTable(LeaseTable):
    """Leases that hold among all processes of a machine, as locks on a file beside the journal."""

    _with_open_file: ClassVar[WeakSet["FileLeaseTable"]] = WeakSet()
    """The tables that a forked child must close: its copy would keep a dead parent's locks."""
    _has_fork_hook: ClassVar[bool] = False

    def __init__(self, journal: Path) -> None:
        super().__init__()
        # Resolved, so that a journal has the same lock file through every link to it.
        self._path = f"{os.path.realpath(journal)}-drivers"
        self._file: int | None = None
        self._closed = False
        self._process = os.getpid()

    def close(self) -> None:
        """Release all leases and close the lock file."""
        with self._mutex:
            self._closed = True
            self._held.clear()
            self._claimed.clear()
            self._close_lock_file()

    @override
    def _try_lock(self, session: str) -> bool:
        # Opened outside the `try`: a file that may not be opened has the same error number as a
        # lock that is taken.
        file = self._open_lock_file()
        try:
            fcntl.fcntl(file, _SET_LOCK, _pack_flock(fcntl.F_WRLCK, session))
        except OSError as error:
            if error.errno in _LOCK_TAKEN_ERRNOS:
                return False
            raise self._lock_file_error(error) from error
        return True

    @override
    def _is_locked(self, session: str) -> bool:
        file = self._open_lock_file()
        try:
            answer = fcntl.fcntl(file, _GET_LOCK, _pack_flock(fcntl.F_WRLCK, session))
        except OSError as error:
            raise self._lock_file_error(error) from error
        # The kernel answers F_UNLCK if the lock could be taken.
        return _FLOCK_STRUCT.unpack(answer)[3 if _IS_BSD else 0] != fcntl.F_UNLCK

    @override
    def _unlock_session(self, session: str) -> None:
        if self._file is not None:
            fcntl.fcntl(self._file, _SET_LOCK, _pack_flock(fcntl.F_UNLCK, session))

    def _open_lock_file(self) -> int:
        if self._process != os.getpid():
            raise forked_error(self._path)
        if self._closed:
            raise closed_error(self._path)
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                self._file = os.open(self._path, flags, 0o600)
            except OSError as error:
                raise self._lock_file_error(error) from error
            self._with_open_file.add(self)
            if not FileLeaseTable._has_fork_hook:
                FileLeaseTable._has_fork_hook = True
                os.register_at_fork(after_in_child=_drop_inherited_locks)
        return self._file

    def _lock_file_error(self, error: OSError) -> JournalFailed:
        return JournalFailed(
            f"{self._path}: the lock file cannot be used, so no session can be run: "
            f"{error.strerror}; check that it is a file and that you may write to it"
        )

    def _close_lock_file(self) -> None:
        self._with_open_file.discard(self)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def drop_inherited_locks(self) -> None:
        """In a forked child: close the copy of the parent's lock file."""
        # A thread of the parent may have held the old mutex, and that thread is not in the child.
        self._mutex = Lock()
        self._held.clear()
        self._claimed.clear()
        self._close_lock_file()

    @classmethod
    def list_open(cls) -> list["FileLeaseTable"]:
        """Return all tables whose lock file is open in this process."""
        return list(cls._with_open_file)


def _drop_inherited_locks() -> None:
    for leases in FileLeaseTable.list_open():
        leases.drop_inherited_locks()


def _pack_flock(lock_type: int, session: str) -> bytes:
    # Shifted to 62 bits: an offset in a file is a signed number.
    offset = int.from_bytes(blake2b(session.encode(), digest_size=8).digest()) >> 2
    if _IS_BSD:
        return _FLOCK_STRUCT.pack(offset, 1, 0, lock_type, os.SEEK_SET)
    return _FLOCK_STRUCT.pack(lock_type, os.SEEK_SET, offset, 1, 0)
