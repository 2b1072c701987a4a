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
from windlass.knowledge.documents import UnreadableFile, check_readable, read_document
from windlass.knowledge.store import Knowledge, Note, Scope, Source, Taint, content_digest
from windlass.logs import get_logger

FILE_BYTES_MAX = 20 * 2**20
FILES_PER_BATCH = 50
DEFAULT_GLOBS = (
    "**/*.md",
    "**/*.markdown",
    "**/*.txt",
    "**/*.rst",
    "**/*.html",
    "**/*.htm",
    "**/*.pdf",
)
_SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__"))

_log = get_logger(__name__)


class IngestProgress(msgspec.Struct, frozen=True):
    """How far it is."""

    done: int
    total: int
    place: str


class IngestReport(msgspec.Struct, frozen=True):
    """What became of the files."""

    kept: int = 0
    unchanged: int = 0
    forgotten: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    """Files that could not be read, and why."""


class IngestSettings(msgspec.Struct, frozen=True):
    """What all notes of a folder have in common."""

    scope: Scope
    labels: frozenset[Taint] = frozenset()
    expires_at: float | None = None

    def digest_file(self, data: bytes) -> str:
        """Changes with the file, and with what would be said of it."""
        return content_digest(data, repr(self.expires_at), *sorted(self.labels))


FileOutcome = Note | UnreadableFile | Literal["unchanged", "empty"]


def _ignore_progress(_progress: IngestProgress) -> None:
    """Nobody watches."""


async def ingest(
    store: Knowledge,
    folder: str | os.PathLike[str],
    settings: Scope | IngestSettings,
    *,
    globs: Sequence[str] = DEFAULT_GLOBS,
    name: str = "",
    progress: Callable[[IngestProgress], None] = _ignore_progress,
) -> IngestReport:
    """Take in the files of a folder that match; what is known and unchanged stays as it is.

    Places are named by the folder's path, or by `name`, which makes them the same on another
    machine. What the globs no longer match is forgotten.
    """
    root = await asyncio.to_thread(_resolve_folder, folder)
    settings = IngestSettings(settings) if isinstance(settings, Scope) else settings
    files = await asyncio.to_thread(lambda: sorted(set(_find_files(root, globs))))
    check_readable([path.name for path in files])
    under = (name or root.as_posix()).rstrip("/") + "/"
    named = {under + path.relative_to(root).as_posix(): path for path in files}
    known = await store.list_places(settings.scope, under)
    places = list(named.items())
    total, gone = IngestReport(), [place for place in known if place not in named]
    for start in range(0, len(named), FILES_PER_BATCH):
        batch = places[start : start + FILES_PER_BATCH]
        looked = await asyncio.to_thread(_read_batch, batch, settings, known)
        await store.replace_notes(*(one for one in looked.values() if isinstance(one, Note)))
        gone += (place for place, one in looked.items() if one == "empty" and place in known)
        total = _add_counts(total, looked)
        for done, place in enumerate(looked, start + 1):
            progress(IngestProgress(done, len(named), place))
    forgotten = await store.forget_places(settings.scope, gone)
    return msgspec.structs.replace(total, forgotten=forgotten)


def _resolve_folder(folder: str | os.PathLike[str]) -> Path:
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{folder}: there is no such folder to take in")
    return root


def _find_files(root: Path, globs: Sequence[str]) -> Iterator[Path]:
    """The files that match, but not what is hidden, nor what a link would bring in from outside."""
    for pattern in globs:
        for path in root.glob(pattern):
            parts = path.relative_to(root).parts
            if any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in parts):
                continue
            if path.is_file() and path.resolve().is_relative_to(root):
                yield path


def _read_batch(
    batch: Sequence[tuple[str, Path]], settings: IngestSettings, known_digests: Mapping[str, str]
) -> dict[str, FileOutcome]:
    return {
        place: _read_file(place, path, settings, known_digests.get(place)) for place, path in batch
    }


def _read_file(
    place: str, path: Path, settings: IngestSettings, known_digest: str | None
) -> FileOutcome:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            return UnreadableFile(f"it is larger than {FILE_BYTES_MAX // 2**20} MiB")
        data = path.read_bytes()
        digest = settings.digest_file(data)
        if digest == known_digest:
            return "unchanged"
        read = read_document(path.name, data)
    except UnreadableFile as error:
        return error
    except OSError as error:
        return UnreadableFile(error.strerror or "it cannot be read")
    if not read.text.strip():
        return "empty"
    return Note(
        read.text,
        settings.scope,
        Source(place),
        read.title or path.name,
        settings.labels,
        settings.expires_at,
        read.format,
        digest,
    )


def _add_counts(total: IngestReport, outcomes: Mapping[str, FileOutcome]) -> IngestReport:
    failed = [
        (place, str(one)) for place, one in outcomes.items() if isinstance(one, UnreadableFile)
    ]
    for place, why in failed:
        _log.warning("%s was not taken in: %s", place, why)
    return IngestReport(
        total.kept + sum(isinstance(one, Note) for one in outcomes.values()),
        total.unchanged + sum(one == "unchanged" for one in outcomes.values()),
        0,
        (*total.failed, *failed),
    )
