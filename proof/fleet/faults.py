"""What happens to the workers of a fleet: one fault after another, each for some seconds."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from proof.fleet.proxy import Fault, FaultProxy
from proof.fleet.workers import FleetPlace, WorkerSlot
from windlass.journals.postgres.config import LEASE_S

PAUSE_S = (0.3, 1.5)
"""Between two faults."""
FAULT_S = (0.5, 5.0)
"""How long a fault lasts."""
IDLE_S = 20.0
"""A worker that has been there for so long without work is up, too."""
SLOW_S = 0.02
CLOCK_STEP_S = 3_600.0
AT_ONCE = 2
"""Faults of workers at a time."""
FaultAct = Callable[[WorkerSlot], Awaitable[None]]


class FaultMaker:
    """Makes faults at random until it is cancelled."""

    def __init__(
        self,
        place: FleetPlace,
        slots: Sequence[WorkerSlot],
        seed: int,
        is_working: Callable[[str], bool],
    ) -> None:
        """Make faults for workers that `is_working` says have begun to work, by their names.

        A worker that is killed before it has done anything shows nothing; on a slow machine that
        would be all of them.
        """
        self._is_working = is_working
        self._place = place
        self._slots = slots
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self.made: Counter[str] = Counter()
        self._acts: dict[str, tuple[int, FaultAct]] = {
            "killed": (6, self._kill),
            "stopped and woken": (3, self._pause),
            "stopped beyond its lease, and woken": (1, self._pause_long),
            "cut from the database": (2, self._cut_database),
            "silently cut from the database": (2, self._silence_database),
            "slow link to the database": (1, self._slow_database),
            "asked to end, and replaced": (1, self._replace),
            "clock wrong by an hour": (1, self._step_clock),
            "database restarted": (1, self._restart_database),
        }
        if place.engine is not None:
            self._acts |= {
                "cut from the engine": (2, self._cut_engine),
                "silently cut from the engine": (2, self._silence_engine),
                "engine restarted": (1, self._restart_engine),
            }

    async def run(self) -> None:
        """Make faults for as long as this is not cancelled; each of them is healed at its end."""
        weights = [weight for weight, _ in self._acts.values()]
        # Each kind once at least, then at random.
        queue = self._random.sample(list(self._acts), len(self._acts))
        try:
            while True:
                await asyncio.sleep(self._random.uniform(*PAUSE_S))
                busy = [slot for slot in self._slots if slot.busy]
                free = [slot for slot in self._slots if self._is_ready(slot)]
                if len(busy) >= AT_ONCE or not free:
                    continue
                name = queue.pop() if queue else self._random.choices([*self._acts], weights)[0]
                self._begin(name, self._random.choice(free))
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_ready(self, slot: WorkerSlot) -> bool:
        return not slot.busy and (self._is_working(slot.name) or slot.age_s > IDLE_S)

    def _begin(self, name: str, slot: WorkerSlot) -> None:
        self.made[name] += 1
        slot.busy = True
        task = asyncio.create_task(self._act(self._acts[name][1], slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _act(self, act: FaultAct, slot: WorkerSlot) -> None:
        try:
            await act(slot)
        finally:
            if not slot.is_alive:
                slot.start()
            slot.busy = False

    def _duration_s(self) -> float:
        return self._random.uniform(*FAULT_S)

    async def _kill(self, slot: WorkerSlot) -> None:
        await asyncio.to_thread(slot.kill)
        await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def _pause(self, slot: WorkerSlot) -> None:
        slot.pause()
        await asyncio.sleep(self._duration_s())
        slot.go_on()

    async def _pause_long(self, slot: WorkerSlot) -> None:
        slot.pause()
        await asyncio.sleep(LEASE_S * self._random.uniform(1.2, 1.8))
        slot.go_on()

    async def _replace(self, slot: WorkerSlot) -> None:
        await asyncio.to_thread(slot.terminate)

    async def upgrade(self, slot: WorkerSlot, version: str) -> None:
        """Replace a worker by one of another version, once no fault is under way there."""
        while slot.busy:  # noqa: ASYNC110 - another task ends it
            await asyncio.sleep(0.1)
        slot.busy = True
        slot.version = version
        self.made["upgraded in mid-run"] += 1
        await self._act(self._replace, slot)

    async def _step_clock(self, slot: WorkerSlot) -> None:
        slot.clock_offset_s = self._random.choice((-CLOCK_STEP_S, CLOCK_STEP_S))
        await asyncio.to_thread(slot.kill)
        slot.start()
        slot.clock_offset_s = 0.0

    async def _break_link(self, slot: WorkerSlot, proxy: FaultProxy, fault: Fault) -> None:
        slot.excused.add(slot.name)
        await asyncio.to_thread(proxy.set_fault, fault)
        try:
            await asyncio.sleep(self._duration_s())
        finally:
            await asyncio.to_thread(proxy.set_fault, "none")

    async def _cut_database(self, slot: WorkerSlot) -> None:
        await self._break_link(slot, slot.database_proxy, "refuse")

    async def _silence_database(self, slot: WorkerSlot) -> None:
        await self._break_link(slot, slot.database_proxy, "silence")

    async def _cut_engine(self, slot: WorkerSlot) -> None:
        await self._break_link(slot, slot.engine_proxy, "refuse")

    async def _silence_engine(self, slot: WorkerSlot) -> None:
        await self._break_link(slot, slot.engine_proxy, "silence")

    async def _slow_database(self, slot: WorkerSlot) -> None:
        slot.database_proxy.delay_s = SLOW_S
        await asyncio.sleep(self._duration_s())
        slot.database_proxy.delay_s = 0.0

    async def _restart_database(self, _: WorkerSlot) -> None:
        mode = self._random.choice(("fast", "immediate"))
        for slot in self._slots:
            slot.excused.add(slot.name)
        await asyncio.to_thread(self._place.database.restart, mode)

    async def _restart_engine(self, _: WorkerSlot) -> None:
        if self._place.engine is not None:
            await asyncio.to_thread(self._place.engine.restart)
