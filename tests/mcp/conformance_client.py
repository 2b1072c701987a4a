"""The client that the official conformance suite starts: `conformance_client.py URL`.

The suite names its scenario in the environment, and judges by what its server sees.
"""

import asyncio
import os
import sys

from windlass.tools.mcp.config import mcp_settings
from windlass.tools.mcp.servers import McpServers
from windlass.tools.run_context import RunContext

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


async def main(url: str) -> None:
    entry = {"type": "http", "url": url, "timeout": 20}
    async with McpServers(mcp_settings({"mcpServers": {"suite": entry}}, os.environ)) as servers:
        for tool in await servers.tools():
            name = tool.name.removeprefix("suite__")
            if not tool.spec.parameters.get("required") or name in ARGUMENTS:
                result = await tool(RunContext(deps=None), **ARGUMENTS.get(name, {}))
                print(name, result.kind, result.text)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
