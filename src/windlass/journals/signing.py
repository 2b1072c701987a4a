"""The key of the user, which shows whether a command has changed a journal in a file.

A command that a model runs may get at the file of a journal, but never at this key: the sandbox and
the file tools hide its folder. Without the key, a process cannot answer a question, post a message
or remove records unnoticed.

Invariant: a journal works without a key. If the folder cannot be written, nothing is signed, and
`verify` says so.
"""

import hashlib
import hmac
import os
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from windlass.environ import signing_key_folder
from windlass.private_files import make_private_folder, mark_private_folder

KEY_FILE = "journal.key"
KEY_BYTES = 32
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class JournalMark(msgspec.Struct, frozen=True):
    """What is remembered outside a journal: how far it had come, and what it was."""

    count: int = 0
    """How often its book had changed."""
    signature: str = ""
    """That of its book at that time."""


class JournalKey:
    """Signs for one user."""

    def __init__(self, secret: bytes, folder: Path) -> None:
        self._secret = secret
        self._folder = folder

    def sign(self, purpose: str, *values: object) -> str:
        """Return the signature of values. Each purpose has signatures of its own."""
        text = msgspec.msgpack.encode((purpose, *values))
        return hmac.digest(self._secret, text, "sha256").hex()

    def is_valid(self, signature: str, purpose: str, *values: object) -> bool:
        """Whether a signature is that of these values."""
        return hmac.compare_digest(signature.encode(), self.sign(purpose, *values).encode())

    def read_mark(self, journal: str) -> JournalMark | None:
        """Return what is remembered of a journal, by its id; None if nothing is."""
        try:
            data = self._mark_path(journal).read_bytes()
            return msgspec.json.decode(data, type=JournalMark)
        except (OSError, msgspec.MsgspecError):
            return None

    def write_mark(self, journal: str, mark: JournalMark) -> None:
        """Remember how far a journal has come. A folder that cannot be written is not an error."""
        path = self._mark_path(journal)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with suppress(OSError):
            draft.write_bytes(msgspec.json.encode(mark))
            draft.replace(path)

    def _mark_path(self, journal: str) -> Path:
        # The id comes from the file, which may be anybody's.
        return self._folder / f"{hashlib.sha256(journal.encode()).hexdigest()[:32]}.mark"


def load_key() -> JournalKey | None:
    """Return the key of the user, which is made at its first use; None if it cannot be."""
    return _load_key(signing_key_folder())


@lru_cache(maxsize=16)
def _load_key(folder: Path) -> JournalKey | None:
    path = folder / KEY_FILE
    mark_private_folder(folder)
    try:
        make_private_folder(folder)
        if not path.exists():
            _make_key(path)
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)
        secret = path.read_bytes()
    except OSError:
        return None
    return JournalKey(secret, folder) if len(secret) == KEY_BYTES else None


def _make_key(path: Path) -> None:
    """Write a new key as a whole: of many processes that do so at once, one makes it."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
