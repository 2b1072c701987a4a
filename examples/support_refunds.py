"""How does a support agent pay money back once, even if its process dies while it pays?"""

import argparse
import asyncio

from windlass import NOT_DONE, Agent, RunContext, RunFailed, tool
from windlass.journals import MemoryJournal
from windlass.testing import PowerCutJournal, ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
BANK: dict[str, float] = {}  # the books of the bank, by key


def was_paid(context: RunContext, order: int, usd: float) -> object:
    return f"{usd} USD were paid back" if context.idempotency_key in BANK else NOT_DONE


@tool(reconcile=was_paid)
def refund(context: RunContext, order: int, usd: float) -> str:
    """Pay money back."""
    BANK[context.idempotency_key] = usd
    return f"{usd} USD were paid back"


async def main() -> None:
    journal = MemoryJournal()
    before = MODEL or ScriptedModel([call("refund", {"order": 1042, "usd": 42.5})])
    after = MODEL or ScriptedModel(["42.50 USD are on their way to you."])
    try:
        dying = Agent(before, tools=[refund], journal=PowerCutJournal(journal, at=5))
        await dying.run("Order 1042 was charged twice.", session="order-1042")
    except RunFailed:
        print("the process died while it paid")
    result = await Agent(after, tools=[refund], journal=journal).resume("order-1042")
    print(result.text, list(BANK.values()))


asyncio.run(main())
