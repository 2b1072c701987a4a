"""How does an agent write a report every morning? A schedule in the journal, and a service."""

import argparse
import asyncio
import time

from windlass import Agent, tool
from windlass.journals import MemoryJournal
from windlass.server import NewSchedule, OnceTime, ScheduleStore, ServeOptions, Service, serve
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
written = asyncio.Event()


@tool(effect="read")
def orders_of_yesterday() -> dict[str, int]:
    """How many orders there were, by country."""
    return {"Norway": 12, "Japan": 30}


@tool
async def publish(report: str) -> str:
    """Put the report where everyone reads it."""
    print(report)
    written.set()
    return "published"


async def main() -> None:
    journal = MemoryJournal()
    script = [call("orders_of_yesterday"), call("publish", {"report": "42 orders."}), "Done."]
    options = {"name": "clerk", "tools": [orders_of_yesterday, publish], "journal": journal}
    clerk = Agent(MODEL or ScriptedModel(script), **options)
    times = OnceTime(
        int(time.time()) + 1
    )  # Each morning: CronTimes("30 8 * * MON-FRI", "Europe/Oslo")
    new = NewSchedule(name="report", agent="clerk", prompt="Write the report.", times=times)
    await ScheduleStore(journal, time.time).create_schedule(new)
    serving = asyncio.create_task(serve(Service(clerk), ServeOptions(port=0)))
    await written.wait()
    serving.cancel()


asyncio.run(main())
