"""Tasks that outlive their run: told to stop, told again after a grace, and never forgotten."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.core.messages import ToolResult

CANCEL_GRACE_S = 2.0


class LeftoverTasks:
    """Keeps hold of what a run left behind, until it is over."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def abandon_call(
        self, task: asyncio.Task[ToolResult], on_late_result: Callable[[ToolResult], None]
    ) -> None:
        """Stop a call that nobody waits for; a result that it still gives is told to `late`."""
        self._tasks.add(task)
        task.cancel()
        second_cancel = asyncio.get_running_loop().call_later(CANCEL_GRACE_S, task.cancel)

        def on_done(task: asyncio.Task[ToolResult]) -> None:
            second_cancel.cancel()
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is None:
                on_late_result(task.result())

        task.add_done_callback(on_done)

    def track(self, task: asyncio.Task[Any]) -> None:
        """Keep hold of a task that may not end although it was told to."""
        self._tasks.add(task)
        task.add_done_callback(self._discard)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that no run waits for."""
        task = asyncio.create_task(work)
        self.track(task)
        return task

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    async def drain(self) -> None:
        """Wait until what this event loop left behind is over; what takes too long is stopped."""
        if left := self._tasks_of_this_loop():
            await asyncio.wait(left, timeout=CANCEL_GRACE_S)
        for task in self._tasks_of_this_loop():
            task.cancel()
        if left := self._tasks_of_this_loop():
            await asyncio.wait(left, timeout=CANCEL_GRACE_S)

    def _tasks_of_this_loop(self) -> set[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        return {task for task in self._tasks if task.get_loop() is loop}
