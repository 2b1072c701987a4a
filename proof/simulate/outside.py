"""The world outside of the simulated processes: it survives them, and it remembers what was done.

A process that has lost its power can do nothing more to it, whatever its tasks still try.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from proof.simulate.plan import CallPlan, Plan, ReplyPlan
from windlass.core.errors import SessionBusy
from windlass.core.events import CallStarted, Fact, RunEnded, RunStarted, StepProposed
from windlass.core.limits import Amount, Budget
from windlass.core.messages import Purpose, Usage
from windlass.journals.memory import MemoryJournal
from windlass.ports import Lease
from windlass.testing.faults import PowerCut


@dataclass(slots=True)
class Power:
    """Whether a process is alive, and at which write it dies."""

    cut: tuple[int, Literal["before", "after"]] | None = None
    writes: int = 0
    on: bool = True
    works: bool = False
    drives: bool = False
    """Whether it has a run to drive, and whether it has written to it."""
    leases: list[Lease] = field(default_factory=list[Lease])

    def use(self) -> None:
        if not self.on:
            raise PowerCut

    def write(self) -> None:
        """A write is about to be made."""
        self.use()
        self.writes += 1
        if self.cut == (self.writes, "before"):
            self.die()
        self.use()

    def written(self, write: int) -> None:
        if self.cut == (write, "after"):
            self.die()
        self.use()

    def die(self) -> None:
        """What a process holds is let go of when it dies."""
        self.on = self.works = self.drives = False
        for lease in self.leases:
            lease.release()


@dataclass(slots=True)
class Served:
    """A request, as the provider's books have it."""

    run: int
    purpose: Purpose
    whole: bool = False
    usd: Decimal = Decimal(0)
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class Effect:
    """What a tool did."""

    key: str
    tool: str
    number: int


@dataclass(slots=True)
class Said:
    """What a person answered, and to what."""

    call_id: str
    number: int
    leave: bool


@dataclass(slots=True)
class Outside:
    """What all processes of a session share."""

    plan: Plan
    store: MemoryJournal
    calls: dict[int, CallPlan]
    effects: list[Effect] = field(default_factory=list[Effect])
    started: set[str] = field(default_factory=set[str])
    """The keys of the calls whose start is on record."""
    served: list[Served] = field(default_factory=list[Served])
    said: list[Said] = field(default_factory=list[Said])
    steered: list[str] = field(default_factory=list[str])
    """What people said meanwhile, and were told that it is on record."""
    refused: int = 0
    """How often a second process was refused."""
    noticed: list[str] = field(default_factory=list[str])
    """What was seen to be wrong while it happened."""

    def call_plan(self, number: int) -> CallPlan:
        return self.calls[number % 1000]

    def done(self, key: str) -> bool:
        return any(effect.key == key for effect in self.effects)

    async def run(self) -> int:
        """The number of the session's last run."""
        facts = await self.store.read(self.plan.session)
        return next((one.run for one in reversed(facts) if isinstance(one, RunStarted)), 0)

    async def steps(self) -> int:
        """How many replies of the session are on record."""
        facts = await self.store.read(self.plan.session)
        return sum(isinstance(fact, StepProposed) for fact in facts)


class SimJournal:
    """A store that waits as a disk does, in a process that may die at a write."""

    def __init__(self, outside: Outside, power: Power) -> None:
        self._outside = outside
        self._store = outside.store
        self._power = power
        self._wait_s = outside.plan.journal_wait_s

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        await asyncio.sleep(self._wait_s)
        self._power.use()
        return await self._store.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        return asyncio.create_task(self._append(session, facts), name="journal")

    async def _append(self, session: str, facts: Sequence[Fact]) -> None:
        power = self._power
        power.write()
        write = power.writes
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
            power.use()
        await self._store.append(session, facts)
        self._outside.started.update(fact.key for fact in facts if isinstance(fact, CallStarted))
        if session == self._outside.plan.session:
            power.drives = power.works and not isinstance(facts[-1], RunEnded)
        power.written(write)

    async def lease(self, session: str) -> Lease:
        self._power.use()
        lease = await self._store.lease(session)
        self._power.leases.append(lease)
        return _Watched(lease, self._power)

    async def leased(self, session: str) -> bool:
        self._power.use()
        return await self._store.leased(session)

    async def draw(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        self._power.write()
        write = self._power.writes
        amount = await self._store.draw(budget, session, run, wanted)
        self._power.written(write)
        return amount

    async def settle(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        self._power.write()
        write = self._power.writes
        await self._store.settle(budget, session, run, spent)
        self._power.written(write)

    async def spent(self, budget: Budget) -> Amount:
        self._power.use()
        return await self._store.spent(budget)


class _Watched:
    """A lease that only a living process can let go of."""

    def __init__(self, lease: Lease, power: Power) -> None:
        self._lease = lease
        self._power = power

    def release(self) -> None:
        if self._power.on:
            self._lease.release()


class Intruder:
    """The journal as a second process has it: it may look, and must be refused all else."""

    def __init__(self, outside: Outside, first: Power) -> None:
        self._outside = outside
        self._first = first

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._outside.store.read(session, after)

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        self._outside.noticed.append(f"a second process wrote {facts[0]} into {session}")
        raise SessionBusy("nobody may write here")

    async def lease(self, session: str) -> Lease:
        lease = await self._outside.store.lease(session)
        lease.release()
        if self._first.drives:
            self._outside.noticed.append("a second process was given the session of a living one")
        raise SessionBusy("the first process is gone, and this one was late")

    async def leased(self, session: str) -> bool:
        return await self._outside.store.leased(session)

    async def draw(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        raise AssertionError(f"{session} {run} draws {wanted} on {budget.name}")

    async def settle(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        raise AssertionError(f"{session} {run} settles {spent} with {budget.name}")

    async def spent(self, budget: Budget) -> Amount:
        return await self._outside.store.spent(budget)


def reply_at(replies: Sequence[ReplyPlan], step: int) -> ReplyPlan:
    """The reply that a conversation with so many replies gets; past the script, a last word."""
    return replies[step] if step < len(replies) else ReplyPlan("Done.", "", (), "end")
