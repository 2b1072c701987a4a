"""Erase a caller: all that a journal and its services keep about it, in one job.

Invariant: the job is on record before anything is deleted, and its record goes last. Each step
deletes what it finds, so a step that is done again changes nothing. A process that is killed in the
middle leaves a job that the next service continues. A tombstone stays, with a keyed hash of the
name and no content.

What others recorded stays: an answer of the caller in the session of another one is part of that
session.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from windlass.agent.folder_store import FolderStore
from windlass.core.errors import JournalCorrupt, NothingToDo, RecordConflict, SessionBusy
from windlass.core.events import Fact, RunStarted
from windlass.core.session_summary import SessionSummary
from windlass.evaluation.stored_reports import delete_evaluations
from windlass.logs import get_logger
from windlass.ports import Journal, SharedRecord
from windlass.server.access import check_caller_name, owner_prefix
from windlass.server.caller_end import CallerEnd, DriveSession, end_caller
from windlass.server.limits import ServiceLimits
from windlass.server.mcp.call_notes import CallNotes
from windlass.server.quotas.admission import forget_caller
from windlass.server.stored_replies import StoredReplies
from windlass.server.tokens import TokenStore
from windlass.server.uploads import UploadStore

_log = get_logger(__name__)
JOB_KIND = "erasure"
RunFate = Literal["cancel", "wait"]
"""What becomes of open runs: they are cancelled, or their sessions go once they have ended."""
PAGE_SESSIONS = 200
MAILED_MAX = 100_000


class ErasureJob(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure that is not finished."""

    caller: str
    """Empty once all is deleted, and only bytes are left to be overwritten."""
    runs: RunFate
    by: str
    begun: float
    stores: tuple[str, ...] = ()
    """The stores that still have a folder of the caller, by their ids."""


