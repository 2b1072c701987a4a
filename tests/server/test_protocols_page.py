"""The page about protocols works as printed: the clients of AG-UI and A2A that it shows."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from node_clients import node_program, require_packages
from printed_pages import home_environ, read_block, run_printed, serve_page

PAGE = "protocols.md"
ANSWER = "The jib is on its way."
pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A6"),
]


def client_environ(folder: Path, address: str, token: str) -> dict[str, str]:
    """Return the environment that the page tells to set."""
    return {**home_environ(folder), "WINDLASS_URL": address, "WINDLASS_TOKEN": token}


async def test_the_client_of_ag_ui_works_as_printed(tmp_path: Path) -> None:
    folder = await asyncio.to_thread(require_packages, "ag_ui")
    program = folder / f"page_{os.getpid()}.mjs"
    program.write_text(read_block(PAGE, "import { HttpAgent }"), "utf-8")
    try:
        async with serve_page(tmp_path, PAGE) as (address, token):
            environ = client_environ(tmp_path, address, token)
            printed = await run_printed(environ, node_program(), str(program))
    finally:
        program.unlink()
    question, answer = printed.splitlines()
    assert question.endswith('{"part":"jib"}')
    assert answer == ANSWER


async def test_the_client_of_a2a_works_as_printed(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(read_block(PAGE, "import asyncio"), "utf-8")
    async with serve_page(tmp_path, PAGE) as (address, token):
        environ = client_environ(tmp_path, address, token)
        printed = await run_printed(environ, sys.executable, str(program))
    question, answer = printed.splitlines()
    assert "Order: part jib?" in question
    assert answer == ANSWER
