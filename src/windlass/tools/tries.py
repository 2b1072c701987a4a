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

from windlass.logs import logger

P = ParamSpec("P")
R = TypeVar("R")
_log = logger(__name__)


@final
class Returned(msgspec.Struct, frozen=True):
    value: Any


@final
class Raised(msgspec.Struct, frozen=True):
    error: BaseException


@final
class Expired(msgspec.Struct, frozen=True):
    """The time was up. `late` is how it ended while it was being stopped, if it did."""

    late: Returned | Raised | None


@final
class Stopped(msgspec.Struct, frozen=True):
    """It was cancelled, and returned something all the same."""

    late: Returned


Ended = Returned | Raised | Expired | Stopped


class Threads(Executor):
    """A thread of its own for each job, so that one that hangs never stands in another's way.

    They are daemons: the program may end without them.
    """

    @override
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
                future.set_exception(error)

        threading.Thread(target=work, name="windlass-tool", daemon=True).start()
        return future


class Attempt:
    """A function under way."""

    _left_behind: set[asyncio.Task[Any]] = set()  # noqa: RUF012 - the loop itself holds tasks weakly

    def __init__(
        self,
        job: Callable[[], Any],
        name: str,
        stopping: threading.Event,
        late: Callable[[Returned], None] | None = None,
    ) -> None:
        self._job = job
        self._name = name
        self._stopping = stopping
        self._late = late
        self._in_thread = False

    async def run(self, timeout_s: float | None, grace_s: float) -> Ended:
        """Wait for the end, for the time to be up, or for a cancel.

        A cancel is passed on to the function and raised again, unless the function returns a
        value all the same within the grace: that must not be lost.
        """
        task = asyncio.create_task(self._perform(), name=f"tool {self._name}")
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            late = await self._stop(task, grace_s)
            if isinstance(late, Returned):
                return Stopped(late)
            raise
        if not done:
            return Expired(await self._stop(task, grace_s))
        if task.cancelled():
            return Raised(asyncio.CancelledError("the tool cancelled itself"))
        return task.result()

    async def _perform(self) -> Returned | Raised:
        try:
            if is_async(self._job):
                return Returned(await self._job())
            ended = await self._in_a_thread()
            if isinstance(ended, Returned) and inspect.isawaitable(ended.value):
                return Returned(await ended.value)
            return ended
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failing tool is a result
            return Raised(error)

    async def _in_a_thread(self) -> Returned | Raised:
        here, loop = contextvars.copy_context(), asyncio.get_running_loop()
        # A thread cannot be cancelled, so nobody should think that it was.
        self._in_thread = True
        try:
            return await loop.run_in_executor(_THREADS, lambda: here.run(_outcome, self._job))
        finally:
            self._in_thread = False

    async def _stop(
        self, task: asyncio.Task[Returned | Raised], grace_s: float
    ) -> Returned | Raised | None:
        """Tell it to stop, and wait a moment for that."""
        self._stopping.set()
        if not self._in_thread:
            task.cancel()
        try:
            await asyncio.wait({task}, timeout=grace_s)
        finally:
            if not task.done():
                self._leave_behind(task)
        return task.result() if task.done() and not task.cancelled() else None

    def _leave_behind(self, task: asyncio.Task[Returned | Raised]) -> None:
        _log.warning("tool %s does not stop; it is left behind", self._name)
        self._left_behind.add(task)
        task.add_done_callback(self._came_late)

    def _came_late(self, task: asyncio.Task[Returned | Raised]) -> None:
        self._left_behind.discard(task)
        ended = None if task.cancelled() else task.result()
        if self._late is not None and isinstance(ended, Returned):
            self._late(ended)


def _outcome(job: Callable[[], Any]) -> Returned | Raised:
    """As data: a StopIteration or SystemExit must not travel through a future."""
    try:
        return Returned(job())
    except BaseException as error:  # noqa: BLE001 - as above
        return Raised(error)


def is_async(job: Callable[..., Any]) -> bool:
    while isinstance(job, partial):
        job = job.func
    return inspect.iscoroutinefunction(job) or inspect.iscoroutinefunction(
        getattr(job, "__call__", None)  # noqa: B004 - an object that is called
    )


_THREADS = Threads()
