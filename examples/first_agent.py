"""What is the smallest agent? A model, a function and a prompt."""

import argparse

from windlass import Agent, tool
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")


@tool(effect="read")
def weight(part: str) -> str:
    """What a part of the crane weighs.

    Args:
        part: the name of the part
    """
    return {"hook": "40 kg", "jib": "2 t"}.get(part, "not known")


SCRIPT = [call("weight", {"part": "jib"}), "The jib weighs two tonnes."]
model = parser.parse_args().model or ScriptedModel(SCRIPT)
agent = Agent(model, instructions="Answer in one sentence.", tools=[weight])
result = agent.run_sync("What does the jib weigh?")
print(result.text)
print(f"{result.steps} steps, {result.model_calls} requests")
