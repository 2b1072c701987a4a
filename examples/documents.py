"""How does an agent read a Word file? As text: pip install 'windlass[documents]'."""

import argparse
from pathlib import Path
from tempfile import mkdtemp

from docx import Document

from windlass import Agent, TextPart, attach
from windlass.testing import ScriptedModel, call
from windlass.tools import Workspace, file_tools

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
SCRIPT = [call("read", {"path": "offer.docx"}), "Two tonnes, for 900 EUR.", "In May."]

OFFER = Path(mkdtemp()) / "offer.docx"
offer = Document()
offer.add_heading("Offer")
offer.add_paragraph("A jib of two tonnes, for 900 EUR. It comes in May.")
offer.save(str(OFFER))

agent = Agent(MODEL or ScriptedModel(SCRIPT), tools=file_tools(Workspace(OFFER.parent)))
# The agent reads it by itself, or it is part of the prompt.
print(agent.run_sync("What does offer.docx offer?").text)
question = [TextPart("When does it come?"), attach(OFFER, as_text=True)]
print(agent.run_sync(question).text)
