"""Virtual time: an hour of sleep takes microseconds, and a test takes the same course every time.

Invariant: time moves only when nothing else can. While a callback is ready, time does not move.
When nothing is ready, time jumps to the next timer. Work outside the event loop takes real time,
so:

- A job in an executor (`asyncio.to_thread`), a write of a `SqliteJournal` and a `with
  clock.hold_time():` block hold time still. The loop waits for them in real time, for `patience_s`
  at most.
- `with clock.let_time_pass():` lets time pass while such jobs run, to test a thread that hangs.
- Data may arrive at any moment on an open socket or pipe, so time jumps only after `silence_s` of
  real silence. Each jump costs that much real time while a socket is open.
- The loop cannot see a thread of your own that answers through `call_soon_threadsafe`: pass the
  future that it settles to `loop.hold_time_for`, or wrap the wait in `clock.hold_time()`. Test
  child processes in real time (`@pytest.mark.realtime`).

When nothing is ready, no timer is set and no work runs outside, the wait would never end: that
raises `Deadlock`, which names the waiting tasks.
"""

import asyncio
import inspect
import math
import selectors
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from random import Random
from typing import Any, Literal, TypeVar

from typing_extensions import override

from windlass.ports import Clock

T = TypeVar("T")
AsyncMain = Callable[["VirtualClock"], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T]
TasksLeft = Literal["fail", "cancel"]

EPOCH = 1_735_689_600.0
"""2025-01-01T00:00:00Z: what a virtual clock shows when it starts."""
TIMER_RESOLUTION_S = 1e-9
"""How much too early asyncio may call a timer (half of it is lost to rounding)."""
LAST_CHANCE_S = 0.25
"""Real time to wait for a thread that the loop cannot see, before a wait counts as a deadlock."""
TURNS_TO_SETTLE = 20
"""Turns of the loop in which a task may still end by itself after its test has ended."""


class Deadlock(AssertionError):
    """All tasks wait for something that will never happen. The message names them."""


class TaskLeaked(AssertionError):
    """A test ended while tasks that it started were still running. The message names them."""


class VirtualClock:
    """The clock and the random numbers of a test. Its time continues from one `run` to the next."""

    def __init__(
        self,
        *,
        seed: int = 0,
        epoch: float = EPOCH,
        silence_s: float = 0.02,
        patience_s: float = 30.0,
    ) -> None:
        self.elapsed_s = 0.0
        """Virtual seconds since the clock was created."""
        self.silence_s = silence_s
        """Real seconds without data on open sockets and pipes before time may jump."""
        self.patience_s = patience_s
        """Real seconds that work outside the loop may take."""
        self.outside_jobs = 0
        self.holds_time = True
        """Whether work outside the loop holds virtual time still."""
        self._epoch = epoch
        self._random = Random(seed)

    def now(self) -> float:
        return self._epoch + self.elapsed_s

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)

    def random_fraction(self) -> float:
        return self._random.random()

    def advance(self, seconds: float) -> None:
        """Move time forward. It is rounded to a nanosecond, so that 0.1 + 0.2 is 0.3."""
        target = self.elapsed_s + seconds
        rounded = round(target, 9)
        # Past about 90 days a float is coarser than asyncio's resolution. A timer that is due
        # exactly now would then never be called.
        if rounded + TIMER_RESOLUTION_S <= target + math.ulp(target):
            rounded = target + 2 * math.ulp(target)
        self.elapsed_s = rounded

    def set_wall_clock(self, by_s: float) -> None:
        """Set the time of day forward or back, as a person or a time server does."""
        self._epoch += by_s

    @contextmanager
    def hold_time(self) -> Generator[None]:
        """Hold time still while something outside the loop works."""
        self.outside_jobs += 1
        try:
            yield
        finally:
            self.outside_jobs -= 1

    @contextmanager
    def let_time_pass(self) -> Generator[None]:
        """Let time pass although something outside the loop works."""
        before = self.holds_time
        self.holds_time = False
        try:
            yield
        finally:
            self.holds_time = before

    def run(self, main: AsyncMain[T], *, tasks_left: TasksLeft = "fail") -> T:
        """Run a coroutine, or a function that takes the clock, on a fresh event loop.

        Returns what the coroutine returns. Raises TaskLeaked if it leaves tasks behind (with
        `tasks_left="cancel"` they are cancelled), and Deadlock if no task can continue.
        """
        coroutine = main(self) if callable(main) else main
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self)) as runner:
            return runner.run(run_supervised(coroutine, tasks_left=tasks_left))


