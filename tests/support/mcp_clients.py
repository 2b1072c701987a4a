"""What the tests of the MCP server share."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from service import RunningService, ServedAgents, listen_service
from windlass.ports import Journal

WATCHER = "_shutdown_watcher"
"""A task that the SDK's library for streams starts once in each event loop, and never ends."""


@asynccontextmanager
async def end_sdk_watcher() -> AsyncGenerator[None]:
    """End what the SDK leaves behind when the block ends."""
    try:
        yield
    finally:
        left = {
            task
            for task in asyncio.all_tasks()
            if getattr(task.get_coro(), "__name__", "") == WATCHER
        }
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


@asynccontextmanager
async def listen_for_mcp(
    agents: ServedAgents, *, journal: Journal | str | None = None
) -> AsyncGenerator[RunningService]:
    """Run a service on a free port of loopback."""
    async with end_sdk_watcher(), listen_service(agents, journal=journal) as running:
        yield running
