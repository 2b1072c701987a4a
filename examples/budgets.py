"""How do I limit the money that is spent? It is reserved before each request."""

import argparse
import asyncio
from decimal import Decimal

from windlass import Agent, Budget, Limits, ModelInfo, Price
from windlass.journals import MemoryJournal
from windlass.testing import ScriptedModel, ScriptedReply

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
INFO = ModelInfo("scripted:expensive", price=Price(Decimal(10), Decimal(50)), output_max=400)
JOURNAL = MemoryJournal()
TEAM = Budget("team", usd=Decimal("0.03"), per="day")


def agent(cap: str, *script: ScriptedReply) -> Agent[str]:
    model = MODEL or ScriptedModel(script, info=INFO, truthful=True)
    return Agent(model, limits=Limits(usd=Decimal(cap)), budgets=[TEAM], journal=JOURNAL)


async def main() -> None:
    story = "Once there was a crane. " * 60
    for cap in ("0.0001", "0.01", "1"):
        result = await agent(cap, story).run("Tell me a story of a crane.")
        print(f"up to ${cap}: {result.outcome}, ${result.cost or 0}")
    # All runs on this journal share the team's budget, also in other processes.
    for _ in range(2):
        result = await agent("1", story).run("Another one.")
    print(f"{result.outcome}: {result.reason}")
    print(f"${(await JOURNAL.read_spending(TEAM)).usd} of ${TEAM.usd}")


asyncio.run(main())
