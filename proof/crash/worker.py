"""The process that is killed: an agent whose tools leave marks in real files.

It starts the session, or continues it from the journal. It knows nothing about the kills.
"""

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from proof.crash.script import EFFECT_S, NOTES, PROMPT, RECORDED, ROWS, SENT, SESSION
from windlass.agent.agent import Agent
from windlass.core.errors import SessionBusy, WindlassError
from windlass.core.events import Fact, StepProposed
from windlass.core.fold.run import fold
from windlass.core.session_summary import SessionSummary
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.journals.stored_journal import StoredJournal
from windlass.models.resolve import resolve_model
from windlass.tools.function import NOT_DONE, Tool, tool
from windlass.tools.run_context import RunContext

EXIT_BUSY = 75
"""The exit code of a process whose session is driven by another process."""
LEASE_WAIT_S = 10.0
"""Seconds in which a database server must notice that a driver is dead. A file needs none."""


class _NotesReplies(StoredJournal):
    """A journal that notes when each reply was durable, as `<seq>@<seconds since the epoch>`."""

    notes: Path | None = None

    @override
    def append(
        self, session: str, facts: Sequence[Fact], row: SessionSummary
    ) -> asyncio.Future[None]:
        done = super().append(session, facts, row)
        last = facts[-1] if facts else None
        if self.notes is not None and isinstance(last, StepProposed):
            done.add_done_callback(partial(_note_durable, self.notes, last.seq))
        return done


def _note_durable(notes: Path, seq: int, done: asyncio.Future[None]) -> None:
    if not done.cancelled() and done.exception() is None:
        append_mark(notes, f"{seq}@{time.time()}")


class _NotingSqliteJournal(_NotesReplies, SqliteJournal):
    pass


class _NotingPostgresJournal(_NotesReplies, PostgresJournal):
    pass


class WorkerJob(NamedTuple):
    """The folder of a trial, and its provider."""

    trial: str
    folder: str
    url: str
    dsn: str = ""
    """The address of a Postgres server. Without one, the journal is a file in the folder."""

    def open_journal(self) -> SqliteJournal | PostgresJournal:
        if self.dsn:
            journal = _NotingPostgresJournal(self.dsn, schema=f"crash_{self.trial}")
        else:
            journal = _NotingSqliteJournal(Path(self.folder, "sessions.db"))
        journal.notes = Path(self.folder, RECORDED)
        return journal


def append_mark(path: Path, line: str) -> None:
    """Append one line to a file in a single write."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def read_marks(path: Path) -> list[str]:
    return path.read_text("utf-8").split() if path.exists() else []


def create_rows_table(folder: Path) -> None:
    """Create the database of an outside service, which accepts each key once."""
    with closing(sqlite3.connect(folder / ROWS)) as file, file:
        file.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, what TEXT NOT NULL)")


def make_tools(folder: Path) -> list[Tool[..., Any]]:
    """Return a read, an idempotent tool, a write that can be reconciled, and one that cannot."""

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look at something."""
        await asyncio.sleep(EFFECT_S)
        return f"{what}: as it was"

    @tool(effect="idempotent", resource="{what}")
    async def book(context: RunContext[Any], what: str) -> str:
        """Book somebody, once for each key."""
        await asyncio.sleep(EFFECT_S)
        with closing(sqlite3.connect(folder / ROWS, timeout=30)) as file, file:
            row = (context.idempotency_key, what)
            file.execute("INSERT OR IGNORE INTO rows VALUES (?, ?)", row)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: booked"

    def find_note(context: RunContext[Any], what: str) -> Any:  # noqa: ANN401 - a value, or NOT_DONE
        if context.idempotency_key in read_marks(folder / NOTES):
            return f"{what}: noted"
        return NOT_DONE

    @tool(effect="write", resource="{what}", reconcile=find_note)
    async def note(context: RunContext[Any], what: str) -> str:
        """Write a line down."""
        await asyncio.sleep(EFFECT_S)
        append_mark(folder / NOTES, context.idempotency_key)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: noted"

    @tool(effect="write")
    async def send(context: RunContext[Any], what: str) -> str:
        """Send a letter. It cannot be looked up later whether it was sent."""
        await asyncio.sleep(EFFECT_S)
        append_mark(folder / SENT, context.idempotency_key)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: sent"

    return [look, book, note, send]


async def do_next_work(job: WorkerJob) -> None:
    """Start the session or continue it, whichever is due."""
    model = resolve_model("openai-compatible:scripted", base_url=job.url, key=job.trial, environ={})
    journal = job.open_journal()
    agent = Agent(model, tools=make_tools(Path(job.folder)), journal=journal)
    try:
        state = fold(SESSION, await journal.read(SESSION))
        if state.run is None:
            await agent.run(PROMPT, session=SESSION)
        elif state.is_active:
            result = await agent.resume(SESSION)
            if result.outcome == "paused":
                # A call was running at two kills, so that its run is parked. A person resumes it.
                await agent.resume(SESSION)
    finally:
        await agent.aclose()
        if isinstance(journal, PostgresJournal):
            await journal.aclose()
        else:
            journal.close()


async def _work_when_free(job: WorkerJob) -> None:
    patient_until = time.monotonic() + (LEASE_WAIT_S if job.dsn else 0.0)
    while True:
        try:
            return await do_next_work(job)
        except SessionBusy:
            if time.monotonic() >= patient_until:
                raise
        await asyncio.sleep(EFFECT_S)


def run_worker(job: WorkerJob) -> None:
    """Run the worker process, until it is finished or killed."""
    try:
        asyncio.run(_work_when_free(job))
    except WindlassError as error:
        log = Path(job.folder, "worker.log")
        log.write_text(f"{type(error).__name__}: {error}\n", "utf-8")
        sys.exit(EXIT_BUSY if isinstance(error, SessionBusy) else 1)
