"""The client scenarios of the official conformance suite."""

import subprocess
import sys
from pathlib import Path

import pytest

from mcp_peers import fetch_or_skip
from mcp_servers import conformance

CLIENT = Path(__file__).with_name("conformance_client.py")


@pytest.mark.parametrize("scenario", ["initialize", "tools_call", "sse-retry"])
def test_the_official_suite_is_content(scenario: str) -> None:
    node, suite = fetch_or_skip(conformance)
    command = [node, suite, "client", "--scenario", scenario]
    client = f"{sys.executable} {CLIENT}"
    done = subprocess.run(
        [*command, "--command", client], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OVERALL: PASSED" in done.stdout + done.stderr
