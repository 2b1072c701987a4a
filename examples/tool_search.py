"""How does an agent with hundreds of tools keep its requests small?"""

import argparse
from typing import Any

from windlass import Agent, Tool
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model
logged: list[str] = []
SCHEMA = {"type": "object", "properties": {"hours": {"type": "integer"}}, "required": ["hours"]}


def make_tool(ship: str) -> Tool[..., Any]:
    def log_hours(hours: int) -> str:
        logged.append(f"{ship}: {hours} hours")
        return "logged"

    return Tool.from_schema(f"log_{ship}", f"Log hours of the ship {ship}.", SCHEMA, log_hours)


tools = [make_tool(f"vessel{number}") for number in range(200)]
scripted = ScriptedModel(
    [
        call("search_tools", {"query": "log hours of vessel 117"}),
        call("call_tool", {"name": "log_vessel117", "arguments": {"hours": 3}}),
        "Logged.",
    ]
)
Agent(MODEL or scripted, tools=tools).run_sync("Log three hours for vessel 117.")
print([spec.name for spec in scripted.prompts[0].tools] if not MODEL else "")
print(*logged)
