"""How does a cheap model choose which agent answers? Its output is one of a few words."""

import argparse
from typing import Literal

from windlass import Agent
from windlass.testing import ScriptedModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, scripts answer")
MODEL = parser.parse_args().model
Kind = Literal["parts", "orders"]

router = Agent(
    MODEL or ScriptedModel(['"parts"', '"orders"']),
    instructions="Is the question about a part, or about an order?",
    output_type=Kind,
)
agents: dict[Kind, Agent[str]] = {
    "parts": Agent(MODEL or ScriptedModel(["Two tonnes."]), instructions="You know the parts."),
    "orders": Agent(MODEL or ScriptedModel(["On Monday."]), instructions="You know the orders."),
}
for question in ("What does the jib weigh?", "When does order 7 arrive?"):
    chosen = router.run_sync(question).output
    print(f"{chosen}: {agents[chosen].run_sync(question).text}")
