"""How does an agent analyse a table? It writes Python, in a sandbox, next to the data."""

import argparse
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, CallFinished, Event, Limits
from windlass.gates import Rule, RuleGate
from windlass.testing import ScriptedModel, call
from windlass.tools import python_tool

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")

folder = Path(mkdtemp())
(folder / "lifts.csv").write_text("crane,tonnes\nnorth,2\nsouth,9\nnorth,4\n")

LOAD = "import csv\nrows = list(csv.DictReader(open('lifts.csv')))\nlen(rows)"
ADD_UP = """
from collections import Counter
totals = Counter()
for row in rows:
    totals[row["crane"]] += int(row["tonnes"])
dict(totals)
"""
SCRIPT = [
    call("python", {"code": LOAD}),
    call("python", {"code": ADD_UP}),
    "South lifted 9 tonnes, and north 6.",
]
agent = Agent(
    parser.parse_args().model or ScriptedModel(SCRIPT),
    instructions="Answer from lifts.csv. Compute with Python; never guess a number.",
    tools=[python_tool(folder)],
    gate=RuleGate([Rule("allow", "python(*)")], default="ask"),
    limits=Limits(steps=8, seconds=300),
)


def show(event: Event) -> None:
    if isinstance(event, CallFinished):
        print(event.result.text.splitlines()[0])


print(agent.run_sync("Which crane lifted more?", on_event=show).text)
