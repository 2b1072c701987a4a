"""A server of ours that asks its client for something while a tool runs: `asking_server.py [PORT]`.

Over the newest protocol, the questions are results of the call, which the client repeats with the
answers. Older clients are asked in the middle of the call.
"""

import sys
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, Elicit, ElicitationResult, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

server = MCPServer("asking")


class Booking(BaseModel):
    """What a person says about a journey."""

    city: str = Field(min_length=2)
    nights: int = Field(default=2, ge=1, le=30)
    seat: Literal["aisle", "window"] = "aisle"


class Login(BaseModel):
    """What no form may ask for."""

    user: str
    password: str


def ask_booking() -> Elicit[Booking]:
    return Elicit("Where to, and for how long?", Booking)


def ask_login() -> Elicit[Login]:
    return Elicit("Please sign in.", Login)


def ask_model(topic: str) -> Sample:
    message = SamplingMessage(role="user", content=TextContent(text=f"Write about {topic}."))
    return Sample([message], max_tokens=100, system_prompt="Be brief.")


@server.tool(structured_output=False)
def book(answer: Annotated[ElicitationResult[Booking], Resolve(ask_booking)]) -> str:
    """Book a journey."""
    return f"{answer.action}: {getattr(answer, 'data', None)}"


@server.tool(structured_output=False)
def sign_in(answer: Annotated[ElicitationResult[Login], Resolve(ask_login)]) -> str:
    """Sign in."""
    return answer.action


@server.tool(structured_output=False)
def write(topic: str, reply: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Have the client's model write something."""
    return f"{reply.model} wrote: {getattr(reply.content, 'text', '')}"


@server.tool(structured_output=False)
async def grow(context: Context[Any]) -> str:
    """Have one tool more, and say so."""

    def grown() -> str:
        return "I am new"

    server.add_tool(grown)
    await context.notify_tools_changed()
    return "grown"


@server.prompt()
def review(code: str, tone: str = "kind") -> str:
    """Review code."""
    return f"Please review in a {tone} tone: {code}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
