"""How is a person asked, when the process may be gone before they answer?"""

import argparse
import asyncio
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, Allow, tool
from windlass.gates.presets import ask
from windlass.journals import SqliteJournal
from windlass.testing import ScriptedModel, ScriptedReply, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
NAMED = parser.parse_args().model


@tool
def lift(tonnes: int) -> str:
    """Lift a load with the crane."""
    return f"lifted {tonnes} t"


def crane(journal: SqliteJournal, *script: ScriptedReply) -> Agent[str]:
    return Agent(NAMED or ScriptedModel(script), tools=[lift], gate=ask(), journal=journal)


async def main(path: Path) -> None:
    with SqliteJournal(path) as journal:
        agent = crane(journal, call("lift", {"tonnes": 2}))
        held = await agent.run("Lift two tonnes.", session="monday")
        print(held.outcome, [(one.call.name, one.arguments) for one in held.questions])
    with SqliteJournal(path) as journal:  # Days later, in another process.
        agent, (asked,) = crane(journal, "Two tonnes are up."), held.questions
        yes = agent.answer("monday", asked.call.id, Allow(), digest=asked.digest, by="ann")
        print((await yes).text)


asyncio.run(main(Path(mkdtemp()) / "windlass.db"))
