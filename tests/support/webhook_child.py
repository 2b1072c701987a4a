"""A service that sends webhooks, until it is killed: `python webhook_child.py JOURNAL`.

It serves the agent `a`, which answers at once. It says `ready` first.
"""

import asyncio
import sys

from windlass import Agent
from windlass.journals import open_journal
from windlass.server import OutsideSettings, Service
from windlass.testing import ScriptedModel, say


async def serve(place: str) -> None:
    journal = open_journal(place)
    agent = Agent(ScriptedModel([[say("done")]] * 1_000), name="a", journal=journal)
    outside = OutsideSettings(webhook_hosts=("127.0.0.1",))
    async with Service([agent], journal=journal, outside=outside):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.sleep(120)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
