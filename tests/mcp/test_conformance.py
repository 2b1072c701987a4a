"""The client scenarios of the official conformance suite."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from mcp_peers import fetch_or_skip
from mcp_scenarios import answer_client
from mcp_servers import conformance

CLIENT = Path(__file__).with_name("conformance_client.py")
SCENARIOS = 26
"""All of the pinned version."""
OTHERS = {
    "auth/cross-app-access-complete-flow": "needs the identity provider of a company, which gives "
    "an assertion instead of a person who signs in",
}
"""The scenarios that do not apply, and why."""
TIMED = "sse-retry"
"""Measures how soon the client is back, so it is run again alone."""
LINE = re.compile(r"[✓✗] (\S+): (\d+) passed, (\d+) failed(.*)")


async def run_suite(folder: Path, *which: str) -> str:
    """Return what the suite says about our client."""
    node, suite = fetch_or_skip(conformance)
    place = str(folder / "client")
    client = f"{sys.executable} -I -S {CLIENT} {place}"
    async with await asyncio.start_unix_server(answer_client, place):
        process = await asyncio.create_subprocess_exec(
            *(node, suite, "client", *which, "--timeout", "90000", "--command", client),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        return (await process.communicate())[0].decode()


@pytest.mark.contract("T15")
async def test_the_official_suite_is_content(tmp_path: Path) -> None:
    """All scenarios at once."""
    said = await run_suite(tmp_path, "--suite", "all")
    found = {name: result for name, *result in LINE.findall(said)}
    assert len(found) == SCENARIOS, said
    wrong = {
        name
        for name, (passed, failed, warnings) in found.items()
        if name != TIMED and (int(failed) or not int(passed) or warnings)
    }
    assert wrong == set(OTHERS), said


@pytest.mark.contract("T15")
async def test_the_client_comes_back_when_the_server_says(tmp_path: Path) -> None:
    said = await run_suite(tmp_path, "--scenario", TIMED)
    assert "OVERALL: PASSED" in said, said
