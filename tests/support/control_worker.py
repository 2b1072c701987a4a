"""A worker on any store: `python control_worker.py what store name`; see `live_child.open_journal`.

`finish` begins the run of a key, or finds it, and says what became of it. `hang` begins it and
hangs in a call. `sweep` takes over what nobody drives, and hangs in a call too.
"""

import asyncio
import sys
from typing import Any

from live_child import open_journal
from windlass import Agent, Limits, tool
from windlass.core.events import CallStarted
from windlass.testing import ScriptedModel, call

NAME = "clerk"
SESSION = "s"
KEY = "order 7"
LIMITS = Limits(steps=3)


class Patience:
    """How many calls of this process still hang."""

    hangs_left = 0


@tool(effect="read")
async def look() -> str:
    """Look at something for a while."""
    if Patience.hangs_left:
        Patience.hangs_left -= 1
        await asyncio.sleep(600)
    await asyncio.sleep(0.3)
    return "seen"


def make_agent(journal: Any, *script: Any, **options: Any) -> Agent[str]:
    options.setdefault("tools", [look])
    options.setdefault("limits", LIMITS)
    return Agent(ScriptedModel(list(script)), name=NAME, journal=journal, **options)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def finish(journal: Any) -> None:
    agent = make_agent(journal, call("look"), "Done.")
    handle = await agent.start("Go.", session=SESSION, key=KEY)
    result = await handle.result()
    say(f"{handle.run} {result.text}")


async def hang(journal: Any) -> None:
    Patience.hangs_left = 1
    agent = make_agent(journal, call("look"))
    handle = await agent.start("Go.", session=SESSION, key=KEY)
    async for event in handle.events():
        if isinstance(event, CallStarted):
            say("hangs")


async def sweep(journal: Any) -> None:
    """Whatever it does hangs, and whoever starts this process kills it for that."""
    say("sweeps")
    Patience.hangs_left = 1
    agent = make_agent(journal, call("look"))
    await agent.sweep()


async def main(what: str, store: str, name: str) -> None:
    works = {"finish": finish, "hang": hang, "sweep": sweep}
    journal = open_journal(store, name)
    await works[what](journal)
    await asyncio.to_thread(journal.close)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
