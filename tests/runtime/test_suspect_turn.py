"""The turn of a suspect: one at a time in a process, across tasks and event loops."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from windlass.runtime.running_calls import PROCESS_TURN, SuspectTurn

pytestmark = pytest.mark.contract("D15")


class Crowd:
    """Counts how many hold a turn at the same time."""

    def __init__(self) -> None:
        self.turn = SuspectTurn()
        self.order: list[int] = []
        self.inside = 0
        self.most = 0

    async def visit(self, number: int, seconds: float = 1.0) -> None:
        async with self.turn.hold():
            self.order.append(number)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(seconds)
            self.inside -= 1


async def test_one_at_a_time_in_the_order_of_asking() -> None:
    crowd = Crowd()
    await asyncio.gather(*map(crowd.visit, range(5)))
    assert crowd.order == [0, 1, 2, 3, 4]
    assert crowd.most == 1


async def test_a_cancelled_waiter_does_not_keep_the_turn() -> None:
    """Neither one that still waits, nor one that is cancelled as the turn comes."""
    crowd = Crowd()
    tasks = [asyncio.create_task(crowd.visit(number)) for number in range(4)]
    await asyncio.sleep(0.5)
    tasks[1].cancel()
    await asyncio.sleep(0.5)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.wait_for(tasks[3], 5)
    assert crowd.order[-1] == 3
    assert not tasks[2].done() or tasks[2].cancelled()


async def test_what_a_holder_starts_does_not_wait_for_its_own_turn() -> None:
    """A tool may drive another run, whose call is a suspect too."""
    async with PROCESS_TURN.get().hold():
        inner = asyncio.create_task(hold_process_turn())
        await asyncio.wait_for(inner, 5)
    await asyncio.wait_for(hold_process_turn(), 5)


async def hold_process_turn() -> None:
    async with PROCESS_TURN.get().hold():
        await asyncio.sleep(0)


@pytest.mark.realtime
def test_threads_with_loops_of_their_own_share_the_turn() -> None:
    crowd = Crowd()
    ready = threading.Barrier(4)

    def run_visits(number: int) -> None:
        ready.wait()
        asyncio.run(crowd.visit(number, 0.01))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run_visits, range(4)))
    assert sorted(crowd.order) == [0, 1, 2, 3]
    assert crowd.most == 1


@pytest.mark.realtime
def test_a_loop_that_was_closed_does_not_keep_the_turn() -> None:
    """Its waiters are gone, and the next one gets the turn."""
    crowd = Crowd()

    async def give_up_waiting() -> None:
        waiting = asyncio.create_task(crowd.visit(2))
        await asyncio.sleep(0)
        waiting.cancel()

    async def hold_meanwhile() -> None:
        async with crowd.turn.hold():
            await asyncio.to_thread(asyncio.run, give_up_waiting())
        await crowd.visit(1, 0)

    asyncio.run(asyncio.wait_for(hold_meanwhile(), 30))
    assert crowd.order == [1]
