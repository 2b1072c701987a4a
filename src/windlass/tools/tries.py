"""One try of a tool's function, for so long and no longer.

The law: whoever waits here gets away. A function that does not stop is told to, given a moment, and
then left behind; neither its thread nor its task can hold up another call, the run, or the end of
the program.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar, final

import msgspec
from typing_extensions import override

from windlass.logs import get_logger

P = ParamSpec("P")
R = TypeVar("R")
_log = get_logger(__name__)


@final
class ToolReturned(msgspec.Struct, frozen=True):
    value: Any


@final
class ToolRaised(msgspec.Struct, frozen=True):
    error: BaseException


@final
class ToolTimedOut(msgspec.Struct, frozen=True):
    """The time was up. `late` is how it ended while it was being stopped, if it did."""

    late_outcome: ToolReturned | ToolRaised | None


@final
class ToolStopped(msgspec.Struct, frozen=True):
    """It was cancelled, and returned something all the same."""

    late_outcome: ToolReturned


AttemptOutcome = ToolReturned | ToolRaised | ToolTimedOut | ToolStopped


class ThreadPerJob(Executor):
    """A thread of its own for each job, so that one that hangs never stands in another's way.

    They are daemons: the program may end without them.
    """

    @override
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()

        def run_job() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                future.set_exception(error)

        threading.Thread(target=run_job, name="windlass-tool", daemon=True).start()
        return future


class ToolAttempt:
    """A function under way."""

    _abandoned_tasks: set[asyncio.Task[Any]] = set()  # noqa: RUF012 - the loop itself holds tasks weakly

    def __init__(
        self,
        job: Callable[[], Any],
        name: str,
        stopping: threading.Event,
        on_late_result: Callable[[ToolReturned], None] | None = None,
    ) -> None:
        self._job = job
        self._name = name
        self._stopping = stopping
        self._on_late_result = on_late_result
        self._runs_in_thread = False

    async def run(self, timeout_s: float | None, grace_s: float) -> AttemptOutcome:
        """Wait for the end, for the time to be up, or for a cancel.

        A cancel is passed on to the function and raised again, unless the function returns a
        value all the same within the grace: that must not be lost.
        """
        task = asyncio.create_task(self._run_job(), name=f"tool {self._name}")
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            late = await self._stop_task(task, grace_s)
            if isinstance(late, ToolReturned):
                return ToolStopped(late)
            raise
        if not done:
            return ToolTimedOut(await self._stop_task(task, grace_s))
        if task.cancelled():
            return ToolRaised(asyncio.CancelledError("the tool cancelled itself"))
        return task.result()

    async def _run_job(self) -> ToolReturned | ToolRaised:
        try:
            if is_async_callable(self._job):
                return ToolReturned(await self._job())
            ended = await self._run_in_thread()
            if isinstance(ended, ToolReturned) and inspect.isawaitable(ended.value):
                return ToolReturned(await ended.value)
            return ended
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failing tool is a result
            return ToolRaised(error)

    async def _run_in_thread(self) -> ToolReturned | ToolRaised:
        here, loop = contextvars.copy_context(), asyncio.get_running_loop()
        # A thread cannot be cancelled, so nobody should think that it was.
        self._runs_in_thread = True
        try:
            return await loop.run_in_executor(
                _THREAD_PER_JOB, lambda: here.run(_capture_outcome, self._job)
            )
        finally:
            self._runs_in_thread = False

    async def _stop_task(
        self, task: asyncio.Task[ToolReturned | ToolRaised], grace_s: float
    ) -> ToolReturned | ToolRaised | None:
        """Tell it to stop, and wait a moment for that."""
        self._stopping.set()
        if not self._runs_in_thread:
            task.cancel()
        try:
            await asyncio.wait({task}, timeout=grace_s)
        finally:
            if not task.done():
                self._abandon_task(task)
        return task.result() if task.done() and not task.cancelled() else None

    def _abandon_task(self, task: asyncio.Task[ToolReturned | ToolRaised]) -> None:
        _log.warning("tool %s does not stop; it is left behind", self._name)
        self._abandoned_tasks.add(task)
        task.add_done_callback(self._on_abandoned_done)

    def _on_abandoned_done(self, task: asyncio.Task[ToolReturned | ToolRaised]) -> None:
        self._abandoned_tasks.discard(task)
        ended = None if task.cancelled() else task.result()
        if self._on_late_result is not None and isinstance(ended, ToolReturned):
            self._on_late_result(ended)


def _capture_outcome(job: Callable[[], Any]) -> ToolReturned | ToolRaised:
    """As data: a StopIteration or SystemExit must not travel through a future."""
    try:
        return ToolReturned(job())
    except BaseException as error:  # noqa: BLE001 - as above
        return ToolRaised(error)


def is_async_callable(job: Callable[..., Any]) -> bool:
    while isinstance(job, partial):
        job = job.func
    return inspect.iscoroutinefunction(job) or inspect.iscoroutinefunction(
        getattr(job, "__call__", None)  # noqa: B004 - an object that is called
    )


_THREAD_PER_JOB = ThreadPerJob()
