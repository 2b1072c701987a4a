"""All that a journal keeps about a caller, as one tar file for that person.

The file has the sessions as `windlass sessions import` reads them, what services keep for the
caller as JSON, the uploads, and the files of the caller's folder if this machine has it. Secrets
are left out: they give rights, and say nothing about a person.
"""

import asyncio
import os
import stat
import tarfile
import time
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from windlass.agent.folder_store import FolderStore
from windlass.core.disclosure import NOTHING, AgentPart, show_event
from windlass.core.errors import JournalCorrupt, NothingToDo
from windlass.core.setup import name_folder
from windlass.evaluation.stored_reports import list_evaluations
from windlass.journals.archive import archive_lines
from windlass.ports import Journal
from windlass.server.access import check_caller_name, owner_prefix
from windlass.server.limits import ServiceLimits
from windlass.server.quotas.admission import QuotaStore
from windlass.server.schedules.schedule import ScheduleStore
from windlass.server.tokens import TokenStore
from windlass.server.uploads import UploadStore
from windlass.server.webhooks.store import WebhookStore

FORMAT = "windlass-caller"
PAGE_SESSIONS = 200
MAILED_MAX = 100_000
PIECE_BYTES = 2**20
DEPTH_MAX = 200
"""Folders inside of one another whose files are exported."""
SECRET_FIELDS = ("hash", "page_hash", "secret", "headers", "former_secret")
"""Fields of records that give rights."""


async def export_caller(
    journal: Journal,
    caller: str,
    folders: FolderStore | None = None,
    parts: frozenset[AgentPart] = NOTHING,
) -> AsyncGenerator[bytes]:
    """Yield a tar file with all that is kept about a caller, piece by piece.

    `parts`: what it has of agents, whose instructions are not about the caller. Raises
    ConfigError if this cannot be the name of a caller.
    """
    check_caller_name(caller)
    about = {"format": FORMAT, "caller": caller, "at": time.time()}
    yield _make_member("about.json", msgspec.json.encode(about))
    async for name, records in _list_records(journal, caller):
        yield _make_member(f"records/{name}.json", msgspec.json.encode(records))
    uploads = UploadStore(journal, ServiceLimits())
    async for upload in uploads.walk(caller):
        with suppress(NothingToDo):
            data = await uploads.read_data(upload)
            yield _make_member(f"uploads/{upload.name}-{quote(upload.file_name, safe='')}", data)
    async for piece in _export_sessions(journal, caller, parts):
        yield piece
    if folders is not None:
        packed = _pack_folder(folders.root / name_folder(caller))
        while piece := await asyncio.to_thread(next, packed, b""):
            yield piece
    yield bytes(2 * tarfile.BLOCKSIZE)


async def _list_records(
    journal: Journal, caller: str
) -> AsyncGenerator[tuple[str, list[dict[str, Any]]]]:
    schedules = ScheduleStore(journal, time.time)
    webhooks = WebhookStore(journal, time.time)
    uploads = UploadStore(journal, ServiceLimits())
    yield "schedules", _as_dicts([each async for each in schedules.walk(caller)])
    yield "webhooks", _as_dicts([each async for each in webhooks.walk(caller)])
    yield "uploads", _as_dicts([each async for each in uploads.walk(caller)])
    tokens = [each async for each in TokenStore(journal).walk() if each.caller == caller]
    yield "tokens", _as_dicts(tokens)
    quotas = [each async for each in QuotaStore(journal).walk() if each.caller == caller]
    yield "quotas", _as_dicts(quotas)
    yield "evaluations", _as_dicts(await list_evaluations(journal, caller))


async def _export_sessions(
    journal: Journal, caller: str, parts: frozenset[AgentPart]
) -> AsyncGenerator[bytes]:
    cursor: str | None = None
    names = set[str]()
    while True:
        page = await journal.sessions(caller=caller, limit=PAGE_SESSIONS, cursor=cursor)
        for summary in page:
            names.add(summary.session)
            yield await _export_session(journal, summary.session, parts)
        cursor = page.cursor
        if cursor is None:
            break
    mailed = await journal.list_mailed(MAILED_MAX)
    prefix = owner_prefix(caller)
    for name in mailed:
        if name in names or name.startswith(prefix):
            letters = await journal.read_mail(name, "prompts")
            data = msgspec.json.encode([letter.message for letter in letters])
            yield _make_member(f"waiting/{quote(name, safe='')}.json", data)


async def _export_session(journal: Journal, session: str, parts: frozenset[AgentPart]) -> bytes:
    """Return a session as a file, or why it cannot be read: one must not hide the others."""
    name = f"sessions/{quote(session, safe='')}"
    try:
        facts = [show_event(fact, parts) for fact in await journal.read(session)]
    except JournalCorrupt as error:
        return _make_member(f"{name}.txt", f"This session is damaged: {error}\n".encode())
    return _make_member(
        f"{name}.ndjson", b"".join(line + b"\n" for _, line in archive_lines(session, facts))
    )


def _pack_folder(top: Path) -> Generator[bytes]:
    """Yield the files below a folder in pieces. Links, and what is no plain file, are left out.

    What is in it was made by commands of the caller, and may change meanwhile: no link is followed,
    and a file has the length that it had when it was opened, however it grows or shrinks.
    """
    waiting: list[tuple[str, ...]] = [()]
    deep: list[str] = []
    while waiting:
        place = waiting.pop()
        if len(place) > DEPTH_MAX:
            deep.append("/".join(place[:DEPTH_MAX]))
            continue
        with suppress(OSError):
            folder = _open_below(top, place)
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
                folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
                waiting += ((*place, name) for name in reversed(folders))
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        name = "/".join(("folder", *place, entry.name))
                        yield from _pack_file(name, entry.name, folder)
            finally:
                os.close(folder)
    if deep:
        text = f"More than {DEPTH_MAX} folders deep, and left out:\n" + "\n".join(deep)
        yield _make_member("left_out.txt", text.encode(errors="replace"))


def _open_below(top: Path, place: tuple[str, ...]) -> int:
    """Return the descriptor of a folder, on a way without links. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(top, flags)
    for name in place:
        above = folder
        try:
            folder = os.open(name, flags, dir_fd=above)
        finally:
            os.close(above)
    return folder


def _pack_file(name: str, file_name: str, folder: int) -> Generator[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        file = open(os.open(file_name, flags, dir_fd=folder), "rb")  # noqa: SIM115, PTH123 - below
    except OSError:
        return
    with file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            return
        yield _make_head(name, about.st_size)
        left = about.st_size
        while left:
            wanted = min(left, PIECE_BYTES)
            yield file.read(wanted).ljust(wanted, b"\0")
            left -= wanted
        if rest := -about.st_size % tarfile.BLOCKSIZE:
            yield bytes(rest)


def _as_dicts(records: Iterable[msgspec.Struct]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for record in records:
        fields: dict[str, Any] = msgspec.to_builtins(record)
        found.append({key: fields[key] for key in fields if key not in SECRET_FIELDS})
    return found


def _make_member(name: str, data: bytes) -> bytes:
    """Return a file of a tar file: its head, its bytes, and zeros up to the next block."""
    return _make_head(name, len(data)) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


def _make_head(name: str, size: int) -> bytes:
    head = tarfile.TarInfo(name)
    head.size = size
    head.mtime = int(time.time())
    head.mode = 0o600
    return head.tobuf(tarfile.PAX_FORMAT)
