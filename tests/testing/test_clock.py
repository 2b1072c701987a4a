"""Virtual time: it jumps when nothing else can happen, and never before."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.testing import (
    ClockConformance,
    Deadlock,
    TaskLeaked,
    VirtualClock,
    run_virtual,
)
from windlass.testing.clock import EPOCH

REAL_MAX_S = 5.0


class TestVirtualClock(ClockConformance):
    """The suite runs on the plugin's own `clock`."""


async def test_an_hour_takes_no_time(clock: VirtualClock) -> None:
    began = time.monotonic()
    await asyncio.sleep(3600)
    assert clock.elapsed_s == 3600.0
    assert clock.now() == EPOCH + 3600
    assert time.monotonic() - began < REAL_MAX_S


async def test_seconds_add_up_as_on_paper(clock: VirtualClock) -> None:
    await asyncio.sleep(0.1)
    await asyncio.sleep(0.2)
    assert clock.elapsed_s == 0.3


@given(st.lists(st.floats(0, 2e7), max_size=5))
async def test_every_timer_is_met_and_none_too_early(waits: list[float]) -> None:
    loop = asyncio.get_running_loop()
    for wait_s in waits:
        due = loop.time() + wait_s
        await asyncio.sleep(wait_s)
        assert loop.time() == pytest.approx(due, abs=1e-6)


async def test_order_is_by_time_and_not_by_creation(clock: VirtualClock) -> None:
    order: list[tuple[int, float]] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        order.append((seconds, clock.elapsed_s))

    async with asyncio.TaskGroup() as group:
        for seconds in (30, 10, 20):
            group.create_task(sleeper(seconds))
    assert order == [(10, 10.0), (20, 20.0), (30, 30.0)]


async def test_a_timeout_is_exact(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await asyncio.get_running_loop().create_future()
    assert clock.elapsed_s == 0.1


def test_chance_is_the_seeds() -> None:
    def rolls(seed: int) -> list[float]:
        clock = VirtualClock(seed=seed)
        return [clock.random_fraction() for _ in range(5)]

    assert rolls(1) == rolls(1) != rolls(2)


def test_it_runs_a_function_or_a_coroutine_and_gives_its_result() -> None:
    async def main(clock: VirtualClock) -> float:
        await clock.sleep(5)
        return clock.elapsed_s

    async def plain() -> str:
        return "done"

    assert run_virtual(main) == 5.0
    assert run_virtual(plain()) == "done"


def test_time_goes_on_from_one_run_to_the_next() -> None:
    """A process that is killed and started again does not start in the past."""
    clock = VirtualClock()
    clock.run(asyncio.sleep(5))
    clock.run(asyncio.sleep(5))
    assert clock.elapsed_s == 10.0


async def test_a_thread_holds_time_still(clock: VirtualClock) -> None:
    async with asyncio.timeout(0.01):
        await asyncio.to_thread(time.sleep, 0.05)
    assert clock.elapsed_s == 0.0


async def test_a_thread_of_ones_own_holds_time_still_when_told(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    answer = loop.create_future()

    def work() -> None:
        time.sleep(0.05)
        loop.call_soon_threadsafe(answer.set_result, "written")

    threading.Thread(target=work).start()
    with clock.hold_time():
        async with asyncio.timeout(0.01):
            assert await answer == "written"


async def test_time_may_pass_by_a_thread_that_hangs(clock: VirtualClock) -> None:
    released = threading.Event()
    with clock.let_time_pass(), pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await asyncio.to_thread(released.wait, REAL_MAX_S)
    released.set()
    assert clock.elapsed_s == 60.0


async def test_a_job_that_was_given_up_no_longer_holds_time(clock: VirtualClock) -> None:
    released = threading.Event()
    job = asyncio.create_task(asyncio.to_thread(released.wait, REAL_MAX_S))
    await asyncio.sleep(0)
    job.cancel()
    await asyncio.sleep(30)
    released.set()
    assert clock.elapsed_s == 30.0


async def test_a_socket_is_heard_before_time_jumps(clock: VirtualClock) -> None:
    """A peer in another thread answers after some real milliseconds; the timeout is virtual."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                for _ in range(3):
                    time.sleep(0.002)
                    peer.sendall(b"x")

        server = threading.Thread(target=serve)
        server.start()
        clock.silence_s = 1.0  # Generous, since the machine may be busy.
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.readexactly(3) == b"xxx"
        server.join()
        writer.close()
        await writer.wait_closed()


async def test_both_ends_of_a_connection_in_one_loop(clock: VirtualClock) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(2))
        await asyncio.sleep(30)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hi")
        assert await reader.read() == b"hi"
        assert clock.elapsed_s == 30.0
        writer.close()
        await writer.wait_closed()


def deadlocked(main: Coroutine[Any, Any, None], clock: VirtualClock) -> str:
    with pytest.raises(Deadlock) as caught:
        clock.run(main)
    return str(caught.value)


async def waits_for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_wait_for_nothing_is_a_deadlock_that_names_the_task() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_ever(), name="the writer")

    told = deadlocked(main(), VirtualClock())
    assert "no timer is set" in told
    assert re.search(r"the writer \(test_clock:\d+ in waits_for_ever\)", told)


def test_outside_work_that_does_not_come_back_is_a_deadlock() -> None:
    clock = VirtualClock(patience_s=0.05)

    async def main() -> None:
        with clock.hold_time():
            await asyncio.sleep(1)

    assert "did not end" in deadlocked(main(), clock)


def test_silence_on_a_socket_and_no_timer_is_a_deadlock() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            await asyncio.get_running_loop().sock_recv(ours, 1)

    assert "no timer is set" in deadlocked(main(), VirtualClock(patience_s=0.05))


def test_a_thread_that_nobody_knows_of_gets_a_last_chance() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        timer = threading.Timer(0.01, loop.call_soon_threadsafe, (answer.set_result, "late"))
        timer.start()
        return await answer

    assert run_virtual(main()) == "late"


async def leave_one() -> str:
    task = asyncio.create_task(waits_for_ever(), name="the orphan")
    await asyncio.sleep(0)
    assert not task.done()
    return "done"


def test_a_task_that_is_left_behind_is_named() -> None:
    with pytest.raises(TaskLeaked, match=r"the orphan \(test_clock:\d+ in waits_for_ever\)"):
        run_virtual(leave_one())


def test_a_task_may_be_left_behind_when_told() -> None:
    assert run_virtual(leave_one(), tasks_left="cancel") == "done"


def test_a_task_that_was_just_cancelled_is_not_left_behind() -> None:
    async def main() -> None:
        task = asyncio.create_task(waits_for_ever())
        await asyncio.sleep(0)
        task.cancel()

    run_virtual(main())


def test_an_error_comes_out_as_itself_even_with_tasks_left() -> None:
    async def main() -> None:
        await leave_one()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_virtual(main())
