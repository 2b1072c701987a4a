"""MCP servers to talk to in a test, and what to talk to them with."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mcp_servers import ServerMissing
from windlass.core.messages import ToolResult
from windlass.ports import CallContext
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.function import Tool
from windlass.tools.mcp.config import mcp_settings
from windlass.tools.mcp.servers import McpServers
from windlass.tools.toolbox import Toolbox

T = TypeVar("T")
OWN = Path(__file__).resolve().parents[1] / "mcp" / "own_server.py"
"""A server of ours."""
READY_S = 30
Use = Callable[..., Coroutine[Any, Any, ToolResult]]


def tool_caller(tools: list[Tool[..., Any]], context: CallContext | None = None) -> Use:
    """Calls tools through a toolbox, as a run does."""
    box = Toolbox(tools)

    async def use(name: str, /, **arguments: Any) -> ToolResult:
        spec = next(spec for spec in box.specs if spec.name == f"own__{name}")
        return await box.run(cleared_call(spec, arguments), context or call_context())

    return use


async def wait_until(true: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def read_log(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def fetch_or_skip(fetch: Callable[..., T], *args: str) -> T:
    """What was fetched. If it cannot be had, that fails in CI, and skips elsewhere."""
    try:
        return fetch(*args)
    except ServerMissing as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def open_servers(**servers: Mapping[str, Any]) -> McpServers:
    return McpServers(mcp_settings({"mcpServers": servers}, os.environ))


def own_server_settings(folder: Path, **more: Any) -> Mapping[str, Any]:
    """The settings of our own server."""
    return {"command": sys.executable, "args": [str(OWN), str(folder)], **more}


@contextmanager
def serve_port(*command: str, port: int, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that serves a port, once it does."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, env={**os.environ, **environ}, stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        until = time.monotonic() + READY_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    pytest.fail(f"{command} does not listen")
                time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
