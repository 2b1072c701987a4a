"""The world outside of the simulated processes: it survives them and remembers what they did.

A process without power cannot change it any more, even if its tasks still run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from typing_extensions import override

from proof.simulate.plan import CallPlan, ReplyPlan, SessionPlan
from proof.simulate.provider_limit import ProviderLimit
from windlass.core.errors import SessionBusy
from windlass.core.events import (
    CallAnswered,
    CallStarted,
    Fact,
    RunStarted,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.mail import Mail, MailReceipt
from windlass.core.messages import Purpose, Usage
from windlass.core.session_summary import SessionSummary, row_of
from windlass.core.verdicts import APPROVER, Decision
from windlass.journals.memory import MemoryJournal
from windlass.ports import Lease, ProvenAnswers, SharedRecord
from windlass.testing.faults import JournalWrapper, PowerCut

FOR_EVER_S = 1e6


@dataclass(slots=True)
class ProcessPower:
    """Whether a process is alive, and at which write it dies."""

    cut: tuple[int, Literal["before", "after"]] | None = None
    writes: int = 0
    on: bool = True
    has_run: bool = False
    has_written: bool = False
    """`has_run`: it has a run to drive. `has_written`: it has written to that run."""
    leases: list[Lease] = field(default_factory=list[Lease])

    def check_on(self) -> None:
        if not self.on:
            raise PowerCut

    def begin_write(self) -> None:
        """Count a write that is about to begin. Raises PowerCut if the process dies before it."""
        self.check_on()
        self.writes += 1
        if self.cut == (self.writes, "before"):
            self.turn_off()
        self.check_on()

    def end_write(self, write: int) -> None:
        if self.cut == (write, "after"):
            self.turn_off()
        self.check_on()

    def turn_off(self) -> None:
        """End the process. Its leases are released, as the kernel does for a dead process."""
        self.on = self.has_run = self.has_written = False
        for lease in self.leases:
            lease.release()


@dataclass(slots=True)
class BilledRequest:
    """A request as the provider bills it."""

    run: int
    purpose: Purpose
    whole: bool = False
    usd: Decimal = Decimal(0)
    usage: Usage = field(default_factory=Usage)


@dataclass(slots=True)
class ToolEffect:
    """An effect of a tool."""

    key: str
    tool: str
    number: int


@dataclass(slots=True)
class PersonReply:
    """The answer of a person to a question."""

    call_id: str
    number: int
    leave: bool


@dataclass(frozen=True, slots=True)
class PostedLetter:
    """A message that the store has accepted, and its key."""

    message: Mail
    key: str


@dataclass(slots=True)
class OutsideWorld:
    """What all processes of a session share: the store, the provider, the effects of tools."""

    plan: SessionPlan
    store: MemoryJournal
    calls: dict[int, CallPlan]
    effects: list[ToolEffect] = field(default_factory=list[ToolEffect])
    undone: list[ToolEffect] = field(default_factory=list[ToolEffect])
    """What was taken back: the key of the call that did it, and the call that it undid."""
    started: set[str] = field(default_factory=set[str])
    """The keys of the calls whose start is recorded."""
    billed_requests: list[BilledRequest] = field(default_factory=list[BilledRequest])
    replies: list[PersonReply] = field(default_factory=list[PersonReply])
    told: list[tuple[str, str, Decision]] = field(default_factory=list[tuple[str, str, Decision]])
    """What people who answered second were told: the session that asks, the call, the decision."""
    steered: list[str] = field(default_factory=list[str])
    """Steering messages that were confirmed as recorded."""
    posted: dict[int, PostedLetter] = field(default_factory=dict[int, PostedLetter])
    """The messages to the session that the store has, by their number."""
    posted_beside: dict[tuple[str, int], PostedLetter] = field(
        default_factory=dict[tuple[str, int], PostedLetter]
    )
    """The messages to sessions beside this one, by session and number: its runs post some."""
    queued: dict[int, PostedLetter] = field(default_factory=dict[int, PostedLetter])
    """The prompts that were put into the queue of the session, by their number."""
    provider_limit: ProviderLimit | None = None
    """The rate limit of the provider, if it has one."""
    refused: int = 0
    """How often a second process was refused."""
    doses_taken: int = 0
    """How often the call that takes its process down has done so."""
    problems: list[str] = field(default_factory=list[str])
    """Broken rules that were noticed while they happened."""

    def call_plan(self, number: int) -> CallPlan:
        # Changed arguments have the number of the call plus a multiple of 1000 (see `people.py`).
        return self.calls[number % 1000]

    def takes_dose(self, number: int) -> bool:
        """Return whether a call takes its process down now, and count it."""
        more = self.plan.more
        if number % 1000 != more.poison or self.doses_taken >= more.doses:
            return False
        self.doses_taken += 1
        return True

    def is_done(self, key: str) -> bool:
        return any(effect.key == key for effect in self.effects)

    async def last_run(self) -> int:
        """Return the number of the last run of the session; 0 if there is none."""
        facts = await self.store.read(self.plan.session)
        return next((fact.run for fact in reversed(facts) if isinstance(fact, RunStarted)), 0)

    async def last_opening(self) -> int:
        """Return the number of the fact by which the last driver opened the last run."""
        state = fold(self.plan.session, await self.store.read(self.plan.session))
        return state.run.opening_seq if state.run is not None else 0

    async def is_held(self) -> bool:
        """Return whether the session has an open run that its driver has no reason to let go of."""
        state = fold(self.plan.session, await self.store.read(self.plan.session))
        if state.run is None or state.run.outcome is not None:
            return False
        return not state.run.is_released and not state.is_waiting

    async def count_steps(self) -> int:
        """Return how many replies of the session are recorded."""
        facts = await self.store.read(self.plan.session)
        return sum(isinstance(fact, StepProposed) for fact in facts)


WRITES = ("draw_budget", "settle_budget", "remove_mail", "put_blob")
"""Methods of a journal that change it, apart from those that are written out below."""
READS_OF_DISK = ("read_mail", "read_questions")
"""Methods that wait for the disk; the others answer at once."""


class SimJournal(JournalWrapper):
    """A journal that waits as a disk does, in a process that may die at a write."""

    def __init__(self, outside: OutsideWorld, power: ProcessPower) -> None:
        super().__init__(outside.store)
        self._outside = outside
        self._store = outside.store
        self._power = power
        self._wait_s = outside.plan.journal_wait_s
        self._recorded: set[tuple[str, int]] = set()
        """What this process wrote: the answers of its own approver are among it."""

    @override
    async def find_proven(self, session: str) -> ProvenAnswers | None:
        """Believe answers that came from elsewhere, as if a service had signed them.

        What an approver answered counts in its own process alone, and a recorded allow nowhere.
        """
        if not self._outside.plan.more.has_keys:
            return None
        answers = [
            fact
            for fact in await self.read(session)
            if isinstance(fact, CallAnswered)
            and (fact.by != APPROVER or (session, fact.seq) in self._recorded)
        ]
        grants = [fact.grant for fact in answers if fact.grant is not None]
        return ProvenAnswers(frozenset(fact.call_id for fact in answers), grants)

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        await asyncio.sleep(self._wait_s)
        self._power.check_on()
        return await self._store.read(session, after)

    @override
    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        return asyncio.create_task(self._append_facts(session, facts, row), name="journal")

    async def _append_facts(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> None:
        power = self._power
        power.begin_write()
        write = power.writes
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
            power.check_on()
        await self._store.append(session, facts, row)
        state = fold(session, await self._store.read(session))
        made = row_of(state)
        if row != made:
            self._outside.problems.append(f"D9: {session} was listed as {row}, and is {made}")
        self._recorded.update((session, fact.seq) for fact in facts)
        self._outside.started.update(fact.key for fact in facts if isinstance(fact, CallStarted))
        if session == self._outside.plan.session:
            # A message that came too late is refused behind the end of the run.
            power.has_written = power.has_run and state.is_active
        power.end_write(write)

    @override
    async def lease(self, session: str) -> Lease:
        self._power.check_on()
        lease = await self._store.lease(session)
        self._power.leases.append(lease)
        return _PoweredLease(lease, self._power)

    @override
    async def visit(self, session: str) -> Lease:
        return await self.lease(session)

    @override
    async def _call_journal(
        self, name: str, method: Callable[..., Awaitable[Any]], *given: object, **options: object
    ) -> object:
        """Call the store. A process that died before or meanwhile learns nothing of it."""
        if name in WRITES:
            self._power.begin_write()
            write = self._power.writes
            answer = await method(*given, **options)
            self._power.end_write(write)
            return answer
        if name in READS_OF_DISK:
            await asyncio.sleep(self._wait_s)
        self._power.check_on()
        answer = await method(*given, **options)
        self._power.check_on()
        return answer

    @override
    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        self._power.begin_write()
        write = self._power.writes
        receipt = await self._store.post_mail(session, message, by=by, key=key)
        if session == self._outside.plan.session:
            lane = self._outside.queued if receipt.lane == "prompts" else self._outside.posted
            lane[receipt.number] = PostedLetter(message, key)
        else:
            self._outside.posted_beside[session, receipt.number] = PostedLetter(message, key)
        self._power.end_write(write)
        return receipt

    # The quota of the provider is shared by records. Nobody waits for them in a process that died.

    @override
    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        await self._wait_for_records()
        return await self._store.get_record(kind, name)

    @override
    async def put_record(self, kind: str, name: str, data: bytes, version: int) -> SharedRecord:
        await self._wait_for_records()
        return await self._store.put_record(kind, name, data, version)

    @override
    async def delete_record(self, kind: str, name: str, version: int | None = None) -> bool:
        return await self._store.delete_record(kind, name, version)

    @override
    async def list_records(
        self, kind: str, after: str = "", limit: int = 100
    ) -> Sequence[SharedRecord]:
        return await self._store.list_records(kind, after, limit)

    async def _wait_for_records(self) -> None:
        await asyncio.sleep(self._wait_s if self._power.on else FOR_EVER_S)


class _PoweredLease:
    """A lease that only a living process can release."""

    def __init__(self, lease: Lease, power: ProcessPower) -> None:
        self._lease = lease
        self._power = power

    @property
    def epoch(self) -> int:
        return self._lease.epoch

    def is_certain(self) -> bool:
        return self._power.on and self._lease.is_certain()

    def watch(self, on_lost: Callable[[], None]) -> None:
        def notify() -> None:
            if self._power.on:
                on_lost()

        self._lease.watch(notify)

    def release(self) -> None:
        if self._power.on:
            self._lease.release()

    async def confirm(self) -> bool:
        self._power.check_on()
        return await self._lease.confirm()


class IntruderJournal(JournalWrapper):
    """The journal as a second process sees it: it may read, and everything else is refused."""

    def __init__(self, outside: OutsideWorld, first: ProcessPower) -> None:
        super().__init__(outside.store)
        self._outside = outside
        self._first = first

    @override
    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        return await self._outside.store.read(session, after)

    @override
    def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> Awaitable[None]:
        del row
        self._outside.problems.append(f"a second process wrote {facts[0]} into {session}")
        raise SessionBusy("an intruder may not write")

    @override
    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        raise SessionBusy("an intruder may not write")

    @override
    async def lease(self, session: str) -> Lease:
        lease = await self._outside.store.lease(session)
        lease.release()
        # A process that drives a session further looks for more to do after it let go of a run.
        if self._first.has_written and await self._outside.is_held():
            self._outside.problems.append("a second process got the lease of a living one")
        raise SessionBusy("the first process has ended, and so has this one")

    @override
    async def visit(self, session: str) -> Lease:
        return await self.lease(session)

    @override
    async def _call_journal(
        self, name: str, method: Callable[..., Awaitable[Any]], *given: object, **options: object
    ) -> object:
        if name in WRITES:
            raise AssertionError(f"a second process calls {name} with {given}")
        return await method(*given, **options)


def make_prompt(plan: SessionPlan, number: int) -> str:
    """Return the prompt of a run, with the references that hydration looks up."""
    references = "".join(f" about look-{call.number}" for call in plan.more.lookups)
    return f"Prompt {number}{references}"


def reply_at(replies: Sequence[ReplyPlan], step: int) -> ReplyPlan:
    """Return the planned reply of a step; after the end of the script, a final reply."""
    if step < len(replies):
        return replies[step]
    return ReplyPlan("Done.", "", (), "end")
