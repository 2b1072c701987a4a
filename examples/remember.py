"""How does an agent keep what will be useful later? It looks back at the end of a run."""

import argparse
import asyncio
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, knowledge_tools, remember_run
from windlass.knowledge import Memory, Scope, SqliteKnowledge
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
NOTE = {"text": "Ann wants weights in tonnes.", "scope": "user"}
SCRIPT = ["Two tonnes.", call("remember", NOTE), "Noted."]


async def main() -> None:
    with SqliteKnowledge(Path(mkdtemp()) / "windlass.db") as store:
        memory = Memory(store, user="ann", project="crane")
        agent = Agent(MODEL or ScriptedModel(SCRIPT), tools=knowledge_tools(memory))
        result = await agent.run("In tonnes: what does the jib weigh?", session="monday")
        # Another run of the same session: gated, recorded, and only once.
        await remember_run(agent, result)
        for found in await store.recall("tonnes", [Scope("user", "ann")]):
            print(found.text, f"({found.sources[0]})")


asyncio.run(main())
