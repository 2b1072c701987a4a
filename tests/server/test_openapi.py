"""The OpenAPI document, compared with the running service by a tool that neither knows."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from service import listen_service
from windlass import Agent, tool
from windlass.gates import ask
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
"""
"""Names that are there, so that the handlers are reached."""
PATHS = "^/(runs|questions|agents|models|budgets|me|tokens|healthz|ag-ui|a2a)"
ENDLESS = ("watchSessions",)
"""Streams that end only when the client leaves."""


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@pytest.mark.contract("A5")
@pytest.mark.timeout(240)
async def test_the_service_keeps_to_its_document(tmp_path: Path) -> None:
    generous = ServiceLimits(requests_per_s=10_000.0, requests_at_once=100_000)
    model = ScriptedModel([[call("send", {"text": "hi"})]] * 5_000)
    agent = Agent(model, name="helper", tools=[send], gate=ask())
    async with listen_service(agent, limits=generous) as running:
        token = await running.make_token("ann", ["watch", "start", "answer", "admin"])
        async with running.open_client("ann") as client:
            body = {"prompt": "Send it.", "session": "known"}
            async with client.post("/runs", json=body) as started:
                assert started.status == 202
        (tmp_path / "schemathesis.toml").write_text(PARAMETERS)
        exclude = [f"--exclude-operation-id={name}" for name in ENDLESS]
        command = (
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{running.address}/openapi.json"),
            *("--header", f"Authorization: Bearer {token}", "--checks", ",".join(CHECKS)),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "3", "--seed", "1"),
            *("--request-timeout", "20", "--generation-database", "none", "--no-color"),
            *("--include-path-regex", PATHS),
            *exclude,
        )
        tested = await asyncio.create_subprocess_exec(
            *command,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await tested.communicate()
    report = output.decode()
    assert tested.returncode == 0, report[-6_000:]
    assert int(re.findall(r"(\d+) passed", report)[-1]) > 500
