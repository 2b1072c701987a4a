"""All that a journal keeps about a caller, as one tar file for that person.

The file has the sessions as `windlass sessions import` reads them, what services keep for the
caller as JSON, the uploads, and the files of the caller's folder if this machine has it. Secrets
are left out: they give rights, and say nothing about a person.
"""

import tarfile
import time
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from windlass.agent.folder_store import FolderStore
from windlass.core.disclosure import NOTHING, AgentPart, show_event
from windlass.core.errors import JournalCorrupt, NothingToDo
from windlass.core.work_folder import name_folder
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
        for name, data in _list_files(folders.root / name_folder(caller)):
            yield _make_member(f"folder/{name}", data)
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


def _list_files(folder: Path) -> Generator[tuple[str, bytes]]:
    """Yield the files below a folder, by their path in it. Links are left out."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with suppress(OSError):
                yield str(path.relative_to(folder)), path.read_bytes()


def _as_dicts(records: Iterable[msgspec.Struct]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for record in records:
        fields: dict[str, Any] = msgspec.to_builtins(record)
        found.append({key: fields[key] for key in fields if key not in SECRET_FIELDS})
    return found


def _make_member(name: str, data: bytes) -> bytes:
    """Return a file of a tar file: its head, its bytes, and zeros up to the next block."""
    head = tarfile.TarInfo(name)
    head.size = len(data)
    head.mtime = int(time.time())
    head.mode = 0o600
    written = BytesIO()
    written.write(head.tobuf(tarfile.PAX_FORMAT))
    written.write(data)
    written.write(bytes(-len(data) % tarfile.BLOCKSIZE))
    return written.getvalue()
