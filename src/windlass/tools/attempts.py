"""One attempt to run a tool's function, with a time limit.

Invariant: the caller always gets control back. A function that takes too long is asked to stop,
gets a moment for it, and is then abandoned. Neither its thread nor its task can block another call,
the run, or the end of the program.

An `async` function that calls `time.sleep` or a synchronous client stops every run of the process,
the cancels and the watchers too, and nothing shows which tool it was. So each stretch between two
awaits of a tool is timed, and a tool that blocks the event loop is named.
"""

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, final

import msgspec
from typing_extensions import override

from windlass.logs import get_logger

BLOCKING_S = 0.25
"""Seconds without an await after which a tool is named."""
HANGING_S = 5.0
"""Seconds after which a tool is named while it still blocks the loop: it may never return."""
LOOK_S = 1.0
"""How often the running stretches are looked at, while there are any."""
ADVICE = (
    "an async tool must await what takes time; a plain function (def) with the same body runs in "
    "a thread"
)

ValueT = TypeVar("ValueT")
P = ParamSpec("P")
R = TypeVar("R")
_log = get_logger(__name__)


@final
class TimedAwaitable(Generic[ValueT]):
    """Awaits the work of a tool, and times each stretch of it between two awaits."""

    __slots__ = ("_name", "_on_blocked", "_work", "began_at")

    def __init__(
        self, work: Awaitable[ValueT], name: str, on_blocked: Callable[[float], None] | None
    ) -> None:
        """Wrap the work of a tool. `on_blocked` gets the seconds that it blocked the loop."""
        self._work = work
        self._name = name
        self._on_blocked = on_blocked
        self.began_at: float | None = None
        """When the stretch that runs now began; None between two stretches."""

    @property
    def name(self) -> str:
        return self._name

    def __await__(self) -> Generator[Any, Any, ValueT]:
        work = self._work.__await__()
        error: BaseException | None = None
        _watch.add(self)
        try:
            while True:
                try:
                    yielded = self._step(work, error)
                except StopIteration as stop:
                    return stop.value
                error = None
                try:
                    yield yielded
                except GeneratorExit:
                    work.close()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - a cancel, for the work
                    error = thrown
        finally:
            _watch.discard(self)

    def _step(self, work: Generator[Any, Any, ValueT], error: BaseException | None) -> object:
        began_at = self.began_at = time.monotonic()
        try:
            if error is None:
                return work.send(None)
            return work.throw(error)
        finally:
            self.began_at = None
            blocked_s = time.monotonic() - began_at
            if blocked_s >= BLOCKING_S:
                self._tell(blocked_s)

    def _tell(self, blocked_s: float) -> None:
        _log.warning("tool %s blocked the event loop for %.1f s: %s", self._name, blocked_s, ADVICE)
        if self._on_blocked is not None:
            self._on_blocked(blocked_s)


@final
class _Watch:
    """A thread that names a tool while it blocks. It sleeps while no async tool runs."""

    def __init__(self) -> None:
        self._running: set[TimedAwaitable[Any]] = set()
        self._is_needed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, timed: TimedAwaitable[Any]) -> None:
        self._running.add(timed)
        # A forked child has the object and not the thread.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look, name="windlass-watch", daemon=True)
            self._thread.start()
        # Rarely: to wake a thread at each call would cost more than many a call.
        if not self._is_needed.is_set():
            self._is_needed.set()

    def discard(self, timed: TimedAwaitable[Any]) -> None:
        self._running.discard(timed)

    def _look(self) -> None:
        told: dict[TimedAwaitable[Any], float] = {}
        while True:
            self._is_needed.wait()
            time.sleep(LOOK_S)
            self._is_needed.clear()
            running = tuple(self._running)
            if running:
                self._is_needed.set()
            else:
                told.clear()
            now = time.monotonic()
            for timed in running:
                began_at = timed.began_at
                if began_at is None or now - began_at < HANGING_S or told.get(timed) == began_at:
                    continue
                told[timed] = began_at
                _log.warning(
                    "tool %s has been blocking the event loop for %.1f s, and still does: %s",
                    timed.name,
                    now - began_at,
                    ADVICE,
                )


_watch = _Watch()


@final
class ToolReturned(msgspec.Struct, frozen=True):
    value: Any


@final
class ToolRaised(msgspec.Struct, frozen=True):
    error: BaseException


@final
class ToolTimedOut(msgspec.Struct, frozen=True):
    """The time was up. `late_outcome` is how the function ended while it was being stopped."""

    late_outcome: ToolReturned | ToolRaised | None
    is_running: bool = False
    """Whether it did not stop: a thread cannot be killed."""


@final
class ToolStopped(msgspec.Struct, frozen=True):
    """It was cancelled, and returned a value anyway."""

    late_outcome: ToolReturned


Work = asyncio.Future[ToolReturned | ToolRaised]
"""The work of a function: the task of an async one, or a future for the thread of another."""
AttemptOutcome = ToolReturned | ToolRaised | ToolTimedOut | ToolStopped


class ThreadPerJob(Executor):
    """Starts a thread for each job, so that a job that hangs never blocks another.

    The threads are daemons: the program can end while they run.
    """

    @override
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()

        def run_job() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                future.set_exception(error)

        threading.Thread(target=run_job, name="windlass-tool", daemon=True).start()
        return future


