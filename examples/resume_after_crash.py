"""What if the process is killed? Another one resumes the run, and nothing is done twice."""

import argparse
import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

from windlass import Agent, tool
from windlass.journals import SqliteJournal
from windlass.testing import ScriptedModel, ScriptedReply, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
parser.add_argument("--folder", type=Path, help="the folder of a run to start and kill")
options = parser.parse_args()
FOLDER = options.folder or Path(mkdtemp())


@tool
def bolt(number: int) -> str:
    """Drive a bolt in."""
    with (FOLDER / "bolts.txt").open("a") as driven:
        driven.write(f"{number}\n")
    if options.folder and number > 1:
        signal.raise_signal(signal.SIGKILL)
    return "in"


bolts: list[ScriptedReply] = [call("bolt", {"number": at}) for at in (1, 2)]
script = bolts if options.folder else ["Bolt 1 is in; look after bolt 2."]
with SqliteJournal(FOLDER / "windlass.db") as journal:
    agent = Agent(options.model or ScriptedModel(script), tools=[bolt], journal=journal)
    if options.folder:
        sys.exit(agent.run_sync("Drive bolts 1 and 2 in.", session="s").outcome)
    subprocess.run([sys.executable, *sys.argv, "--folder", FOLDER], check=False)  # noqa: S603
    print(asyncio.run(agent.resume("s")).text)
print((FOLDER / "bolts.txt").read_text().split())
