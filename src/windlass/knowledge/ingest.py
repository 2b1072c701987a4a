"""A folder in, notes out: what has changed is read anew, what is gone is forgotten.

The law: afterwards the store holds of the folder what the folder holds, and a file that cannot be
read is told and left out, never the end of it.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from windlass.core.errors import ConfigError
from windlass.knowledge.documents import Unreadable, check_readable, read_document
from windlass.knowledge.store import Knowledge, Note, Scope, Source, Taint, digest_of
from windlass.logs import logger

FILE_BYTES_MAX = 20 * 2**20
FILES_PER_BATCH = 50
GLOBS = ("**/*.md", "**/*.markdown", "**/*.txt", "**/*.rst", "**/*.html", "**/*.htm", "**/*.pdf")
_PASSED_OVER = frozenset(("node_modules", "__pycache__"))

_log = logger(__name__)


class Progress(msgspec.Struct, frozen=True):
    """How far it is."""

    done: int
    total: int
    place: str


class Ingested(msgspec.Struct, frozen=True):
    """What became of the files."""

    kept: int = 0
    unchanged: int = 0
    forgotten: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    """Files that could not be read, and why."""


class Manner(msgspec.Struct, frozen=True):
    """What all notes of a folder have in common."""

    scope: Scope
    labels: frozenset[Taint] = frozenset()
    expires_at: float | None = None

    def digest(self, data: bytes) -> str:
        """Changes with the file, and with what would be said of it."""
        return digest_of(data, repr(self.expires_at), *sorted(self.labels))


Seen = Note | Unreadable | Literal["unchanged", "empty"]


def _unheard(_progress: Progress) -> None:
    """Nobody watches."""


async def ingest(
    store: Knowledge,
    folder: str | os.PathLike[str],
    manner: Scope | Manner,
    *,
    globs: Sequence[str] = GLOBS,
    name: str = "",
    progress: Callable[[Progress], None] = _unheard,
) -> Ingested:
    """Take in the files of a folder that match; what is known and unchanged stays as it is.

    Places are named by the folder's path, or by `name`, which makes them the same on another
    machine. What the globs no longer match is forgotten.
    """
    root = await asyncio.to_thread(_root, folder)
    manner = Manner(manner) if isinstance(manner, Scope) else manner
    files = await asyncio.to_thread(lambda: sorted(set(_files(root, globs))))
    check_readable([path.name for path in files])
    under = (name or root.as_posix()).rstrip("/") + "/"
    named = {under + path.relative_to(root).as_posix(): path for path in files}
    known = await store.places(manner.scope, under)
    places = list(named.items())
    total, gone = Ingested(), [place for place in known if place not in named]
    for start in range(0, len(named), FILES_PER_BATCH):
        batch = places[start : start + FILES_PER_BATCH]
        looked = await asyncio.to_thread(_look_at, batch, manner, known)
        await store.renew(*(one for one in looked.values() if isinstance(one, Note)))
        gone += (place for place, one in looked.items() if one == "empty" and place in known)
        total = _counted(total, looked)
        for done, place in enumerate(looked, start + 1):
            progress(Progress(done, len(named), place))
    forgotten = await store.drop(manner.scope, gone)
    return msgspec.structs.replace(total, forgotten=forgotten)


def _root(folder: str | os.PathLike[str]) -> Path:
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{folder}: there is no such folder to take in")
    return root


def _files(root: Path, globs: Sequence[str]) -> Iterator[Path]:
    """The files that match, but not what is hidden, nor what a link would bring in from outside."""
    for pattern in globs:
        for path in root.glob(pattern):
            parts = path.relative_to(root).parts
            if any(part.startswith(".") or part in _PASSED_OVER for part in parts):
                continue
            if path.is_file() and path.resolve().is_relative_to(root):
                yield path


def _look_at(
    batch: Sequence[tuple[str, Path]], manner: Manner, known: Mapping[str, str]
) -> dict[str, Seen]:
    return {place: _seen(place, path, manner, known.get(place)) for place, path in batch}


def _seen(place: str, path: Path, manner: Manner, known: str | None) -> Seen:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            return Unreadable(f"it is larger than {FILE_BYTES_MAX // 2**20} MiB")
        data = path.read_bytes()
        digest = manner.digest(data)
        if digest == known:
            return "unchanged"
        read = read_document(path.name, data)
    except Unreadable as error:
        return error
    except OSError as error:
        return Unreadable(error.strerror or "it cannot be read")
    if not read.text.strip():
        return "empty"
    return Note(
        read.text,
        manner.scope,
        Source(place),
        read.title or path.name,
        manner.labels,
        manner.expires_at,
        read.format,
        digest,
    )


def _counted(total: Ingested, looked: Mapping[str, Seen]) -> Ingested:
    failed = [(place, str(one)) for place, one in looked.items() if isinstance(one, Unreadable)]
    for place, why in failed:
        _log.warning("%s was not taken in: %s", place, why)
    return Ingested(
        total.kept + sum(isinstance(one, Note) for one in looked.values()),
        total.unchanged + sum(one == "unchanged" for one in looked.values()),
        0,
        (*total.failed, *failed),
    )
