"""Brings the notes of a folder up to date: changed files are read again, missing ones forgotten.

Invariant: afterwards the store holds what the folder holds. A file that cannot be read is reported
and left out; it does not stop the others.
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.suggestions import SettingsStruct
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
    """How many files are done, and which one was the last."""

    done: int
    total: int
    place: str


class IngestReport(msgspec.Struct, frozen=True):
    """How many files were stored, unchanged and forgotten, and which failed."""

    kept: int = 0
    unchanged: int = 0
    forgotten: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    """The places of files that could not be read, each with the reason."""


class IngestSettings(SettingsStruct, frozen=True):
    """What all notes of a folder have in common: scope, labels, and when they expire."""

    scope: Scope
    labels: frozenset[Taint] = frozenset()
    expires_at: float | None = None

    def digest_file(self, data: bytes) -> str:
        """Changes with the content of the file, and with these settings."""
        return content_digest(data, repr(self.expires_at), *sorted(self.labels))


FileOutcome = Note | UnreadableFile | Literal["unchanged", "empty"]


def _ignore_progress(_progress: IngestProgress) -> None:
    """The default: no progress is reported."""


async def ingest(
    store: Knowledge,
    folder: str | os.PathLike[str],
    settings: Scope | IngestSettings,
    *,
    globs: Sequence[str] = DEFAULT_GLOBS,
    name: str = "",
    progress: Callable[[IngestProgress], None] = _ignore_progress,
) -> IngestReport:
    """Store the files of a folder that match the globs, and forget those that no longer do.

    `settings`: the scope of the notes, or `IngestSettings`. `name`: what the places of the notes
    start with, instead of the path of the folder, so that they are the same on every machine.
    `progress`: called after each file. Raises ConfigError for a missing folder, or for a PDF if
    pypdf is not installed; KnowledgeFailed if the store fails.
    """
    root = await asyncio.to_thread(_resolve_folder, folder)
    if isinstance(settings, Scope):
        settings = IngestSettings(settings)
    files = await asyncio.to_thread(lambda: sorted(set(_find_files(root, globs))))
    check_readable([path.name for path in files])
    prefix = (name or root.as_posix()).rstrip("/") + "/"
    places = [(prefix + path.relative_to(root).as_posix(), path) for path in files]
    known = await store.list_places(settings.scope, prefix)
    current = dict(places)
    gone = [place for place in known if place not in current]
    total = IngestReport()
    for start in range(0, len(places), FILES_PER_BATCH):
        batch = places[start : start + FILES_PER_BATCH]
        outcomes = await _read_batch(batch, settings, known)
        await store.replace_notes(*(note for note in outcomes.values() if isinstance(note, Note)))
        # A file that is empty now has no text to store, but its old note must go.
        gone += (place for place, what in outcomes.items() if what == "empty" and place in known)
        total = _add_counts(total, outcomes)
        for done, place in enumerate(outcomes, start + 1):
            progress(IngestProgress(done, len(places), place))
    forgotten = await store.forget_places(settings.scope, gone)
    return msgspec.structs.replace(total, forgotten=forgotten)


def _resolve_folder(folder: str | os.PathLike[str]) -> Path:
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise ConfigError(f"{folder}: there is no such folder")
    return root


def _find_files(root: Path, globs: Sequence[str]) -> Iterator[Path]:
    """The files that match, without hidden ones and links that lead out of the folder."""
    for pattern in globs:
        for path in root.glob(pattern):
            parts = path.relative_to(root).parts
            if any(part.startswith(".") or part in _SKIPPED_FOLDERS for part in parts):
                continue
            if path.is_file() and path.resolve().is_relative_to(root):
                yield path


async def _read_batch(
    batch: Sequence[tuple[str, Path]], settings: IngestSettings, known_digests: Mapping[str, str]
) -> dict[str, FileOutcome]:
    return {
        place: await _read_file(place, path, settings, known_digests.get(place))
        for place, path in batch
    }


async def _read_file(
    place: str, path: Path, settings: IngestSettings, known_digest: str | None
) -> FileOutcome:
    try:
        data, digest = await asyncio.to_thread(_load_file, path, settings)
        if digest == known_digest:
            return "unchanged"
        document = await read_document(path.name, data)
    except UnreadableFile as error:
        return error
    except OSError as error:
        return UnreadableFile(error.strerror or "it cannot be read")
    if not document.text.strip():
        return "empty"
    return Note(
        document.text,
        settings.scope,
        Source(place),
        document.title or path.name,
        settings.labels,
        settings.expires_at,
        document.format,
        digest,
    )


def _load_file(path: Path, settings: IngestSettings) -> tuple[bytes, str]:
    """Return the content of a file and its digest. Raises UnreadableFile and OSError."""
    if path.stat().st_size > FILE_BYTES_MAX:
        raise UnreadableFile(f"it is larger than {FILE_BYTES_MAX // 2**20} MiB")
    data = path.read_bytes()
    return data, settings.digest_file(data)


def _add_counts(total: IngestReport, outcomes: Mapping[str, FileOutcome]) -> IngestReport:
    failed = [
        (place, str(error))
        for place, error in outcomes.items()
        if isinstance(error, UnreadableFile)
    ]
    for place, reason in failed:
        _log.warning("%s was not stored: %s", place, reason)
    return IngestReport(
        total.kept + sum(isinstance(outcome, Note) for outcome in outcomes.values()),
        total.unchanged + sum(outcome == "unchanged" for outcome in outcomes.values()),
        0,
        (*total.failed, *failed),
    )