class CallerErasure(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a caller was erased, and what is left."""

    caller: str
    sessions: int = 0
    """With trials and forks. Those of sub-agents go with the session that they work for."""
    uploads: int = 0
    evaluations: int = 0
    folders: int = 0
    """Folders of the caller that were deleted on this machine."""
    tokens: int = 0
    logins: int = 0
    webhooks: int = 0
    schedules: int = 0
    runs: int = 0
    """Runs that were cancelled."""
    left: int = 0
    """Sessions that still work. A service erases them once their runs have ended."""
    stores: tuple[str, ...] = ()
    """Stores on other machines that have a folder of the caller. Their workers delete it."""
    scrubbed: bool = False
    """Whether the deleted bytes are gone. A database server keeps them for a while."""

    @property
    def is_done(self) -> bool:
        """Whether nothing of the caller is left that Windlass can delete."""
        return not self.left and not self.stores


class CallerEraser:
    """Erases callers from one journal, and their folders from one store."""

    def __init__(
        self,
        journal: Journal,
        tokens: TokenStore,
        folders: FolderStore | None = None,
        drive: DriveSession | None = None,
    ) -> None:
        """Use a journal. `drive` has a session driven, so that what waits in it is cancelled."""
        self._journal = journal
        self._tokens = tokens
        self._folders = folders
        self._drive = drive

    async def erase(self, caller: str, *, runs: RunFate = "cancel", by: str = "") -> CallerErasure:
        """Erase a caller, and return how much there was. Takes some seconds.

        If sessions still work, or another machine has a folder of the caller, the job stays on
        record, and a service or worker finishes it. Raises ConfigError if this cannot be a name.
        """
        check_caller_name(caller)
        job = ErasureJob(caller=caller, runs=runs, by=by, begun=time.time())
        name = secrets.token_hex(16)
        record = await self._journal.put_record(JOB_KIND, name, msgspec.json.encode(job), 0)
        return await self._work(record)

    async def resume(self) -> list[CallerErasure]:
        """Continue all jobs that are on record, and return how far each has come."""
        done: list[CallerErasure] = []
        after = ""
        while page := await self._journal.list_records(JOB_KIND, after):
            for record in page:
                # Another process may continue the same job: what it deletes is gone for both.
                with suppress(RecordConflict):
                    done.append(await self._work(record))
            after = page[-1].name
        return done

    async def _work(self, record: SharedRecord) -> CallerErasure:
        job = msgspec.json.decode(record.data, type=ErasureJob)
        if not job.caller:
            return await self._finish(record, CallerErasure(caller=""))
        ended = await end_caller(
            self._journal,
            self._tokens,
            job.caller,
            runs="cancel" if job.runs == "cancel" else "keep",
            by=job.by,
            drive=self._drive,
        )
        sessions = [summary async for summary in self._list_sessions(job.caller)]
        # Which stores have a folder is on record before the sessions go that say so.
        stores = {*job.stores, *[store async for store in self._find_stores(sessions)]}
        record, job = await self._save(record, replace(job, stores=tuple(sorted(stores))))
        deleted, left = await self._delete_sessions(job, sessions)
        uploads = await self._delete_records(job.caller)
        evaluations = await delete_evaluations(self._journal, job.caller)
        folders = 0
        if not left:
            folders, stores = await self._delete_folder(job)
            record, job = await self._save(record, replace(job, stores=stores))
        erased = replace(
            _describe_end(ended),
            sessions=deleted,
            uploads=uploads,
            evaluations=evaluations,
            folders=folders,
            left=left,
            stores=job.stores,
        )
        if not erased.is_done:
            return replace(erased, scrubbed=await self._journal.scrub())
        await self._journal.bury(job.caller)
        # From here on the job has no name in it, so that it can be scrubbed with the rest.
        record, _ = await self._save(record, replace(job, caller="", by=""))
        return await self._finish(record, erased)

    async def _finish(self, record: SharedRecord, erased: CallerErasure) -> CallerErasure:
        scrubbed = await self._journal.scrub()
        await self._journal.delete_record(JOB_KIND, record.name)
        return replace(erased, scrubbed=scrubbed)

    async def _save(self, record: SharedRecord, job: ErasureJob) -> tuple[SharedRecord, ErasureJob]:
        data = msgspec.json.encode(job)
        if data == record.data:
            return record, job
        saved = await self._journal.put_record(JOB_KIND, record.name, data, record.version)
        return saved, job

    async def _list_sessions(self, caller: str) -> AsyncGenerator[SessionSummary]:
        """Yield the sessions of a caller: trials and forks have its name too."""
        cursor: str | None = None
        while True:
            page = await self._journal.sessions(caller=caller, limit=PAGE_SESSIONS, cursor=cursor)
            for summary in page:
                yield summary
            cursor = page.cursor
            if cursor is None:
                return

    async def _find_stores(self, sessions: Iterable[SessionSummary]) -> AsyncGenerator[str]:
        for summary in sessions:
            facts: Iterable[Fact] = ()
            with suppress(JournalCorrupt):
                facts = await self._journal.read(summary.session)
            for fact in facts:
                if isinstance(fact, RunStarted) and fact.folder is not None:
                    yield fact.folder.store

    async def _delete_sessions(
        self, job: ErasureJob, sessions: Sequence[SessionSummary]
    ) -> tuple[int, int]:
        """Delete the sessions of a caller, and return how many, and how many are left."""
        deleted = left = 0
        names = {summary.session for summary in sessions}
        for summary in sessions:
            if summary.parent in names:
                continue
            if job.runs == "wait" and summary.outcome is None:
                left += 1
                continue
            try:
                deleted += await self._journal.delete(summary.session, erase=True)
            except SessionBusy:
                left += 1
        # Prompts that wait for sessions which have not begun.
        prefix = owner_prefix(job.caller)
        for name in await self._journal.list_mailed(MAILED_MAX):
            if name.startswith(prefix):
                with suppress(SessionBusy):
                    await self._journal.delete(name, erase=True)
        return deleted, left

    async def _delete_records(self, caller: str) -> int:
        """Delete what services keep for a caller, and return how many uploads there were."""
        store = UploadStore(self._journal, ServiceLimits())
        uploads = [upload async for upload in store.walk(caller)]
        for upload in uploads:
            with suppress(NothingToDo):
                await store.remove(upload)
        await StoredReplies(self._journal).remove_of(caller)
        await CallNotes(self._journal).remove_old(caller)
        await forget_caller(self._journal, caller)
        return len(uploads)

    async def _delete_folder(self, job: ErasureJob) -> tuple[int, tuple[str, ...]]:
        """Delete the folder of a caller here; return how many, and the stores that are left.

        A folder that cannot be deleted is left to the next look, and keeps no other job waiting.
        """
        folders = self._folders
        own = "" if folders is None else folders.read_id()
        if folders is None or not own:
            return 0, job.stores
        try:
            removed = await asyncio.to_thread(folders.remove, job.caller)
        except OSError as error:
            _log.warning("a folder of an erased caller cannot be deleted: %s", error.strerror)
            return 0, tuple(sorted({*job.stores, own}))
        return int(removed), tuple(store for store in job.stores if store != own)


def _describe_end(ended: CallerEnd) -> CallerErasure:
    """Return what was deleted when a caller was ended."""
    return CallerErasure(
        caller=ended.caller,
        tokens=ended.tokens,
        logins=ended.logins,
        webhooks=ended.webhooks,
        schedules=ended.schedules,
        runs=ended.runs,
    )
