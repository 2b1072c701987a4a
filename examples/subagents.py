"""How does an agent use other agents? As tools, with no more rights than its own."""

import argparse
import asyncio

from windlass import Agent, Event, NestedEvent, RunEnded, delegate, tool
from windlass.gates import Rule, RuleGate
from windlass.testing import ScriptedModel, ScriptedReply, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model


@tool
def weld(part: str) -> str:
    """Weld a part."""
    return f"welded {part}"


def model(*script: ScriptedReply) -> ScriptedModel | str:
    return MODEL or ScriptedModel(script)


smith_model = model(call("weld", {"part": "jib"}), "I was not allowed to.")
smith = Agent(smith_model, instructions="You weld.", tools=[weld])
clerk = Agent(model("A jib, 12 metres."), instructions="You read drawings.")
tasks = [call("delegate", {"agent": name, "task": "The jib."}) for name in ("clerk", "smith")]
gate = RuleGate([Rule("deny", "weld")], default="allow")
report = "The jib is 12 metres long, and not welded."
boss = Agent(model(tasks, report), tools=[delegate({"clerk": clerk, "smith": smith})], gate=gate)


def show(event: Event) -> None:
    if isinstance(event, NestedEvent) and isinstance(event.event, RunEnded):
        print(event.agent, event.event.outcome)


print(asyncio.run(boss.run("See to the jib.", on_event=show)).text)
