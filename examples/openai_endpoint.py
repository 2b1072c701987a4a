"""How does a program that speaks OpenAI's API use my agent? It needs `pip install openai`."""

import argparse
import asyncio

from openai import AsyncOpenAI

from windlass import Agent, tool
from windlass.server import ServeOptions, Service, serve
from windlass.testing import ScriptedModel, call

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
SCRIPT = [call("weigh", {"part": "jib"}), "The jib weighs two tonnes.", "Four tonnes."]
MODEL = parser.parse_args().model or ScriptedModel(SCRIPT)


@tool(effect="read")
def weigh(part: str) -> str:
    """Look up what a part weighs."""
    return f"The {part} weighs two tonnes."


async def main() -> None:
    service = Service(Agent(MODEL, name="clerk", tools=[weigh]))
    token = await service.tokens.create("ann")
    ready = asyncio.get_running_loop().create_future()
    options = ServeOptions(port=0)
    serving = asyncio.create_task(serve(service, options, on_ready=ready.set_result))
    async with AsyncOpenAI(base_url=f"{await ready}/v1", api_key=token.secret) as client:
        jib = await client.responses.create(model="clerk", input="What does the jib weigh?")
        print(jib.output_text)
        async with client.responses.stream(
            model="clerk", input="And two of them?", previous_response_id=jib.id
        ) as events:
            print((await events.get_final_response()).output_text)
    serving.cancel()


asyncio.run(main())
