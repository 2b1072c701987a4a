"""Work of the service that no request waits for: driving, sweeping, schedules, webhooks.

Invariant: a failure is logged and ends nothing else. Work that repeats continues after a failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from windlass.core.errors import SessionBusy, WindlassError
from windlass.logs import get_logger

_log = get_logger(__name__)
BackgroundJob = Callable[[], Awaitable[Any]]


class BackgroundWork:
    """The tasks of a service. They end with it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def start(self, name: str, work: BackgroundJob, *, quiet: bool = False) -> None:
        """Start something once. `quiet`: what users can do about a failure is on record already."""
        if not self._is_stopped:
            self._track(asyncio.create_task(_run_logged(name, work, quiet=quiet), name=name))

    def repeat(self, name: str, work: BackgroundJob, every_s: float) -> None:
        """Do something again and again, `every_s` seconds after it was done."""
        self._track(asyncio.create_task(_repeat(name, work, every_s), name=name))

    def count(self, beginning: str) -> int:
        """Return how many tasks have a name that begins so."""
        return sum(task.get_name().startswith(beginning) for task in self._tasks)

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended. Runs that they drive are released."""
        self._is_stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_logged(name: str, work: BackgroundJob, *, quiet: bool) -> None:
    try:
        await work()
    except SessionBusy:
        # Another driver was faster, which is what was wanted.
        pass
    except WindlassError as error:
        if quiet:
            _log.info("%s: %s", name, error)
        else:
            _log.warning("%s: %s", name, error)
    except Exception:  # noqa: BLE001 - logged; other work continues
        _log.exception("%s failed", name)


async def _repeat(name: str, work: BackgroundJob, every_s: float) -> None:
    while True:
        try:
            await work()
        except WindlassError as error:
            _log.warning("%s: %s", name, error)
        except Exception:  # noqa: BLE001 - logged; other work continues
            _log.exception("%s failed", name)
        await asyncio.sleep(every_s)
