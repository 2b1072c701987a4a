"""A worker that is killed at any moment: it drives one session, for as long as it has work."""

import asyncio
import sys
from pathlib import Path

from windlass import Agent, Limits, tool
from windlass.core.fold.run import fold
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, call
from windlass.tools import RunContext

SESSION = "s"
STEPS_MAX = 400


async def work(folder: Path) -> None:
    """Begin the session, or go on with it, until its run has ended."""

    @tool(effect="write")
    async def send(context: RunContext[None], number: int) -> str:
        """Do something that must not happen twice."""
        with (folder / "sent.txt").open("a", encoding="utf-8") as file:
            file.write(f"{context.call_id}\n")
        await asyncio.sleep(0.01)
        return f"sent {number}"

    script = [call("send", {"number": number}) for number in range(STEPS_MAX)]
    limits = Limits(steps=STEPS_MAX)
    with SqliteJournal(folder / "s.db") as journal:
        agent = Agent(ScriptedModel(script), tools=[send], journal=journal, limits=limits)
        if not await journal.read(SESSION):
            await agent.start("Go.", session=SESSION, key="once")
        while not await has_ended(journal):
            await agent.sweep(tries_max=10_000)
            await asyncio.sleep(0.02)


async def has_ended(journal: SqliteJournal) -> bool:
    state = fold(SESSION, await journal.read(SESSION))
    return state.run is not None and not state.is_active


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
