"""How does a program let a person sign in at an MCP server, and use its tools from then on?"""

import argparse
import asyncio
from urllib.request import urlopen

from windlass import Agent
from windlass.testing import FaultServer, OAuthService, ScriptedModel, call
from windlass.tools import McpServers, MemoryTokens, mcp_settings

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", help="such as openai:gpt-5; without one, a script answers")
MODEL = parser.parse_args().model


async def show_page(address: str) -> None:
    """Send the person to the address: here, one who agrees at once."""
    print("sign in at", address.partition("?")[0].rpartition("/")[2])
    await asyncio.to_thread(lambda: urlopen(address).read())  # noqa: S310 - of the service below


async def main() -> None:
    service = OAuthService()  # A server behind OAuth, on this machine.
    # `windlass.project.SecretTokens` keeps them in the keyring, as `windlass mcp login` does.
    tokens = MemoryTokens()
    async with FaultServer(always=service) as server:
        settings = mcp_settings({"mcpServers": {"desk": {"url": service.url_of(server)}}}, {})
        for sign_in in (show_page, None):  # The second run needs nobody.
            async with McpServers(settings, tokens=tokens, sign_in=sign_in) as servers:
                model = MODEL or ScriptedModel([call("desk__greet", {"name": "Ann"}), "Done."])
                agent = Agent(model, tools=await servers.tools())
                result = await agent.run("Greet Ann.")
                print(result.output, len(service.sign_ins))


asyncio.run(main())
