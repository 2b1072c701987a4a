"""How do I work on a program without paying for the same request again and again?"""

import argparse
from tempfile import mkdtemp

from windlass import Agent
from windlass.models import CachedModel, resolve_model
from windlass.testing import ScriptedModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
CACHE = mkdtemp()  # In a project, a folder that stays: ".cache/replies".

# The program is started three times. The script has one answer, so the others are from the disk.
for script in (["The jib weighs two tonnes."], [], []):
    model = resolve_model(MODEL) if MODEL else ScriptedModel(script)
    agent = Agent(CachedModel(model, CACHE))
    result = agent.run_sync("What does the jib weigh?")
    from_disk = result.usage.cached_replies if result.usage else 0
    print(f"{result.text} ({from_disk} of {result.model_calls} from the disk)")
