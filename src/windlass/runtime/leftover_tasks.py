"""Tasks and cancellation: waiting although one is cancelled, and tasks that outlive their run.

Invariant: a task that was cancelled is cancelled again after a grace. It is tracked while it runs,
because the event loop itself keeps only weak references to tasks.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from windlass.core.messages import ToolResult

TIMER_GRAIN_S = 0.001
"""A timer may fire this much early, so less than this counts as no time left."""
CANCEL_GRACE_S = 2.0
"""How long a cancelled task may take before it is cancelled again."""


async def wait_until_done(task: asyncio.Task[Any]) -> None:
    """Wait until a task is over, however often the caller is cancelled in the meantime."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})


async def wait_bounded(work: "asyncio.Future[Any]", seconds: float) -> None:
    """Wait at most `seconds` seconds for a future, however often the caller is cancelled."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds
    while not work.done():
        try:
            await asyncio.wait({work}, timeout=max(0.0, ends_at - loop.time()))
        except asyncio.CancelledError:
            continue
        return


class LeftoverTasks:
    """Tasks that outlive their run: cancelled calls that have not stopped yet, and late writes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._guards: dict[asyncio.AbstractEventLoop, AsyncGenerator[None]] = {}

    def abandon_call(
        self, task: asyncio.Task[ToolResult], on_late_result: Callable[[ToolResult], None]
    ) -> None:
        """Cancel a call whose run has ended. If it returns anyway, pass its result on.

        A tool may swallow the first CancelledError while it cleans up, so it is cancelled a second
        time after CANCEL_GRACE_S.
        """
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
        """Keep a reference to a task until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._discard)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start work that no run waits for."""
        task = asyncio.create_task(work)
        self.track(task)
        self._guard_loop_end(task.get_loop())
        return task

    def _guard_loop_end(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that an event loop does not end before the tasks that were started here.

        As it ends, `asyncio.run` cancels the tasks that it finds, but a call that was cancelled may
        return a result, and the task that writes it would be dropped. `asyncio.run` then closes the
        async generators that have begun: one of them is ours, and waits.
        """
        if loop not in self._guards:
            guard = self._drain_when_closed()
            self._guards[loop] = guard
            _resume_guard(guard)

    async def _drain_when_closed(self) -> AsyncGenerator[None]:
        try:
            yield
        except GeneratorExit:
            self._guards.pop(asyncio.get_running_loop(), None)
            await self.drain()
            raise

    def _discard(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        loop = task.get_loop()
        if loop in self._guards and not any(other.get_loop() is loop for other in self._tasks):
            _resume_guard(self._guards.pop(loop))
        if not task.cancelled():
            # An exception that is never retrieved would be logged by asyncio when it is collected.
            task.exception()

    async def drain(self) -> None:
        """Wait until the tasks of this event loop are over; after a grace they are cancelled."""
        if tasks := self._tasks_of_this_loop():
            await asyncio.wait(tasks, timeout=CANCEL_GRACE_S)
        for task in self._tasks_of_this_loop():
            task.cancel()
        if tasks := self._tasks_of_this_loop():
            await asyncio.wait(tasks, timeout=CANCEL_GRACE_S)

    def _tasks_of_this_loop(self) -> set[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        return {task for task in self._tasks if task.get_loop() is loop}


def _resume_guard(guard: AsyncGenerator[None]) -> None:
    """Run a guard up to its first `yield`, or from there to its end, which awaits nothing."""
    with suppress(StopIteration, StopAsyncIteration):
        guard.asend(None).send(None)
