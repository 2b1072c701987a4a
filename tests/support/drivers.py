"""Processes that drive a session in a file: forked from a server that has all modules loaded."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from windlass import Agent, tool
from windlass.core.errors import SessionBusy
from windlass.core.verdicts import Ask
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import FixedGate, ScriptedModel, ScriptedReply, call, pause, say

BUSY = 75
WAIT_S = 30.0
STEPS = 6


def append_mark(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def make_send_tool(folder: Path, wait: Any = None) -> Any:
    """A write without `reconcile`, that takes until something else has happened."""

    @tool(effect="write")
    async def send() -> str:
        """Send the report."""
        append_mark(folder / "sent.txt", str(os.getpid()))
        if wait is not None:
            assert await asyncio.to_thread(wait.wait, WAIT_S)
        return "sent"

    return send


def resume_session(folder: Path, session: str, together: Any, refused: Any) -> None:
    """Take a session over at the same moment as another process; exits with BUSY if refused."""

    async def work() -> None:
        with SqliteJournal(folder / "s.db") as journal, ScriptedModel(["Done."]) as model:
            agent = Agent(model, tools=[make_send_tool(folder, refused)], journal=journal)
            await asyncio.to_thread(together.wait, WAIT_S)
            await agent.resume(session)

    try:
        asyncio.run(work())
    except SessionBusy:
        refused.set()
        sys.exit(BUSY)


def make_script(pause_s: float) -> list[ScriptedReply]:
    steps: list[ScriptedReply] = [
        [say(f"Step {at}."), pause(pause_s), call("look")] for at in range(STEPS)
    ]
    return [*steps, "Done."]


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "seen"


def make_agent(journal: SqliteJournal, pause_s: float, *, asks: bool = False) -> Agent[str]:
    gate = FixedGate(lambda _: Ask("May I?", "a person")) if asks else None
    return Agent(ScriptedModel(make_script(pause_s)), tools=[look], journal=journal, gate=gate)


def drive_session(folder: Path, session: str, pause_s: float, asks: bool) -> None:  # noqa: FBT001
    """Run a session of a few steps, or up to its first question."""

    async def work() -> None:
        with SqliteJournal(folder / "s.db") as journal:
            await make_agent(journal, pause_s, asks=asks).run("Go.", session=session)

    asyncio.run(work())
