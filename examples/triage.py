"""How does an agent sort tickets, with a person who decides what is sent to customers?"""

import argparse
from dataclasses import dataclass

from windlass import Agent, Allow, Deny, Question, tool
from windlass.gates import ask
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
TICKETS = {7: "The crane drops its load!", 8: "Where is the manual?"}


@dataclass
class Triage:
    urgent: list[int]
    answered: list[int]


@tool(effect="read")
def read_tickets() -> dict[int, str]:
    """The tickets that came in over night."""
    return TICKETS


@tool
def reply_to(ticket: int, text: str) -> str:
    """Answer the customer who wrote a ticket."""
    return f"sent: {text}"


async def decide(question: Question) -> Allow | Deny:  # A person, at a desk or a phone.
    print("asked about", question.arguments)
    return Deny("Safety answers it.") if question.arguments["ticket"] == 7 else Allow()


replies = [call("reply_to", {"ticket": number, "text": "We are on it."}) for number in TICKETS]
script = [call("read_tickets"), replies, '{"urgent": [7], "answered": [8]}']
options = {"tools": [read_tickets, reply_to], "gate": ask(), "approver": decide}
agent = Agent(parser.parse_args().model or ScriptedModel(script), output_type=Triage, **options)
print(agent.run_sync("Sort the tickets, and answer those that you can.").output)
