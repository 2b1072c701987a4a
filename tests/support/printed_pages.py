"""Pages of the docs, run as printed: their agents served by the command line, their clients."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def read_block(page: str, beginning: str) -> str:
    """Return the block of a page whose code begins so."""
    blocks = re.findall(
        r"^```(?:python|js)[^\n]*\n(.*?)^```$",
        (DOCS / page).read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return next(block for block in blocks if block.startswith(beginning))


@asynccontextmanager
async def serve_page(folder: Path, page: str) -> AsyncGenerator[tuple[str, str]]:
    """Serve the agents of a page, and yield the address and the token that are printed."""
    (folder / "app.py").write_text(read_block(page, "from windlass import Agent"), "utf-8")
    environ = {**home_environ(folder), "PYTHONUNBUFFERED": "1"}
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
        yield address[1], token[1]
    finally:
        process.terminate()
        await process.wait()


def home_environ(folder: Path) -> dict[str, str]:
    """Return the environment with the user's folders moved into a folder."""
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return {**os.environ, **home}


async def run_printed(environ: dict[str, str], *command: str) -> str:
    """Run a client of a page, and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, failed = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, failed.decode()
    return printed.decode()
