"""How do I build a coding agent? Files, a shell in a sandbox, and rules for both."""

import argparse
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, CallFinished, Event
from windlass.gates import Rule, RuleGate
from windlass.testing import ScriptedModel, call
from windlass.tools import core_tools

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")

folder = Path(mkdtemp())
(folder / "crane.py").write_text("def lift(tonnes):\n    return tonnes - 1\n")
(folder / "check.py").write_text("from crane import lift\n\nassert lift(2) == 2\nprint('passed')\n")

edits = [{"old": "tonnes - 1", "new": "tonnes"}]
SCRIPT = [
    call("read", {"path": "crane.py"}),
    call("edit", {"path": "crane.py", "edits": edits}),
    call("bash", {"command": "python3 check.py"}),
    call("bash", {"command": "rm -rf ."}),
    "lift() returned a tonne too little. It is mended, and the check passes.",
]
ALLOWED = [Rule("allow", call) for call in ("@read", "edit(**)", "bash(python3 check.py)")]
DENIED = [Rule("deny", "bash(rm *)", reason="Nothing is deleted here.")]


def show(event: Event) -> None:
    if isinstance(event, CallFinished):
        print(event.result.kind)


model = parser.parse_args().model or ScriptedModel(SCRIPT)
agent = Agent(model, tools=core_tools(folder), gate=RuleGate(ALLOWED + DENIED, default="ask"))
print(agent.run_sync("The check fails. Mend the code.", on_event=show).text)
