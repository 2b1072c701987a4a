"""How does an MCP server ask a person something while its tool runs?"""

import argparse
import asyncio
import sys
from typing import Annotated

from windlass import Agent, Modify, Question, ToolResults
from windlass.testing import ScriptedModel, call
from windlass.tools import McpServers, mcp_settings

if "--serve" in sys.argv:  # The server, which would be somebody else's program.
    from mcp.server.mcpserver import Elicit, MCPServer, Resolve
    from pydantic import BaseModel

    class Journey(BaseModel):
        city: str
        nights: int = 2

    server = MCPServer("trips")

    @server.tool()
    def book(trip: Annotated[Journey, Resolve(lambda: Elicit("Where to?", Journey))]) -> str:
        return f"{trip.nights} nights in {trip.city}"

    sys.exit(server.run())

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model


def answer(question: Question) -> bool | Modify:  # The person.
    print(question.question.splitlines()[0])
    return True if question.form is None else Modify({"city": "Oslo"}, "It is my journey.")


async def main() -> None:
    entry = {"command": sys.executable, "args": [__file__, "--serve"]}
    async with McpServers(mcp_settings({"mcpServers": {"trips": entry}}, environ={})) as servers:
        model = MODEL or ScriptedModel([call("trips__book"), "It is booked."])
        agent = Agent(model, tools=await servers.tools(), approver=answer)
        result = await agent.run("Book my journey.")
    told = [step for step in result.messages if isinstance(step, ToolResults)]
    print(told[0].items[0].result.text, result.output)


asyncio.run(main())
