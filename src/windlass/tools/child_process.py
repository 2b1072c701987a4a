"""The end of a program that asyncio started.

Invariant: a survivor that holds the pipes of a program keeps nothing waiting. `Process.wait` of
asyncio returns once the pipes are closed at both ends, and a descendant in a session of its own may
hold its end for hours.
"""

import asyncio
from contextlib import suppress

POLL_S = 0.001
"""The first pause. Each one is twice as long as the one before, up to POLL_S_MAX."""
POLL_S_MAX = 0.02


async def wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Return whether a program ended in time, whatever still holds its pipes."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    pause = POLL_S
    while process.returncode is None and loop.time() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, POLL_S_MAX)
    return process.returncode is not None


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends of the pipes of a program that has ended.

    There is no public way to do it. One that still runs is killed by it, and its exit code is lost.
    """
    transport = getattr(process, "_transport", None)
    if isinstance(transport, asyncio.SubprocessTransport):
        with suppress(OSError):
            transport.close()
