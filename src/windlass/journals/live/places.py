"""Where the sockets of drivers are: one folder of the user, which the sandbox hides.

A socket is named by the journal that its process drives sessions of, so that a watcher finds it.
The name is a hash: the path of a socket may have about a hundred bytes only.
"""

import errno
import os
import socket
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path

from windlass.environ import live_socket_folder
from windlass.private_files import make_private_folder

ADDRESS_BYTES_MAX = 100
"""Linux takes 107 bytes, macOS 103."""
STALE_AFTER_S = 5.0
"""A socket that refuses a connection is dead, unless it was made just now."""
SWEPT_MAX = 256
_FD_FOLDER = Path("/proc/self/fd")


def open_socket_folder(*, create: bool) -> Path:
    """Return the folder of the sockets; raises OSError if it is missing or not private."""
    folder = live_socket_folder()
    if create:
        make_private_folder(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "it is not a folder of this user", str(folder))
    if stat.S_IMODE(found.st_mode) & 0o077:
        folder.chmod(0o700)
    return folder


def journal_prefix(journal: Path) -> str:
    """Return how the names of the sockets begin that belong to a journal file."""
    path = os.path.realpath(journal)
    return blake2b(os.fsencode(path), digest_size=8).hexdigest() + "-"


def new_socket_name(prefix: str) -> str:
    """Return a name that no other socket has."""
    return f"{prefix}{os.getpid():x}-{os.urandom(4).hex()}"


def list_sockets(folder: Path, prefix: str = "") -> list[str]:
    """Return the names of the sockets in the folder that begin with a prefix."""
    with suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.startswith(prefix))  # noqa: PTH208
    return []


@contextmanager
def socket_address(folder: Path, name: str) -> Generator[str]:
    """Give an address for a socket, however long the path of its folder is.

    Raises OSError where the system has no way to shorten it.
    """
    path = str(folder / name)
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield path
        return
    if not _FD_FOLDER.is_dir():
        raise OSError(errno.ENAMETOOLONG, "the path of the socket is too long", path)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_FD_FOLDER}/{handle}/{name}"
    finally:
        os.close(handle)


def connect_socket(folder: Path, name: str) -> socket.socket | None:
    """Connect to a socket without waiting; None if no process listens there now.

    The socket of a dead process is removed.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(0)
    try:
        with socket_address(folder, name) as address:
            connection.connect(address)
    except ConnectionRefusedError:
        connection.close()
        path = folder / name
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime > STALE_AFTER_S:
                path.unlink()
        return None
    except OSError:
        connection.close()
        return None
    return connection


def remove_stale_sockets(own: Path) -> None:
    """Remove the sockets beside our own whose processes died without doing so."""
    for name in list_sockets(own.parent)[:SWEPT_MAX]:
        connection = connect_socket(own.parent, name) if name != own.name else None
        if connection is not None:
            connection.close()
