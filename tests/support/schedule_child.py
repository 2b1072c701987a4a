"""A service that fires schedules, and may kill itself at a certain write to its journal.

Run as `python schedule_child.py JOURNAL AGENTS [COUNT WHEN]`: it serves agents of these names until
it is killed; they answer at once. With COUNT it sends itself SIGKILL at that write, `before` or
`after` it is done. It says `ready` first.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable
from typing import Any

from windlass import Agent
from windlass.journals import open_journal
from windlass.server import Service
from windlass.server.schedules import scheduler
from windlass.testing import ScriptedModel, say

scheduler.TAKE_OVER_S = 0.2


class CrashPoint:
    """Counts the writes of this process."""

    def __init__(self, count: int, when: str) -> None:
        self.left = count
        self.when = when

    def wrap(self, write: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Awaitable[Any]:
            self.left -= 1
            if self.left == 0 and self.when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            done = asyncio.ensure_future(write(*arguments, **options))
            if self.left == 0:
                done.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
            return done

        return counted


async def serve(place: str, names: list[str], crash: CrashPoint | None) -> None:
    journal: Any = open_journal(place)
    if crash is not None:
        for name in ("put_record", "append"):
            setattr(journal, name, crash.wrap(getattr(journal, name)))
    agents = [
        Agent(ScriptedModel([[say("done")]] * 1_000), name=name, journal=journal) for name in names
    ]
    async with Service(agents, journal=journal):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.sleep(120)


if __name__ == "__main__":
    place, agents, *point = sys.argv[1:]
    crash = CrashPoint(int(point[0]), point[1]) if point else None
    asyncio.run(serve(place, agents.split(","), crash))
