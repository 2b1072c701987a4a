"""How does an agent use a key from a password manager, without anybody seeing it?"""

import argparse
import sys
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, tool
from windlass.project import SecretStore
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
# `windlass secrets set HARBOUR_KEY --command …` does the same, in your configuration folder.
store = SecretStore(Path(mkdtemp()) / "secrets.toml")
store.save_command("HARBOUR_KEY", [sys.executable, "-c", "print('tide-and-anchor')"])
key = store.find("HARBOUR_KEY")
print("found:", key is not None)


@tool(effect="read")
def open_gate() -> str:
    """Open the gate of the harbour."""
    return f"the key is {key}"


script = [call("open_gate", {}), "Opened."]
agent = Agent(MODEL or ScriptedModel(script), tools=[open_gate], secrets=store.revealed)
for message in agent.run_sync("Open the gate.").messages:
    for outcome in getattr(message, "items", ()):
        print(outcome.result.text)
