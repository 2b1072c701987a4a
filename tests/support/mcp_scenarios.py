"""The client of the official conformance suite.

The suite starts a command for each scenario, and judges by what its server sees. The command is a
small program that asks this process to be the client, because importing the SDK takes longer than
all scenarios together.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.request import urlopen

from windlass.core.question import Question
from windlass.core.verdicts import Allow, PersonAnswer
from windlass.ports import CallContext
from windlass.tools.mcp.config import mcp_settings
from windlass.tools.mcp.servers import McpServers
from windlass.tools.run_context import RunContext

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"


async def say_yes(_question: Question) -> PersonAnswer | None:
    """Be the person: take each form as it is."""
    return Allow()


CALL = CallContext("s", 1, report=lambda _: None, on_late_result=lambda _: None, ask_person=say_yes)


async def open_page(url: str) -> None:
    """Be the person: the suite's server signs in whoever comes, and sends the browser back."""
    with await asyncio.to_thread(urlopen, url, timeout=10) as page:
        page.read()


def describe_client(scenario: str, url: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for what the suite knows about a client, if it does."""
    if "client-credentials" in scenario:
        # The issuer is the person's own setting, which the suite does not tell.
        with urlopen(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")) as page:
            issuer = json.load(page)["authorization_servers"][0]
        proof = {"client_secret": given.get("client_secret")}
        if "private_key_pem" in given:
            proof = {
                "private_key": given["private_key_pem"],
                "signing_algorithm": given["signing_algorithm"],
            }
        named = {"client_id": given["client_id"], "issuer": issuer}
        return {"type": "client_credentials", **named, **proof}
    auth = {"type": "authorization_code", "client_metadata_url": CLIENT_DOCUMENT}
    names = ("client_id", "client_secret")
    return auth | {name: given[name] for name in names if name in given}


async def play_scenario(url: str, scenario: str, context: Mapping[str, Any]) -> None:
    """Do what a client does at the suite's server: list its tools, and call them."""
    entry: dict[str, Any] = {"type": "http", "url": url, "timeout": 20}
    if scenario.startswith("auth/"):
        entry["auth"] = await asyncio.to_thread(describe_client, scenario, url, context)
    settings = mcp_settings({"mcpServers": {"suite": entry}}, {})
    sign_in = open_page if "auth" in entry else None
    async with McpServers(settings, sign_in=sign_in) as servers:
        for tool in await servers.tools():
            name = tool.name.removeprefix("suite__")
            if not tool.spec.parameters.get("required") or name in ARGUMENTS:
                await tool(RunContext(deps=None, call=CALL), **ARGUMENTS.get(name, {}))


async def answer_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Play the scenario that the small client of the suite asks for; say how it ended."""
    asked = json.loads(await reader.readline())
    said = ""
    try:
        await play_scenario(asked["url"], asked["scenario"], asked["context"])
    except Exception as error:  # noqa: BLE001 - the suite judges
        said = f"{type(error).__name__}: {error}"
    writer.write(f"{said}\n".encode())
    await writer.drain()
    writer.close()
