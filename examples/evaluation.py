"""Did a change make the agent better? Try each case several times, and compare the reports."""

import argparse
import asyncio
import random

from windlass import Agent, tool
from windlass.evaluation import Case, Report, compare_reports, evaluate, used
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
CASES = [Case(id=name.lower(), prompt=f"What does {name} owe?") for name in ("Ann", "Bob", "Eve")]
PROMPTS = {"careful": "Look every customer up before you answer.", "hasty": "Answer at once."}


@tool(effect="read")
def look_up(customer: str) -> str:
    """What a customer owes, in euros."""
    return f"{customer} owes 12 euros."


def make_model(prompt: str) -> ScriptedModel:
    """A model that looks customers up more often if it is told to."""
    luck = random.Random(prompt)  # noqa: S311 - the same luck each time
    rate = 0.9 if "Look" in prompt else 0.3
    look = call("look_up", {"customer": "Ann"})
    return ScriptedModel(
        [lambda asked: look if len(asked.messages) == 1 and luck.random() < rate else "12 euros."]
        * 99
    )


async def measure(name: str, prompt: str) -> Report:
    agent = Agent(MODEL or make_model(prompt), instructions=prompt, tools=[look_up])
    return await evaluate(agent, CASES, name=name, repeat=8, scorers=[used("look_up")])


async def main() -> None:
    before, after = [await measure(name, prompt) for name, prompt in PROMPTS.items()]
    for report in (before, after):
        print(f"{report.name}: {report.passes.rate:.0%}, at least {report.interval.low:.0%}")
    print(compare_reports(before, after).verdict)


asyncio.run(main())
