"""The outside world of a fleet: a service that remembers each effect, and who asked for it.

It keeps to fencing tokens, as services should: of two drivers, only the later one has an effect. It
does not keep to keys, so that an effect that happens twice is seen.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

EffectKind = Literal["effect", "fence", "refused"]


class EffectLine(msgspec.Struct, frozen=True):
    """What happened to one call."""

    kind: EffectKind
    """`fence`: a driver asked what became of the call, and no earlier driver may make it now."""
    key: str
    token: int
    worker: str
    at: float


class EffectService:
    """The effects of one session, in a file that all workers share."""

    def __init__(self, folder: Path, session: str) -> None:
        self._path = folder / session

    def perform(self, key: str, token: int, worker: str) -> bool:
        """Perform an effect, unless a later driver was here already. Returns whether it did."""
        with self._locked() as lines:
            latest = max((line.token for line in lines if line.key == key), default=0)
            is_refused = token < latest
            self._append("refused" if is_refused else "effect", key, token, worker)
        return not is_refused

    def find(self, key: str, token: int, worker: str) -> bool:
        """Return whether an effect has happened. Earlier drivers can no longer bring it about."""
        with self._locked() as lines:
            self._append("fence", key, token, worker)
            return any(line.kind == "effect" and line.key == key for line in lines)

    def read(self) -> list[EffectLine]:
        """Return all that happened, in order."""
        if not self._path.exists():
            return []
        data = self._path.read_bytes()
        return [msgspec.json.decode(line, type=EffectLine) for line in data.splitlines()]

    @contextmanager
    def _locked(self) -> Generator[list[EffectLine]]:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield self.read()
        finally:
            os.close(handle)

    def _append(self, kind: EffectKind, key: str, token: int, worker: str) -> None:
        line = EffectLine(kind, key, token, worker, time.time())
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
