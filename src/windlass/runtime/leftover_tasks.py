"""Tasks that outlive their run: told to stop, told again after a grace, and never forgotten."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.core.messages import Result

GRACE_S = 2.0


class Crew:
    """Keeps hold of what a run left behind, until it is over."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def dismiss(self, task: asyncio.Task[Result], late: Callable[[Result], None]) -> None:
        """Stop a call that nobody waits for; a result that it still gives is told to `late`."""
        self._tasks.add(task)
        task.cancel()
        again = asyncio.get_running_loop().call_later(GRACE_S, task.cancel)

        def over(task: asyncio.Task[Result]) -> None:
            again.cancel()
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is None:
                late(task.result())

        task.add_done_callback(over)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep hold of a task that may not end although it was told to."""
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that no run waits for."""
        task = asyncio.create_task(work)
        self.keep(task)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def rest(self) -> None:
        """Wait until what this event loop left behind is over; what takes too long is stopped."""
        if left := self._here():
            await asyncio.wait(left, timeout=GRACE_S)
        for task in self._here():
            task.cancel()
        if left := self._here():
            await asyncio.wait(left, timeout=GRACE_S)

    def _here(self) -> set[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        return {task for task in self._tasks if task.get_loop() is loop}
