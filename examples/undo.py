"""How do I take back what an agent did?"""

import argparse
import asyncio
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, RunContext, tool
from windlass.testing import ScriptedModel, call
from windlass.tools import Workspace, file_tools

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
EDIT = {"path": "log.txt", "edits": [{"old": "calm", "new": "storm"}]}
SCRIPT = [call("reserve", {"ship": "Vesta"}), call("edit", EDIT), "Done."]
LOG = Path(mkdtemp()) / "log.txt"
LOG.write_text("calm")
berths: list[str] = []


def give_back(context: RunContext, ship: str) -> str:
    berths.remove(ship)
    return f"taken back: {context.undoes.result if context.undoes else ship}"


@tool(undo=give_back)
def reserve(ship: str) -> str:
    """Reserve a berth for a ship."""
    berths.append(ship)
    return f"a berth for {ship}"


tools = [reserve, *file_tools(Workspace(LOG.parent))]
agent = Agent(MODEL or ScriptedModel(SCRIPT), tools=tools)
agent.run_sync("Reserve a berth for the Vesta, and log the storm.", session="port")
print(berths, LOG.read_text())
undone = asyncio.run(agent.undo("port"))
print(f"{undone.outcome}:", berths, LOG.read_text())
