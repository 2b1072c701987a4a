"""Brings the notes of a folder up to date: changed files are read again, missing ones forgotten.

Invariant: afterwards the store holds what the folder holds, and each file that it does not hold is
reported with the reason. A file that cannot be read does not stop the others.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.suggestions import SettingsStruct
from windlass.document_text import DOCUMENT_EXTENSIONS
from windlass.knowledge.documents import UnreadableFile, read_document
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
    "**/*.csv",
    "**/*.tsv",
    *(f"**/*.{extension}" for extension in DOCUMENT_EXTENSIONS),
)
_SKIPPED_FOLDERS = frozenset(("node_modules", "__pycache__"))

_log = get_logger(__name__)


class IngestProgress(msgspec.Struct, frozen=True):
    """How many files are done, and which one was the last."""

    done: int
    total: int
    place: str


class IngestReport(msgspec.Struct, frozen=True):
    """How many files were stored, unchanged and forgotten, and which are not in the store."""

    kept: int = 0
    unchanged: int = 0
    forgotten: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    """The places of files that could not be read, each with the reason."""
    skipped: tuple[tuple[str, str], ...] = ()
    """The places of files and folders that were left out on purpose, each with the reason."""


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
    `progress`: called after each file. Raises ConfigError for a missing folder, KnowledgeFailed if
    the store fails.
    """
    root = await asyncio.to_thread(_resolve_folder, folder)
    if isinstance(settings, Scope):
        settings = IngestSettings(settings)
    files, skipped = await asyncio.to_thread(_sort_files, root, globs)
    prefix = (name or root.as_posix()).rstrip("/") + "/"
    places = [(prefix + path.relative_to(root).as_posix(), path) for path in files]
    known = await store.list_places(settings.scope, prefix)
    current = dict(places)
    gone = [place for place in known if place not in current]
    total = IngestReport(skipped=tuple((prefix + place, reason) for place, reason in skipped))
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


def _sort_files(root: Path, globs: Sequence[str]) -> tuple[list[Path], list[tuple[str, str]]]:
    """The files that match, and what is left out: its path below the root, and the reason."""
    matching = {path for pattern in globs for path in root.glob(pattern)}
    files: list[Path] = []
    skipped: list[tuple[str, str]] = []
    for folder, names, file_names in os.walk(root):
        here = Path(folder)
        for name in [*names, *file_names]:
            path = here / name
            if reason := _reason_to_skip(path, root, is_wanted=path in matching):
                skipped.append((path.relative_to(root).as_posix(), reason))
            elif name not in names:
                files.append(path)
        # A folder that is left out is reported once, and not file by file.
        names[:] = [name for name in names if not _is_private_name(name)]
    return sorted(files), sorted(skipped)


def _is_private_name(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED_FOLDERS


def _reason_to_skip(path: Path, root: Path, *, is_wanted: bool) -> str:
    """Why a file or folder is left out; empty if it is not."""
    if _is_private_name(path.name):
        return "it is hidden" if path.name.startswith(".") else "its folder is never read"
    if path.is_dir():
        return "it is a link to a folder" if path.is_symlink() else ""
    if not is_wanted:
        return "its name matches none of the patterns"
    if not path.is_file():
        return "it is not a file"
    return "" if path.resolve().is_relative_to(root) else "it is a link out of the folder"


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
    except ConfigError as error:
        # The reader of one kind of document is not installed; the other files can be read.
        return UnreadableFile(str(error))
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
    empty = [(place, "it has no text") for place, what in outcomes.items() if what == "empty"]
    return IngestReport(
        total.kept + sum(isinstance(outcome, Note) for outcome in outcomes.values()),
        total.unchanged + sum(outcome == "unchanged" for outcome in outcomes.values()),
        0,
        (*total.failed, *failed),
        (*total.skipped, *empty),
    )
