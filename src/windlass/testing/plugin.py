"""Runs every `async def test_*` on virtual time: `pytest_plugins = ["windlass.testing.plugin"]`.

- The fixture `clock` is the `VirtualClock` that the test runs on.
- `@pytest.mark.realtime` runs a test on a plain event loop: for child processes and real threads.
- A test that leaves a task behind fails, unless it is marked `@pytest.mark.leaves_tasks`.
- Under Hypothesis each example has its own event loop and clock.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from windlass.testing.clock import TasksLeft, VirtualClock, run_supervised

REALTIME_GRACE_S = 0.5
"""Real seconds for the last tasks of a test to end. On virtual time they need none."""

AsyncTest = Callable[..., Coroutine[Any, Any, None]]


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "realtime: runs on a plain event loop, in real time",
        "leaves_tasks: may end while tasks of its own are still running",
    ):
        config.addinivalue_line("markers", marker)


@pytest.fixture
def clock() -> VirtualClock:
    """The virtual clock of this test."""
    return VirtualClock()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Replace an async test by a plain function, which pytest then calls as usual."""
    # Hypothesis wraps the test: its inner function runs once for each example.
    handle: Any = getattr(pyfuncitem.obj, "hypothesis", None)
    if handle is not None and inspect.iscoroutinefunction(handle.inner_test):
        handle.inner_test = _make_sync_test(pyfuncitem, handle.inner_test, None)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        given = pyfuncitem.funcargs.get("clock")
        pyfuncitem.obj = _make_sync_test(pyfuncitem, pyfuncitem.obj, given)


def _make_sync_test(
    item: pytest.Function, test: AsyncTest, clock_fixture: object
) -> Callable[..., None]:
    realtime = item.get_closest_marker("realtime") is not None
    left: TasksLeft = "cancel" if item.get_closest_marker("leaves_tasks") else "fail"

    @wraps(test)
    def in_real_time(**arguments: object) -> None:
        if isinstance(arguments.get("clock"), VirtualClock):
            pytest.fail("A realtime test has no virtual clock. Remove the fixture or the marker.")
        with asyncio.Runner() as runner:
            main = test(**arguments)
            runner.run(run_supervised(main, tasks_left=left, grace_s=REALTIME_GRACE_S))

    @wraps(test)
    def in_virtual_time(**arguments: object) -> None:
        clock = clock_fixture if isinstance(clock_fixture, VirtualClock) else VirtualClock()
        if isinstance(arguments.get("clock"), VirtualClock):
            arguments["clock"] = clock
        clock.run(test(**arguments), tasks_left=left)

    return in_real_time if realtime else in_virtual_time
