"""The page about clients of OpenAI works as printed, from the first block to the last."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node_clients import node_program, require_packages

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "openai_endpoint.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A6"),
]


def read_block(beginning: str) -> str:
    """Return the block of the page whose code begins so."""
    blocks = re.findall(
        r"^```(?:python|js)[^\n]*\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return next(block for block in blocks if block.startswith(beginning))


@asynccontextmanager
async def serve_page(folder: Path) -> AsyncGenerator[dict[str, str]]:
    """Serve the agents of the page, and yield the environment that it tells to set."""
    (folder / "app.py").write_text(read_block("from windlass import Agent"), "utf-8")
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    environ = {**os.environ, **home, "PYTHONUNBUFFERED": "1"}
    command = (sys.executable, "-m", "windlass.cli", "serve", "app:agents", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environ, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        printed = ""
        while "Token" not in printed:
            line = await asyncio.wait_for(process.stdout.readline(), 30)
            assert line, "the service ended"
            printed += line.decode()
        address = re.search(r"^Serving clerk at (\S+)$", printed, re.MULTILINE)
        token = re.search(r"^Token, shown only now: (\S+)$", printed, re.MULTILINE)
        assert address is not None
        assert token is not None
        yield {
            **environ,
            "OPENAI_BASE_URL": f"{address[1]}/v1",
            "OPENAI_API_KEY": token[1],
        }
    finally:
        process.terminate()
        await process.wait()


async def run_printed(environ: dict[str, str], *command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, failed = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, failed.decode()
    return printed.decode()


async def test_the_python_example_works_as_printed(tmp_path: Path) -> None:
    program = tmp_path / "ask.py"
    program.write_text(read_block("from openai import OpenAI"), "utf-8")
    async with serve_page(tmp_path) as environ:
        printed = await run_printed(environ, sys.executable, str(program))
    lines = printed.splitlines()
    assert lines[:4] == [
        "I look it up.",
        "",
        "The jib weighs two tonnes.",
        "Four tonnes, for two of them.",
    ]
    assert re.fullmatch(r"It would be half as heavy. [1-9]\d* tokens", lines[4])


async def test_the_example_of_the_ai_sdk_works_as_printed(tmp_path: Path) -> None:
    folder = await asyncio.to_thread(require_packages, "openai")
    program = folder / f"page_{os.getpid()}.mjs"
    program.write_text(read_block("import { createOpenAICompatible }"), "utf-8")
    try:
        async with serve_page(tmp_path) as environ:
            printed = await run_printed(environ, node_program(), str(program))
    finally:
        program.unlink()
    assert printed == "I look it up.\n\nThe jib weighs two tonnes."