class ToolAttempt:
    """One run of a function."""

    # The event loop holds tasks only weakly, so abandoned ones are referenced here.
    _abandoned_tasks: set[Work] = set()  # noqa: RUF012 - shared on purpose

    def __init__(
        self,
        job: Callable[[], Any],
        name: str,
        stopping: threading.Event,
        on_late_result: Callable[[ToolReturned], None] | None = None,
        on_blocked: Callable[[float], None] | None = None,
        on_abandoned: Callable[[Work], None] | None = None,
    ) -> None:
        """Make an attempt. `on_blocked` gets the seconds that an async job blocked the loop.

        `on_abandoned` gets the task of a function that does not stop.
        """
        self._job = job
        self._name = name
        self._stopping = stopping
        self._on_late_result = on_late_result
        self._on_blocked = on_blocked
        self._on_abandoned = on_abandoned
        self._runs_in_thread = False

    async def run(self, timeout_s: float | None, grace_s: float) -> AttemptOutcome:
        """Wait until the function ends, its time is up, or the caller is cancelled.

        A cancel is passed on to the function and then raised again. If the function returns a value
        within the grace, ToolStopped is returned instead, so that the value is not lost.
        """
        if is_async_callable(self._job):
            return await self._supervise(self._await_timed(), timeout_s, grace_s)
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        # A thread cannot be cancelled. `_stop_work` must not cancel its future, because the future
        # would be done while the function still runs.
        self._runs_in_thread = True
        context = contextvars.copy_context()
        job = partial(_capture_outcome, self._job)
        work = loop.run_in_executor(_THREAD_PER_JOB, context.run, job)
        outcome = await self._supervise(work, timeout_s, grace_s)
        self._runs_in_thread = False
        if not isinstance(outcome, ToolReturned) or not inspect.isawaitable(outcome.value):
            return outcome
        # A plain function has returned something to await, in the time that is left.
        left_s = None if timeout_s is None else max(0.0, timeout_s + began_at - loop.time())
        return await self._supervise(_await_value(outcome.value), left_s, grace_s)

    async def _supervise(
        self,
        work: Work | Coroutine[Any, Any, ToolReturned | ToolRaised],
        timeout_s: float | None,
        grace_s: float,
    ) -> AttemptOutcome:
        """Wait for the work of the function, as `run` says."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            # A second cancel ends the grace; what the function returned just then is not lost.
            with suppress(asyncio.CancelledError):
                await self._stop_work(task, grace_s)
            late_outcome = None
            if task.done() and not task.cancelled():
                late_outcome = task.result()
            if isinstance(late_outcome, ToolReturned):
                return ToolStopped(late_outcome)
            raise
        if not done:
            late_outcome = await self._stop_work(task, grace_s)
            return ToolTimedOut(late_outcome, is_running=not task.done())
        if task.cancelled():
            return ToolRaised(asyncio.CancelledError("the tool cancelled itself"))
        return task.result()

    async def _await_timed(self) -> ToolReturned | ToolRaised:
        """Call an async function, and await what it returns."""
        try:
            timed = TimedAwaitable[Any](self._job(), self._name, self._on_blocked)
            return ToolReturned(await timed)
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - a tool that fails has a result
            return ToolRaised(error)

    async def _stop_work(self, task: Work, grace_s: float) -> ToolReturned | ToolRaised | None:
        """Ask it to stop, and wait for that. Returns how it ended, or None if it did not."""
        self._stopping.set()
        if not self._runs_in_thread:
            task.cancel()
        try:
            await asyncio.wait({task}, timeout=grace_s)
        finally:
            if not task.done():
                self._abandon_task(task)
        if task.done() and not task.cancelled():
            return task.result()
        return None

    def _abandon_task(self, task: Work) -> None:
        _log.warning("tool %s does not stop and is abandoned", self._name)
        self._abandoned_tasks.add(task)
        task.add_done_callback(self._on_abandoned_done)
        if self._on_abandoned is not None:
            self._on_abandoned(task)

    def _on_abandoned_done(self, task: Work) -> None:
        self._abandoned_tasks.discard(task)
        if task.cancelled():
            return
        outcome = task.result()
        if isinstance(outcome, ToolReturned) and inspect.isawaitable(outcome.value):
            self._abandon_task(asyncio.ensure_future(_await_value(outcome.value)))
            return
        if self._on_late_result is not None and isinstance(outcome, ToolReturned):
            self._on_late_result(outcome)


def _capture_outcome(job: Callable[[], Any]) -> ToolReturned | ToolRaised:
    """Return the outcome as data: a future cannot carry a StopIteration or SystemExit."""
    try:
        return ToolReturned(job())
    except BaseException as error:  # noqa: BLE001 - as above
        return ToolRaised(error)


async def _await_value(value: Awaitable[Any]) -> ToolReturned | ToolRaised:
    """Await what a plain function returned."""
    try:
        return ToolReturned(await value)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - a tool that fails has a result
        return ToolRaised(error)


def is_async_callable(job: Callable[..., Any]) -> bool:
    while isinstance(job, partial):
        job = job.func
    return inspect.iscoroutinefunction(job) or inspect.iscoroutinefunction(
        getattr(job, "__call__", None)  # noqa: B004 - an object with `__call__`
    )


_THREAD_PER_JOB = ThreadPerJob()
