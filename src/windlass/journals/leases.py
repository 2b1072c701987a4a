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
_BSD = sys.platform != "linux"
_FLOCK = struct.Struct("qqihh" if _BSD else "hhqqi4x")
"""The kernel's `struct flock`: kind, whence, start, length, process; start first on a BSD."""
_TAKEN = (errno.EAGAIN, errno.EACCES)


@final
class Held:
    """A lease. Letting go twice is letting go once."""

    def __init__(self, leases: "Leases", session: str) -> None:
        self.session = session
        self._leases = leases

    def release(self) -> None:
        self._leases.give_back(self)


class Leases:
    """The sessions that are driven through one journal."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        # Event loops in several threads may share a journal.
        self._one_at_a_time = Lock()

    def take(self, session: str) -> Held:
        """Take a session; raises SessionBusy at once if somebody alive has it."""
        with self._one_at_a_time:
            if session in self._held or not self._lock(session):
                msg = f"session {session!r}: another driver holds it; wait for its end, or watch it"
                raise SessionBusy(msg)
            held = self._held[session] = Held(self, session)
            return held

    def taken(self, session: str) -> bool:
        """Whether somebody alive has a session, through this journal or another."""
        with self._one_at_a_time:
            return session in self._held or self._locked(session)

    def give_back(self, held: Held) -> None:
        with self._one_at_a_time:
            if self._held.get(held.session) is held:
                del self._held[held.session]
                self._unlock(held.session)

    def _lock(self, session: str) -> bool:
        """Shut out others; whether that went well."""
        del session  # Nobody else could have it.
        return True

    def _locked(self, session: str) -> bool:
        """Whether others shut us out."""
        del session
        return False

    def _unlock(self, session: str) -> None:
        """Let others in."""


@final
class FileLeases(Leases):
    """As locks on a file beside the journal, for all the processes of a machine."""

    _open: ClassVar[WeakSet["FileLeases"]] = WeakSet()
    """What the child of a fork must not keep: its copy would hold the locks of a dead parent."""
    _forks_are_watched: ClassVar[bool] = False

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
            self._shut()

    @override
    def _lock(self, session: str) -> bool:
        try:
            fcntl.fcntl(self._opened(), _SET, _flock(fcntl.F_WRLCK, session))
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise self._failed(error) from error
        return True

    @override
    def _locked(self, session: str) -> bool:
        try:
            found = fcntl.fcntl(self._opened(), _GET, _flock(fcntl.F_WRLCK, session))
        except OSError as error:
            raise self._failed(error) from error
        return _FLOCK.unpack(found)[3 if _BSD else 0] != fcntl.F_UNLCK

    @override
    def _unlock(self, session: str) -> None:
        if self._file is not None:
            fcntl.fcntl(self._file, _SET, _flock(fcntl.F_UNLCK, session))

    def _opened(self) -> int:
        if self._process != os.getpid():
            msg = f"{self._path}: it was opened before a fork; open the journal anew in the child"
            raise JournalFailed(msg)
        if self._closed:
            raise JournalFailed(f"{self._path}: the journal is closed")
        if self._file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._open.add(self)
            self._watch_forks()
        return self._file

    def _failed(self, error: OSError) -> JournalFailed:
        return JournalFailed(f"{self._path}: no session can be held by it: {error.strerror}")

    def _shut(self) -> None:
        self._open.discard(self)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def leave_to_the_parent(self) -> None:
        """In the child of a fork: drop the copy of what the parent holds."""
        # A thread that is not here any more may have had the old one.
        self._one_at_a_time = Lock()
        self._held.clear()
        self._shut()

    @classmethod
    def _watch_forks(cls) -> None:
        if not cls._forks_are_watched:
            cls._forks_are_watched = True
            os.register_at_fork(after_in_child=_leave_to_the_parent)

    @classmethod
    def opened(cls) -> list["FileLeases"]:
        """All whose file is open in this process."""
        return list(cls._open)


def _leave_to_the_parent() -> None:
    for leases in FileLeases.opened():
        leases.leave_to_the_parent()


def _flock(kind: int, session: str) -> bytes:
    place = int.from_bytes(blake2b(session.encode(), digest_size=8).digest()) >> 2
    if _BSD:
        return _FLOCK.pack(place, 1, 0, kind, os.SEEK_SET)
    return _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0)
