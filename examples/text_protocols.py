"""How does a model call tools that was never taught to? It writes its calls as text."""

import asyncio

from windlass import Agent, tool
from windlass.models import ModelOptions, resolve_model
from windlass.testing import FaultServer
from windlass.testing.chat_wire import text_answer

REPLIES = {
    "react": [
        'Thought: I look it up.\nAction: look_up\nAction Input: {"part": "jib"}\n',
        "Thought: I know it now.\nFinal Answer: Two tonnes.",
    ],
    "qwen": ['✿FUNCTION✿: look_up\n✿ARGS✿: {"part": "jib"}\n', "✿RETURN✿: Two tonnes."],
    "text": [
        '<tool_call>{"name": "look_up", "arguments": {"part": "jib"}}</tool_call>',
        "Two tonnes.",
    ],
}


@tool(effect="read")
def look_up(part: str) -> str:
    """Look up what a part weighs."""
    print(f"look_up({part!r})")
    return f"{part}: 2 t"


async def main() -> None:
    for protocol, replies in REPLIES.items():
        # A stand-in for a server with such a model.
        async with FaultServer(*map(text_answer, replies)) as server:
            options = ModelOptions(tool_protocol=protocol)
            model = resolve_model("openai-compatible:m", base_url=server.url, options=options)
            result = await Agent(model, tools=[look_up]).run("What does the jib weigh?")
        print(f"{protocol}: {result.text}")


asyncio.run(main())
