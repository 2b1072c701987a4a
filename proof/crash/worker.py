"""The process that is killed: an agent whose tools leave marks in real files.

It begins the session, or goes on with it as it finds it, and knows nothing of the kills.
"""

import asyncio
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from proof.crash.script import EFFECT_S, NOTES, PROMPT, ROWS, SENT, SESSION
from windlass.agent.agent import Agent
from windlass.core.errors import SessionBusy, WindlassError
from windlass.core.fold.run import fold
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.models.resolve import resolve_model
from windlass.tools.function import NOT_DONE, Tool, tool
from windlass.tools.run_context import RunContext

EXIT_BUSY = 75
"""The exit code of a process that found the session driven by another."""
LEASE_WAIT_S = 10.0
"""How long a server may take to see that the driver before is dead; a file needs no time."""


class WorkerJob(NamedTuple):
    """Where to work, and whom to ask."""

    trial: str
    folder: str
    url: str
    dsn: str = ""
    """A Postgres server; without one, the journal is a file in the folder."""

    def open_journal(self) -> SqliteJournal | PostgresJournal:
        if self.dsn:
            return PostgresJournal(self.dsn, schema=f"crash_{self.trial}")
        return SqliteJournal(Path(self.folder, "sessions.db"))


def append_mark(path: Path, line: str) -> None:
    """One line at the end of a file, whole or not at all."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


def read_marks(path: Path) -> list[str]:
    return path.read_text("utf-8").split() if path.exists() else []


def create_rows_table(folder: Path) -> None:
    """The database of another program, which takes each key once."""
    with closing(sqlite3.connect(folder / ROWS)) as file, file:
        file.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, what TEXT NOT NULL)")


def make_tools(folder: Path) -> list[Tool[..., Any]]:
    """A read, an idempotent one, a write that can be looked up, and one that cannot."""

    @tool(effect="read")
    async def look(what: str) -> str:
        """Look at something."""
        await asyncio.sleep(EFFECT_S)
        return f"{what}: as it was"

    @tool(effect="idempotent", resource="{what}")
    async def book(context: RunContext[Any], what: str) -> str:
        """Book somebody; under the same key, once."""
        await asyncio.sleep(EFFECT_S)
        with closing(sqlite3.connect(folder / ROWS, timeout=30)) as file, file:
            row = (context.idempotency_key, what)
            file.execute("INSERT OR IGNORE INTO rows VALUES (?, ?)", row)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: booked"

    def find_note(context: RunContext[Any], what: str) -> Any:  # noqa: ANN401 - a value, or NOT_DONE
        done = context.idempotency_key in read_marks(folder / NOTES)
        return f"{what}: noted" if done else NOT_DONE

    @tool(effect="write", resource="{what}", reconcile=find_note)
    async def note(context: RunContext[Any], what: str) -> str:
        """Write a line down."""
        await asyncio.sleep(EFFECT_S)
        append_mark(folder / NOTES, context.idempotency_key)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: noted"

    @tool(effect="write")
    async def send(context: RunContext[Any], what: str) -> str:
        """Send a letter. Nobody can say later whether it went out."""
        await asyncio.sleep(EFFECT_S)
        append_mark(folder / SENT, context.idempotency_key)
        await asyncio.sleep(EFFECT_S)
        return f"{what}: sent"

    return [look, book, note, send]


async def do_next_work(job: WorkerJob) -> None:
    """Do what there is to do: begin, or go on."""
    model = resolve_model("openai-compatible:scripted", base_url=job.url, key=job.trial, environ={})
    journal = job.open_journal()
    agent = Agent(model, tools=make_tools(Path(job.folder)), journal=journal)
    try:
        state = fold(SESSION, await journal.read(SESSION))
        if state.run is None:
            await agent.run(PROMPT, session=SESSION)
        elif state.is_active:
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
    """A life of the process, to its end or to its kill."""
    try:
        asyncio.run(_work_when_free(job))
    except WindlassError as error:
        told = f"{type(error).__name__}: {error}\n"
        Path(job.folder, "worker.log").write_text(told, "utf-8")
        sys.exit(EXIT_BUSY if isinstance(error, SessionBusy) else 1)
