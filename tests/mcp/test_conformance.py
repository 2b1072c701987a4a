"""The client scenarios of the official conformance suite, all of them in one run."""

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
TIMED = {"sse-retry"}
"""The scenarios that warn on a machine which is busy: they measure how soon the client is back."""
LINE = re.compile(r"([✓✗]) (\S+): (\d+) passed, (\d+) failed(.*)")


@pytest.mark.contract("T15")
async def test_the_official_suite_is_content(tmp_path: Path) -> None:
    node, suite = fetch_or_skip(conformance)
    place = str(tmp_path / "client")
    client = f"{sys.executable} -I -S {CLIENT} {place}"
    async with await asyncio.start_unix_server(answer_client, place):
        process = await asyncio.create_subprocess_exec(
            *(node, suite, "client", "--suite", "all", "--timeout", "90000", "--command", client),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
    found = {
        name: (mark == "✓" and "warning" not in rest, int(passed), int(failed))
        for mark, name, passed, failed, rest in LINE.findall(said)
    }
    assert len(found) == SCENARIOS, said
    assert set(OTHERS) <= set(found)
    failed = {
        name: result
        for name, result in found.items()
        if name not in OTHERS and (result[2] or not result[1] or not (result[0] or name in TIMED))
    }
    assert failed == {}, said
