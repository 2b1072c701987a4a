"""How does one agent hand a conversation over to another, who sees all of it?"""

import argparse
import asyncio
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, hand_over_tool, run_with_handover
from windlass.journals import SqliteJournal
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, scripts answer")
MODEL = parser.parse_args().model
ASKED = call("hand_over", {"to": "clerk", "task": "Say what the jib weighs."})


async def main() -> None:
    with SqliteJournal(Path(mkdtemp()) / "windlass.db") as journal:
        desk = Agent(
            MODEL or ScriptedModel([ASKED, "One moment."]),
            instructions="Find out what it is about, and hand over.",
            tools=[hand_over_tool({"clerk": "knows the parts"})],
            journal=journal,
        )
        clerk = Agent(MODEL or ScriptedModel(["Two tonnes."]), journal=journal)
        team = {"desk": desk, "clerk": clerk}
        # With the key, a program that is killed and started again goes on where it was.
        ended = await run_with_handover(team, "How heavy is it?", start="desk", key="ann-1")
        print(f"{ended.agent}: {ended.result.text}")


asyncio.run(main())
