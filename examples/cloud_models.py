"""How is a model of a cloud asked? By its name, with the credentials of that cloud."""

import asyncio

from windlass import Agent
from windlass.models import resolve_model
from windlass.testing import FaultServer
from windlass.testing.chat_wire import text_answer

MODEL = "azure-chat:our-deployment"
# Usually these come from the environment, and `Agent(MODEL)` is enough.
CREDENTIALS = {"AZURE_OPENAI_API_KEY": "an-example-key"}


async def main() -> None:
    # A stand-in for the resource, on this machine.
    async with FaultServer(text_answer("Two tonnes.")) as server:
        model = resolve_model(MODEL, environ=CREDENTIALS, base_url=server.url)
        result = await Agent(model).run("What does the jib weigh?")
        (request,) = server.requests
    print(result.text, f"(the key came along: {request.headers['api-key'] == 'an-example-key'})")


asyncio.run(main())
