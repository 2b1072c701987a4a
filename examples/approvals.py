"""How does a person approve a call, if the process may have ended before they answer?"""

import argparse
import asyncio
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, Allow, tool
from windlass.gates import ask
from windlass.journals import SqliteJournal
from windlass.testing import ScriptedModel, ScriptedReply, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model


@tool
def lift(tonnes: int) -> str:
    """Lift a load with the crane."""
    return f"lifted {tonnes} t"


def crane(journal: SqliteJournal, *script: ScriptedReply) -> Agent[str]:
    return Agent(MODEL or ScriptedModel(script), tools=[lift], gate=ask(), journal=journal)


async def main(path: Path) -> None:
    with SqliteJournal(path) as journal:
        agent = crane(journal, call("lift", {"tonnes": 2}))
        waiting = await agent.run("Lift two tonnes.", session="monday")
        print(waiting.outcome, [(each.tool, each.arguments) for each in waiting.questions])
    with SqliteJournal(path) as journal:  # Days later, in another process.
        agent = crane(journal, "Two tonnes are up.")
        for each in waiting.questions:
            answer = agent.answer("monday", each.call_id, Allow(), digest=each.digest, by="ann")
            print((await answer).text)


asyncio.run(main(Path(mkdtemp()) / "windlass.db"))
