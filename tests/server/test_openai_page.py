"""The page about clients of OpenAI works as printed, from the first block to the last."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from node_clients import node_program, require_packages
from printed_pages import home_environ, read_block, run_printed, serve_page

PAGE = "openai_endpoint.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A6"),
]


def client_environ(folder: Path, address: str, token: str) -> dict[str, str]:
    """Return the environment that the page tells to set."""
    told = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": token}
    return {**home_environ(folder), **told}


async def test_the_python_example_works_as_printed(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(read_block(PAGE, "from openai import OpenAI\n\nclient"), "utf-8")
    async with serve_page(tmp_path, PAGE) as (address, token):
        environ = client_environ(tmp_path, address, token)
        printed = await run_printed(environ, sys.executable, str(program))
    lines = printed.splitlines()
    assert lines[:4] == [
        "I look it up.",
        "",
        "The jib weighs two tonnes.",
        "Four tonnes, for two of them.",
    ]
    assert re.fullmatch(r"It would be half as heavy. [1-9]\d* tokens", lines[4])


async def test_the_streaming_example_works_as_printed(tmp_path: Path) -> None:
    program = tmp_path / "stream.py"
    program.write_text(read_block(PAGE, "from openai import OpenAI\n\nstream"), "utf-8")
    async with serve_page(tmp_path, PAGE) as (address, token):
        environ = client_environ(tmp_path, address, token)
        printed = await run_printed(environ, sys.executable, str(program))
    assert printed == "I look it up.\n\nThe jib weighs two tonnes."


async def test_the_example_of_the_ai_sdk_works_as_printed(tmp_path: Path) -> None:
    folder = await asyncio.to_thread(require_packages, "openai")
    program = folder / f"page_{os.getpid()}.mjs"
    program.write_text(read_block(PAGE, "import { createOpenAICompatible }"), "utf-8")
    try:
        async with serve_page(tmp_path, PAGE) as (address, token):
            environ = client_environ(tmp_path, address, token)
            printed = await run_printed(environ, node_program(), str(program))
    finally:
        program.unlink()
    assert printed == "I look it up.\n\nThe jib weighs two tonnes."
