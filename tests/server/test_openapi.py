"""The OpenAPI document, compared with the running service by a tool that neither knows."""

import asyncio
import os
import re
import sys
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from service import listen_service
from windlass import Agent, tool
from windlass.gates import ask
from windlass.server.dispatch import all_routes
from windlass.server.limits import ServiceLimits
from windlass.testing import ScriptedModel, call

pytestmark = [pytest.mark.slow, pytest.mark.realtime]

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
PARAMETERS = """[parameters]
session = "known"
agent = "helper"
model = "helper"
"""
"""Names that are there, so that the handlers are reached."""
PHASES = "coverage,fuzzing" if os.environ.get("WINDLASS_TEST_DEEP") else "fuzzing"
"""The first of them tries each bound of each field, which takes minutes: `make openapi`."""
LEFT_OUT = {
    "watchSessions": "a stream that ends only when its client leaves",
    "watchPage": "a stream that ends only when its client leaves",
    "revokeToken": "it takes ids from the list of tokens, and would revoke its own",
    "createWebhook": "it looks up the host of any address, and here is no network",
    "showQuestion": "an HTML page, also for errors",
    "answerLinkedQuestion": "an HTML page, also for errors",
}
"""The operations that the tool cannot try, and why."""


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


async def answer_all(client: aiohttp.ClientSession) -> None:
    """Deny every call, so that no request waits for a person for ever."""
    while True:
        async with client.get("/questions") as reply:
            listed = (await reply.json())["questions"]
        for question in listed:
            body = {
                "call_id": question["call_id"],
                "digest": question["digest"],
                "answer": {"verdict": "deny", "reason": "No."},
            }
            path = f"/runs/{quote(question['session'], safe='')}/answers"
            async with client.post(path, json=body) as reply:
                await reply.read()
        await asyncio.sleep(0.3)


async def open_mcp_session(client: aiohttp.ClientSession) -> str:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with client.post("/mcp", json=body) as reply:
        return reply.headers["mcp-session-id"]


async def run_tool(folder: Path, address: str, *headers: str) -> tuple[int | None, str]:
    """Run the tool on all operations that are not left out; returns its exit code and report."""
    (folder / "schemathesis.toml").write_text(PARAMETERS)
    command = (
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"),
        *("--phases", PHASES, "--max-examples", "8", "--seed", "1"),
        *("--request-timeout", "20", "--generation-database", "none", "--no-color"),
        *("--checks", ",".join(CHECKS)),
        *(f"--header={header}" for header in headers),
        *(f"--exclude-operation-id={name}" for name in LEFT_OUT),
    )
    tested = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await tested.communicate()
    return tested.returncode, output.decode()


@pytest.mark.contract("A5")
@pytest.mark.timeout(240)
async def test_the_service_keeps_to_its_document(tmp_path: Path) -> None:
    # The tool also tries requests without a token: they must not keep out the others.
    generous = ServiceLimits(
        requests_per_s=10_000.0, requests_at_once=100_000, failed_logins_per_min=1e6
    )
    model = ScriptedModel([[call("send", {"text": "hi"})], "Done."] * 5_000)
    agent = Agent(model, name="helper", tools=[send], gate=ask())
    async with listen_service(agent, limits=generous) as running:
        token = await running.make_token("ann", ["watch", "start", "answer", "admin"])
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(running.address, headers=headers) as client:
            body = {"prompt": "Send it.", "session": "known"}
            async with client.post("/runs", json=body) as started:
                assert started.status == 202
            session = await open_mcp_session(client)
            answering = asyncio.create_task(answer_all(client))
            code, report = await run_tool(
                tmp_path,
                running.address,
                f"Authorization: Bearer {token}",
                f"Mcp-Session-Id: {session}",
            )
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
    assert code == 0, report[-6_000:]
    assert int(re.findall(r"(\d+) passed", report)[-1]) > 300
    tested = int(re.findall(r"Tested: (\d+)", report)[-1])
    assert tested == len(all_routes()) - len(LEFT_OUT)
