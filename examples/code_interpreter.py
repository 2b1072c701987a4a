"""How does an agent compute, with variables that stay from call to call?"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent
from windlass.testing import ScriptedModel, call
from windlass.tools import python_tool

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
script = [
    call("python", {"code": "squares = [n * n for n in range(101)]"}),
    call("python", {"code": "sum(squares)"}),
    "The sum is 338350.",
]
agent = Agent(MODEL or ScriptedModel(script), tools=[python_tool(Path(mkdtemp()))])
result = agent.run_sync("What is the sum of the squares up to 100?")
outcomes = [item for message in result.messages for item in getattr(message, "items", ())]
print(outcomes[-1].result.text)
