"""How do several agents discuss? Each speaks in turn, and hears what the others said since."""

import argparse

from windlass import Agent
from windlass.testing import ScriptedModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, scripts answer")
MODEL = parser.parse_args().model
SCRIPTS = {
    "engineer": ["It weighs two tonnes.", "Agreed."],
    "buyer": ["That is too heavy for our truck.", "Then we rent one."],
}

speakers = {
    name: Agent(MODEL or ScriptedModel(script), instructions=f"You are the {name}. Be brief.")
    for name, script in SCRIPTS.items()
}
minutes = ["chair: How do we move the jib?"]
heard = dict.fromkeys(speakers, 0)
for _ in range(2):
    for name, agent in speakers.items():
        news = "\n".join(minutes[heard[name] :])
        # Each has a session of its own, so that it knows its own words from those of others.
        minutes.append(f"{name}: {agent.run_sync(news, session=name).text}")
        heard[name] = len(minutes)
print("\n".join(minutes))