def run_virtual(main: AsyncMain[T], *, seed: int = 0, tasks_left: TasksLeft = "fail") -> T:
    """Run a coroutine, or a function that takes the clock, on a new `VirtualClock`."""
    return VirtualClock(seed=seed).run(main, tasks_left=tasks_left)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that takes its time from a `VirtualClock`."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        super().__init__(_VirtualSelector(clock))

    @override
    def time(self) -> float:
        return self.clock.elapsed_s

    @override
    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        # For the same reason as in `advance`: a timer that is due now must be due before now.
        due = math.nextafter(when, -math.inf) if when == self.clock.elapsed_s else when
        return super().call_at(due, callback, *args, context=context)

    @override
    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> Any:
        """Run a function in a thread; virtual time is held in the meantime."""
        # A cancelled job no longer holds time, although its thread may still be running.
        job = super().run_in_executor(executor, func, *args)
        self.hold_time_for(job)
        return job

    def hold_time_for(self, job: asyncio.Future[Any]) -> None:
        """Hold virtual time until a future is done, because a thread works for it."""
        hold = self.clock.hold_time()
        hold.__enter__()
        job.add_done_callback(lambda _: hold.__exit__(None, None, None))

    @override
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Python 3.11 takes no time-out here, and while time is held none could be reached.
        with self.clock.hold_time():
            await super().shutdown_default_executor()


class _VirtualSelector(selectors.DefaultSelector):
    """Replaces the wait of the event loop: it polls once, and then lets time jump."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready  # Something can run now, so time is held.
        clock = self._clock
        if clock.outside_jobs and clock.holds_time:
            return self._wait_in_real_time(clock.patience_s, "work outside of the loop did not end")
        # The wake-up pipe of the loop itself is always registered.
        sockets = len(self.get_map()) > 1
        if sockets or clock.outside_jobs:
            # The other side may be about to answer: give it a moment of real time.
            ready = super().select(clock.silence_s)
        if ready:
            return ready
        if timeout is None:
            patience_s = clock.patience_s if sockets else LAST_CHANCE_S
            return self._wait_in_real_time(patience_s, "nothing is ready and no timer is set")
        clock.advance(timeout)
        return []

    def _wait_in_real_time(
        self, seconds: float, why: str
    ) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(seconds)
        if not ready:
            waiting = describe_tasks(asyncio.all_tasks())
            when = f"at {self._clock.elapsed_s} s virtual, after {seconds} s real"
            raise Deadlock(f"{why} ({when}); waiting: {waiting or 'no task'}")
        return ready


async def run_supervised(
    main: Coroutine[Any, Any, T], *, tasks_left: TasksLeft = "fail", grace_s: float = 0.0
) -> T:
    """Run a coroutine. Raises TaskLeaked if it leaves tasks behind that do not end by themselves.

    They have TURNS_TO_SETTLE turns of the loop to end, and then `grace_s` seconds.
    """
    result = await main
    if tasks_left == "fail":
        for _ in range(TURNS_TO_SETTLE):
            if not _other_tasks():
                break
            await asyncio.sleep(0)
        if grace_s and (left := _other_tasks()):
            await asyncio.wait(left, timeout=grace_s)
        if left := _other_tasks():
            raise TaskLeaked(f"left behind: {describe_tasks(left)}")
    return result


def _other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def describe_tasks(tasks: set[asyncio.Task[Any]]) -> str:
    """List tasks by name, each with the line at which it waits."""
    return ", ".join(sorted(f"{task.get_name()} ({_waiting_line(task)})" for task in tasks))


def _waiting_line(task: asyncio.Task[Any]) -> str:
    """Return the innermost Python line of a task. Awaitables below it have no frame."""
    awaited: Any = task.get_coro()
    place = "not started"
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            place = f"{inspect.getmodulename(frame.f_code.co_filename)}:{frame.f_lineno}"
            place = f"{place} in {frame.f_code.co_qualname}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return place


class ClockConformance:
    """What every clock must do. A subclass defines the fixture `clock`."""

    async def test_now_does_not_go_back(self, clock: Clock) -> None:
        before = clock.now()
        await clock.sleep(0.01)
        assert isinstance(before, float)
        assert clock.now() >= before

    async def test_a_sleep_lasts_as_long_as_it_says(self, clock: Clock) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await clock.sleep(0.02)
        assert loop.time() - before >= 0.02 - 1e-6

    async def test_a_sleep_of_nothing_lets_others_run(self, clock: Clock) -> None:
        ran: list[str] = []
        asyncio.get_running_loop().call_soon(ran.append, "other")
        await clock.sleep(0)
        assert ran == ["other"]

    async def test_a_sleep_can_be_cancelled(self, clock: Clock) -> None:
        sleeper = asyncio.create_task(clock.sleep(3600))
        await asyncio.sleep(0)
        sleeper.cancel()
        done, _ = await asyncio.wait([sleeper], timeout=1)
        assert done, "the sleep went on"
        assert sleeper.cancelled()

    async def test_a_roll_is_a_number_from_0_to_1(self, clock: Clock) -> None:
        rolls = [clock.random_fraction() for _ in range(100)]
        assert all(0 <= roll <= 1 for roll in rolls)
        assert len(set(rolls)) > 1, "a hundred random numbers are all the same"
