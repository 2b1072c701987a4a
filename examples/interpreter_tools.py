"""How does an agent call its tools from code, with one reply instead of many?"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, tool
from windlass.testing import ScriptedModel, call
from windlass.tools import python_tool


@tool(effect="read")
def temperature(city: str, day: int) -> float:
    """Measured temperature of a city on a day of the year, in degrees."""
    return round(10 + len(city) + day / 100, 2)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
CODE = """
cities = ("Oslo", "Lisbon")
means = {city: sum(float(temperature(city, day)) for day in range(1, 11)) / 10 for city in cities}
max(means, key=means.get), len(means) * 10
"""
script = [call("python", {"code": CODE}), "Lisbon was warmer. I looked at 20 days."]
tools = [python_tool(Path(mkdtemp()), call_tools=True), temperature]
agent = Agent(MODEL or ScriptedModel(script), tools=tools)
result = agent.run_sync("Which was warmer in the first ten days: Oslo or Lisbon?")
outcomes = [item for message in result.messages for item in getattr(message, "items", ())]
print(outcomes[-1].result.text.splitlines()[0])
print(result.text)
