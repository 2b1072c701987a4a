"""Waiting for what is about to end, although whoever waits is cancelled meanwhile."""

import asyncio
from contextlib import suppress
from typing import Any


async def wait_until_done(task: asyncio.Task[Any]) -> None:
    """Wait until a task is over, however often one is cancelled."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


async def wait_bounded(work: "asyncio.Future[Any]", seconds: float) -> None:
    """Wait for something for a bounded time, however often one is cancelled."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while not work.done():
        try:
            await asyncio.wait({work}, timeout=max(0.0, ends - loop.time()))
        except asyncio.CancelledError:
            continue
        return
