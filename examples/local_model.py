"""Can an agent run without a key? With `make local`, on a small model on this machine."""

import argparse

from windlass import Agent, CallFinished, Event, Limits, LoopPolicy, tool
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as local:smollm2; without one, a script answers")


@tool(effect="read")
def get_weather(city: str) -> str:
    """The current weather in a city.

    Args:
        city: The name of the city.
    """
    return f"It is 18 degrees and sunny in {city}."


def show(event: Event) -> None:
    if isinstance(event, CallFinished):
        print(f"get_weather: {event.result.text}")


SCRIPT = [call("get_weather", {"city": "Paris"}), "18 degrees and sunny."]
agent = Agent(
    parser.parse_args().model or ScriptedModel(SCRIPT),
    instructions="You are a helpful assistant. Use the tools.",
    tools=[get_weather],
    # Such a small model has to be told which tool to call, and when to stop.
    rules=LoopPolicy(tool_choice="get_weather", on_limit="answer"),
    limits=Limits(steps=1),
)
result = agent.run_sync("What is the weather in Paris? Call get_weather.", on_event=show)
print(result.text)
