"""How does one agent improve on what another has written? It advises until it is content."""

import argparse
from dataclasses import dataclass

from windlass import Agent
from windlass.testing import ScriptedModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, scripts answer")
MODEL = parser.parse_args().model
DRAFTS = ["The jib is heavy.", "The jib weighs two tonnes."]
REVIEWS = ['{"good": false, "advice": "Say how heavy."}', '{"good": true, "advice": ""}']


@dataclass
class Review:
    good: bool
    advice: str


writer = Agent(MODEL or ScriptedModel(DRAFTS))
critic = Agent(MODEL or ScriptedModel(REVIEWS), instructions="Is it exact?", output_type=Review)

# The writer's session keeps the drafts and the advice. The loop has an end of its own.
draft = writer.run_sync("Describe the jib.", session="draft").text
for _ in range(3):
    review = critic.run_sync(draft).output
    print(draft, review.advice)
    if review.good:
        break
    draft = writer.run_sync(review.advice, session="draft").text
